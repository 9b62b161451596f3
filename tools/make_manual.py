"""Write `man/loadsim.1`, the manual page, from the parsers and the reference of exit statuses."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from loadsim.cli import parser
from loadsim.version import __version__
from tools.command_tree import Argument, Command, command_tree
from tools.make_commands import sentence

ROOT = Path(__file__).parent.parent
MANUAL = ROOT / "man" / "loadsim.1"

STATUS = re.compile(r"^\| (\d+) \| (.*?) \| .* \|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")

SEE_ALSO = "The documentation is in docs/ of the source: tutorials, how-tos, and a reference of all keys and files."


def manual() -> str:
    """Return the page. It has no date, only the version that it describes."""
    top = command_tree(parser())
    lines = [
        '.\\" Written by tools/make_manual.py: make reference',
        f'.TH LOADSIM 1 "" "loadsim {__version__}" "User Commands"',
        ".SH NAME",
        "loadsim \\- simulate mail users on an IMAP and SMTP server",
        ".SH SYNOPSIS",
        ".B loadsim",
        ".I COMMAND",
        "[arguments]",
        ".SH DESCRIPTION",
        _text(top.about),
        ".SH OPTIONS",
        *_arguments(top.arguments),
        ".SH COMMANDS",
    ]
    for command in top.all():
        if command.path and not command.verbs:
            lines += _command(command)
    return "\n".join([*lines, ".SH EXIT STATUS", *_statuses(), ".SH SEE ALSO", _text(SEE_ALSO)]) + "\n"


def _command(command: Command) -> list[str]:
    return [
        f".SS {_text(f'loadsim {command.name}')}",
        f".B {_text(f'loadsim {command.name}')}",
        *_synopsis(command),
        ".PP",
        _text(sentence(command.about)),
        *_arguments((*command.operands, *(option for option in command.options if "--help" not in option.flags))),
    ]


def _synopsis(command: Command) -> list[str]:
    """Return the words after a command: required options, `[options]`, operands."""
    required = [f"{option.flags[-1]} {option.value}" for option in command.options if not option.optional]
    operands = [f"{operand.value}{' ...' if operand.repeated else ''}" for operand in command.operands]
    for place, operand in enumerate(command.operands):
        if operand.optional:
            operands[place] = f"[{operands[place]}]"
    return [_text(word) for word in (*required, "[options]", *operands)]


def _arguments(arguments: Iterable[Argument]) -> list[str]:
    lines = []
    for argument in arguments:
        names = ", ".join(f"\\fB{_escaped(flag)}\\fP" for flag in argument.flags)
        value = f"\\fI{_escaped(argument.value)}\\fP" if argument.value else ""
        lines += [".TP", " ".join(part for part in (names, value) if part), _text(sentence(argument.help))]
    return lines


def _statuses() -> list[str]:
    """Return each exit status with the first sentence of its description in the reference."""
    lines = []
    for status, meaning in STATUS.findall((ROOT / "docs/reference/exit-status.md").read_text(encoding="utf-8")):
        text = LINK.sub(r"\1", meaning).replace("`", "")
        lines += [".TP", f".B {status}", _text(sentence(text.partition(". ")[0]))]
    return lines


def _text(text: str) -> str:
    """Return lines of text that roff does not take for requests, which begin with a full stop or an apostrophe."""
    lines = textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{_escaped(line)}" if line.startswith((".", "'")) else _escaped(line) for line in lines)


def _escaped(text: str) -> str:
    """Escape the characters that roff would change: an unescaped hyphen cannot be copied as part of an option."""
    return (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("~", "\\(ti")
    )


def main() -> None:
    MANUAL.parent.mkdir(exist_ok=True)
    MANUAL.write_text(manual(), encoding="utf-8")


if __name__ == "__main__":
    main()
