"""The new lines of a log file, across its rotation and truncation."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.files import open_file

LONGEST_LINE_BYTES = 1 << 16


class LogTail:
    """The complete lines that were written to a file since its end was first seen.

    A file of the same name that replaces it is read from its beginning, as is one that became shorter. `skips` counts
    the times that lines were left out.
    """

    def __init__(self, path: Path, name: str, most_bytes: int) -> None:
        """Open the file. Raises `ConfigError`, in which it is called `name`."""
        self._path = path
        self._most_bytes = most_bytes
        self._rest = b""
        self.skips = 0
        try:
            self._file = open_file(path)
        except OSError as error:
            raise ConfigError(f"{name}: expected a file that can be read, found: {error.strerror}") from None
        self._at = os.fstat(self._file.fileno()).st_size

    def new_lines(self) -> bytes:
        """Return the new lines, each with its end.

        Raises `OSError` if the file is missing or cannot be read: nothing is lost then. Raises it, too, if more than
        `most_bytes` are new, and leaves those out.
        """
        now = self._path.stat()
        before = os.fstat(self._file.fileno())
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            replacement = open_file(self._path)
            ended = self._read()
            self._file.close()
            self._file, self._at = replacement, 0
            self._rest += ended + b"\n"  # no line goes on in another file
        elif before.st_size < self._at:
            self._at, self._rest = 0, b""
        block = self._rest + self._read()
        if len(block) > self._most_bytes + LONGEST_LINE_BYTES:
            self._at, self._rest = os.fstat(self._file.fileno()).st_size, b""
            self.skips += 1
            raise OSError(f"expected at most {self._most_bytes} new bytes in the log, found more, and left them out")
        lines, end, rest = block.rpartition(b"\n")
        self._rest = rest[:LONGEST_LINE_BYTES]
        return lines + end

    def __del__(self) -> None:
        """Close the file: a probe has no other end."""
        with suppress(AttributeError):  # it was not opened
            self._file.close()

    def _read(self) -> bytes:
        """Return what is new, and at least one byte more than allowed of a larger block."""
        self._file.seek(self._at)
        found = self._file.read(self._most_bytes + LONGEST_LINE_BYTES + 1)
        self._at += len(found)
        return found
