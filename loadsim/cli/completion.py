"""`loadsim completion`: print a script with which a shell completes commands, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from loadsim.cli import parser as whole_parser

SHELLS = ("bash", "zsh", "fish")
FILES = frozenset({"FILE", "LOG", "OUT", "PATH", "RUN", "SCENARIO", "PROFILE", "SUITE"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run_completion)


def run_completion(args: argparse.Namespace) -> int:
    print(script(args.shell), end="")
    return 0


def script(shell: str) -> str:
    """Return the script for one of `SHELLS`."""
    import shtab  # it takes longer than all of --help

    parser = whole_parser()
    for action in _actions(parser):
        kind = shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE
        if action.metavar == "DIR" or action.metavar in FILES or action.type is Path:
            setattr(action, "complete", kind)  # noqa: B010
    return shtab.complete(parser, shell) + "\n"


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of those below it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
        else:
            yield action
