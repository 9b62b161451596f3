"""A file that is read and written past the cache of the operating system."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from pathlib import Path

_BLOCK_BYTES = 4096


class DirectFile:
    """A file that is read and written past the cache of the operating system. `OSError` if that is impossible."""

    def __init__(self, path: Path, flags: int) -> None:
        self._buffers = threading.local()
        self._file = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return the bytes at an offset, fewer at the end of the file."""
        if not size_bytes:
            return b""
        begin = offset // _BLOCK_BYTES * _BLOCK_BYTES
        buffer = self._buffer(-(-(offset + size_bytes) // _BLOCK_BYTES) * _BLOCK_BYTES - begin)
        got = os.preadv(self._file, [buffer], begin)
        return bytes(buffer[offset - begin : min(got, offset - begin + size_bytes)])

    def write(self, content: bytes, offset: int) -> None:
        """Write whole blocks."""
        buffer = self._buffer(len(content))
        buffer[:] = content
        if os.pwritev(self._file, [buffer], offset) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # only a full disk takes a part

    def sync(self) -> None:
        os.fdatasync(self._file)

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)

    def _buffer(self, size_bytes: int) -> memoryview:
        """Return an aligned buffer of the calling thread."""
        held: mmap.mmap | None = getattr(self._buffers, "held", None)
        if held is None or len(held) < size_bytes:
            held = self._buffers.held = mmap.mmap(-1, size_bytes)
        return memoryview(held)[:size_bytes]
