"""A terminal of a given size on the standard error of this process, whose screen a test reads."""

import fcntl
import os
import pty
import struct
import sys
import termios
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

STDERR = 2


class Terminal:
    """A terminal; `seen` has what was read from it."""

    def __init__(self, columns: int, lines: int) -> None:
        self._lines = lines
        self.ours, self.theirs = pty.openpty()
        self.resize(columns)
        self.seen = ""
        self._decoder = getincrementaldecoder("utf-8")()

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", self._lines, columns, 0, 0))

    def read(self, until: str | None = None) -> str:
        """Read what is written, up to these words or to the end. Return it."""
        before = len(self.seen)
        while until is None or until not in self.seen[before:]:
            try:
                read = os.read(self.ours, 4096)
            except OSError:  # EIO: no process has it open any more
                break
            if not read:
                break
            self.seen += self._decoder.decode(read)
        return self.seen[before:]


@contextmanager
def terminal_on_stderr(columns: int = 80, lines: int = 30, **env: str) -> Iterator[Terminal]:
    """Make standard error a terminal in the block; it is closed at the end, and the rest can still be read."""
    terminal = Terminal(columns, lines)
    kept = os.dup(STDERR)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in ({"TERM": "xterm-256color"} | env).items():
            patch.setenv(name, value)
        os.dup2(terminal.theirs, STDERR)  # rich asks the descriptor for the size
        os.close(terminal.theirs)
        with open(STDERR, "w", encoding="utf-8", closefd=False) as stream:
            patch.setattr(sys, "stderr", stream)
            try:
                yield terminal
            finally:
                stream.flush()
                os.dup2(kept, STDERR)
                os.close(kept)
    terminal.read()
    os.close(terminal.ours)
