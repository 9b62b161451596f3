"""Direct I/O that bypasses the system's page cache, control of that cache, and a cache of a stated size."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

V = TypeVar("V")

BLOCK_BYTES = 4096
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        yield file
    finally:
        os.close(file)


def write(file: int, content: bytes | memoryview, offset: int | None = None) -> None:
    """Write at an offset, or at the file's position."""
    if (os.write(file, content) if offset is None else os.pwrite(file, content, offset)) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # only a full disk causes a partial write


def replace_durably(path: Path, content: bytes) -> None:
    """Replace a file so that a power failure leaves either the old or the new content."""
    with (new := path.with_name("new")).open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    with opened(path, os.O_RDONLY) as directory:
        os.fsync(directory)


def drop(path: Path, offset: int = 0, size_bytes: int = 0, *, written: bool = False) -> None:
    """Drop a part of a file, or all of it, from the page cache; with `written`, write dirty pages first."""
    with suppress(FileNotFoundError), opened(path, os.O_RDONLY) as file:
        if written:
            os.fdatasync(file)
        os.posix_fadvise(file, offset, size_bytes, os.POSIX_FADV_DONTNEED)


def absent_bytes(file: int, offset: int, size_bytes: int) -> int:
    """Return how many bytes of a part of a file are missing from the page cache, in whole pages.

    This starts no read. `RWF_NOWAIT` does, and finds the page if the device is quick enough.
    """
    begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
    pages = (ctypes.c_ubyte * -(-(offset + size_bytes - begin) // mmap.PAGESIZE))()
    if not pages:
        return 0
    length = ctypes.c_size_t(len(pages) * mmap.PAGESIZE)
    mapped = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_PRIVATE, file, ctypes.c_long(begin))
    if mapped == ctypes.c_void_p(-1).value:
        raise OSError(error := ctypes.get_errno(), os.strerror(error))
    try:
        if _libc.mincore(ctypes.c_void_p(mapped), length, pages) != 0:
            raise OSError(error := ctypes.get_errno(), os.strerror(error))
    finally:
        _libc.munmap(ctypes.c_void_p(mapped), length)
    return min(size_bytes, sum(not page & 1 for page in pages) * mmap.PAGESIZE)


class DirectFile:
    """A file read and written without the page cache. Raises `OSError` if the file system does not allow that."""

    def __init__(self, path: Path, flags: int) -> None:
        self._buffers = threading.local()
        self._file = os.open(path, flags | os.O_DIRECT | os.O_CLOEXEC, 0o600)

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return the bytes at an offset, fewer at the end of the file."""
        if not size_bytes:
            return b""
        begin = offset // BLOCK_BYTES * BLOCK_BYTES
        buffer = self._buffer(-(-(offset + size_bytes) // BLOCK_BYTES) * BLOCK_BYTES - begin)
        got = os.preadv(self._file, [buffer], begin)
        return bytes(buffer[offset - begin : min(got, offset - begin + size_bytes)])

    def write(self, content: bytes, offset: int) -> None:
        buffer = self._buffer(len(content))
        buffer[:] = content
        write(self._file, buffer, offset)

    def sync(self) -> None:
        os.fdatasync(self._file)

    def size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)

    def _buffer(self, size_bytes: int) -> memoryview:
        """Return the calling thread's aligned buffer."""
        buffer: mmap.mmap | None = getattr(self._buffers, "buffer", None)
        if buffer is None or len(buffer) < size_bytes:
            buffer = self._buffers.buffer = mmap.mmap(-1, size_bytes)
        return memoryview(buffer)[:size_bytes]


class RecentlyUsed(Generic[V]):
    """A cache of values by key, each with a size, that drops the least recently used. Threads may share it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._values: OrderedDict[int, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.RLock()

    def get(self, key: int) -> V | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: int, value: V, size_bytes: int) -> list[V]:
        """Add a value; return those that it displaces."""
        displaced: list[V] = []
        with self._lock:
            self.remove(key)
            self._values[key] = value, size_bytes
            self._bytes += size_bytes
            while self._bytes > self._most_bytes:
                _, (old, old_bytes) = self._values.popitem(last=False)
                self._bytes -= old_bytes
                displaced.append(old)
        return displaced

    def remove(self, key: int) -> None:
        with self._lock:
            self._bytes -= self._values.pop(key, (None, 0))[1]

    @property
    def filled_share(self) -> float:
        """The filled share; 1 if there is no room for another value of the mean size."""
        with self._lock:
            return min(1.0, self._bytes * (1 + 1 / max(1, len(self._values))) / self._most_bytes)
