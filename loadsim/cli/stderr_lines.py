"""Lines on standard error: wrapped at words on a terminal, but not within a command, which users copy."""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import suppress

_COMMAND = re.compile(r"\b(?:loadsim [a-z]|ulimit |chmod |apt-get |pip )[^;:,()]*|--[a-z-]+ [^\s;:,()]+")
"""A command or an option with its value, up to the end of its clause."""


def print_line(line: str) -> None:
    """Print a line on standard error, if anybody still reads it."""
    with suppress(BrokenPipeError):  # no reason to end the command
        print(for_terminal(line) if sys.stderr.isatty() else line, file=sys.stderr, flush=True)


def for_terminal(line: str) -> str:
    """Return a line wrapped for the terminal."""
    from loadsim.report.plain_lines import NO_BREAK, wrapped  # slow to import, for commands that only fail

    together = _COMMAND.sub(lambda command: command[0].replace(" ", NO_BREAK), line)
    return "\n".join(wrapped([together], shutil.get_terminal_size().columns))
