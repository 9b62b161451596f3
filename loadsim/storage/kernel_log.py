"""Errors that the kernel logs during a test (`Documentation/ABI/testing/dev-kmsg` of Linux)."""

from __future__ import annotations

import os
from contextlib import suppress

MOST_ERRORS = 20
ERROR = 3  # RFC 5424 section 6.2.1: more urgent ones have lower numbers, other facilities higher ones


class KernelLog:
    def __init__(self, device: str = "/dev/kmsg") -> None:
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._file, 0, os.SEEK_END)

    def errors(self) -> list[str] | None:
        """Return the first errors since the start, and end. None if unknown: unreadable, or already overwritten."""
        if self._file is None:
            return None
        found, overwritten = list[str](), False
        with suppress(BlockingIOError):  # at the end
            while len(found) < MOST_ERRORS:
                try:
                    prefix, _, text = os.read(self._file, 8192).decode("utf-8", "replace").partition(";")
                except BrokenPipeError:  # the next read goes on with the oldest message that is left
                    overwritten = True
                    continue
                if int(prefix.partition(",")[0]) <= ERROR:
                    found.append(text.partition("\n")[0])
        os.close(self._file)
        return None if overwritten and not found else found
