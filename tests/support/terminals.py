"""A terminal of a given size, whose screen a test reads."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from codecs import getincrementaldecoder
from collections.abc import Mapping


class Terminal:
    """A process whose standard error is a terminal; its standard input and output are pipes."""

    def __init__(
        self, command: list[str], columns: int = 80, env: Mapping[str, str] | None = None, lines: int = 30
    ) -> None:
        self._lines = lines
        self._ours, theirs = pty.openpty()
        self.resize(columns)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
            | {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            | dict(env or {}),
        )
        os.close(theirs)
        self.seen = ""
        self._decoder = getincrementaldecoder("utf-8")()

    def resize(self, columns: int) -> None:
        """Make it as wide, and as high as it was."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", self._lines, columns, 0, 0))

    def read(self, until: str | None = None) -> str:
        """What is written to it, up to these words or to the end; all of it is `seen`."""
        before = len(self.seen)
        while until is None or until not in self.seen[before:]:
            try:
                read = os.read(self._ours, 4096)
            except OSError:  # EIO: nobody has it open any more
                break
            if not read:
                break
            self.seen += self._decoder.decode(read)
        return self.seen[before:]

    def close(self) -> None:
        """Away with it."""
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)
