"""The commands and their arguments as data, taken from the parsers, for the pages that list them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """An option, or an operand, which has no `flags`. `value` is its metavar, "" for a switch; `words` its choices."""

    flags: tuple[str, ...]
    value: str
    words: tuple[str, ...]
    optional: bool
    repeated: bool
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its path, such as ("log", "answer"). `verbs` are its subcommands."""

    path: tuple[str, ...]
    about: str
    arguments: tuple[Argument, ...]
    verbs: tuple[Command, ...]

    @property
    def name(self) -> str:
        return " ".join(self.path)

    @property
    def options(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if argument.flags)

    @property
    def operands(self) -> tuple[Argument, ...]:
        return tuple(argument for argument in self.arguments if not argument.flags)

    def all(self) -> Iterator[Command]:
        """Yield this command and all its subcommands."""
        yield self
        for verb in self.verbs:
            yield from verb.all()


def command_tree(parser: argparse.ArgumentParser, path: tuple[str, ...] = (), about: str = "") -> Command:
    """Return the commands of a parser."""
    arguments, verbs = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            verbs += [command_tree(verb, (*path, name), helps[name]) for name, verb in action.choices.items()]
        elif action.help != argparse.SUPPRESS:
            arguments.append(_argument(action, path))
    return Command(path, about or parser.description or "", tuple(arguments), tuple(verbs))


def _argument(action: argparse.Action, path: tuple[str, ...]) -> Argument:
    words = tuple(map(str, action.choices or ()))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = "" if action.nargs == 0 else metavar or ("|".join(words) if words else action.dest.upper())
    return Argument(
        flags=tuple(action.option_strings),
        value=value,
        words=words,
        optional=bool(action.option_strings and not action.required) or action.nargs in ("?", "*"),
        repeated=action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction),
        help=_help(action),
    )


def _help(action: argparse.Action) -> str:
    return " ".join(((action.help or "") % {**vars(action), "prog": "loadsim"}).split())
