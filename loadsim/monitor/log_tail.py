"""A log file's new lines, across rotation and truncation."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.files import open_file

LONGEST_LINE_BYTES = 1 << 16


class LogTail:
    """The complete lines written to a file since it was opened here.

    A replacement with the same name is read from its beginning, as is a file that became shorter. `skips` counts how
    often lines were left out.
    """

    def __init__(self, path: Path, name: str, most_bytes: int) -> None:
        """Open the file. Raises `ConfigError`, which calls it `name`."""
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

        Raises `OSError` if the file is missing or unreadable, in which case nothing is lost. Also raises it if more
        than `most_bytes` are new, which are then skipped.
        """
        now = self._path.stat()
        before = os.fstat(self._file.fileno())
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            replacement = open_file(self._path)
            ended = self._read()
            self._file.close()
            self._file, self._at = replacement, 0
            self._rest += ended + b"\n"  # no line continues in another file
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
        """Close the file, as nothing else ends a probe."""
        with suppress(AttributeError):  # it was never opened
            self._file.close()

    def _read(self) -> bytes:
        """Return the new bytes; if there are too many, at least one more than allowed."""
        self._file.seek(self._at)
        data = self._file.read(self._most_bytes + LONGEST_LINE_BYTES + 1)
        self._at += len(data)
        return data
