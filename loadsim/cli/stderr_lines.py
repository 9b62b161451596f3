"""Lines for people: wrapped at words on a terminal, but not within a command, which users copy."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import suppress
from typing import TextIO

_WORD = r"[^\s;:,()]+"
_COMMAND = re.compile(
    r"\bloadsim (?:--)?[a-z]+"  # the verb, a second one, options with values, and arguments that are no plain words
    r"(?: [a-z]+(?=$|[;:,()]| -| [A-Z]| [^\s;:,()]*[./=]))?"
    rf"(?: -{_WORD}(?: (?!-){_WORD})?| (?={_WORD})[^\s;:,()]*[A-Z./=][^\s;:,()]*)*"
    r"|\b(?:ulimit |chmod |apt-get |pip )[^;:,()]*"
    rf"|--[a-z-]+ {_WORD}"
)
"""A command with its arguments, or an option with its value; no prose that follows."""


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line, or several, if anybody still reads them; on standard error unless another stream is given."""
    stream = stream or sys.stderr
    with suppress(BrokenPipeError):  # no reason to end the command
        print(for_terminal(line) if stream.isatty() else line, file=stream, flush=True)


def for_terminal(text: str) -> str:
    """Return lines wrapped for the terminal."""
    from loadsim.report.plain_lines import NO_BREAK, wrapped  # slow to import, for commands that only fail

    together = _COMMAND.sub(lambda command: command[0].replace(" ", NO_BREAK), text)
    return "\n".join(wrapped(together.split("\n"), shutil.get_terminal_size().columns))
