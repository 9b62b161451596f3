"""A virtual file system for SQLite that times its I/O, and reads and writes pages with `O_DIRECT` and checksums.

The last eight bytes of each page are its checksum. Pages have a cache of their own; the log goes through the page
cache. The locks are those of SQLite's own file system.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from functools import cached_property
from pathlib import Path

import apsw

from loadsim.storage.page_cache import DirectFile, RecentlyUsed, write
from loadsim.storage.store import STRIDE_BYTES, Damaged, Io, IoTimes

PAGE_BYTES = 32 * 1024  # as in Exchange 2010 and later
LOCK_BYTE_OFFSET = 1 << 30  # SQLite's file format, section 1.4: the page with this byte is never used
CHECKSUM_BYTES = 8


def sealed(page: bytes, offset: int) -> bytes:
    """Return a page with the checksum of its content and place in its last bytes, which SQLite leaves free."""
    content = page[:-CHECKSUM_BYTES]
    return content + zlib.crc32(content, offset // PAGE_BYTES + 1).to_bytes(CHECKSUM_BYTES, "little")


def is_sound(page: bytes, offset: int) -> bool:
    """Return True if a page's checksum is right for its content and place, or the page is the one never written."""
    return offset == LOCK_BYTE_OFFSET or (len(page) == PAGE_BYTES and sealed(page, offset) == page)


class Pages:
    """The pages of one database: the file and the cache."""

    def __init__(self, path: Path, io: IoTimes, cache_bytes: int) -> None:
        self.file = DirectFile(path, os.O_RDWR | os.O_CREAT)
        self.cache = RecentlyUsed[bytes](max(PAGE_BYTES, cache_bytes))
        self.writing = threading.Lock()  # held while a page is written
        self._io = io
        self._name = path.name

    def read(self, size_bytes: int, offset: int) -> bytes:
        """Return bytes of one page, which is read and verified whole: SQLite asks for parts of long contents."""
        begin = offset // PAGE_BYTES * PAGE_BYTES
        page = self.cache.get(begin)
        if page is None:
            began_ns = time.perf_counter_ns()
            page = self.file.read(PAGE_BYTES, begin)
            if page:  # otherwise it is beyond the end, and the device read nothing
                self._io.add(Io.READ, began_ns, len(page))
                if not is_sound(page, begin):
                    raise Damaged(f"{self._name}: page {begin // PAGE_BYTES + 1}")
                self.cache.put(begin, page, len(page))
        return page[offset - begin : offset - begin + size_bytes]

    def write(self, page: bytes, offset: int) -> None:
        page = sealed(page, offset)
        with self.writing:
            began_ns = time.perf_counter_ns()
            self.file.write(page, offset)
            self._io.add(Io.WRITE, began_ns, len(page))
        self.cache.put(offset, page, len(page))

    def sync(self) -> None:
        began_ns = time.perf_counter_ns()
        self.file.sync()
        self._io.add(Io.SYNC, began_ns, 0)


class Log:
    """The write-ahead log of one database. Threads that wait for the device at the same time share a sync."""

    def __init__(self, path: Path, io: IoTimes) -> None:
        self.path = path
        self._io = io
        self._lock = threading.Lock()
        self.written_bytes = 0  # by this process
        self._synced_bytes = 0
        self._writing_ns = 0  # the time of the writes since the last sync

    @cached_property
    def _file(self) -> int:
        """The file that SQLite created, opened again here: SQLite's own calls would hold the interpreter lock."""
        return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def read(self, size_bytes: int, offset: int) -> bytes:
        return os.pread(self._file, size_bytes, offset)

    def write(self, content: bytes, offset: int) -> None:
        if not self.written_bytes:  # otherwise writing part of a block would wait for the device to read the block
            for begin in range(0, os.fstat(self._file).st_size, STRIDE_BYTES):
                self.read(STRIDE_BYTES, begin)
        began_ns = time.perf_counter_ns()
        write(self._file, content, offset)
        self.written_bytes += len(content)
        self._writing_ns += time.perf_counter_ns() - began_ns

    def sync(self, kind: Io = Io.SYNC) -> None:
        """Wait until the device has everything written before the call.

        SQLite itself syncs before it writes pages, and, holding the write lock, when the log restarts. No durable
        change waits for these syncs, so they do not count as log writes.
        """
        wanted = self.written_bytes
        with self._lock:
            if self._synced_bytes >= wanted:
                return
            now, writing_ns = self.written_bytes, self._writing_ns
            began_ns = time.perf_counter_ns() - writing_ns
            os.fdatasync(self._file)
            self._io.add(kind, began_ns, now - self._synced_bytes)
            self._synced_bytes = now
            self._writing_ns -= writing_ns

    def close(self) -> None:
        os.close(self._file)


class _TimedFile(apsw.VFSFile):
    """A connection's database file or log, with SQLite's locks and the content of `Pages` or `Log`."""

    def __init__(self, content: Pages | Log, name: apsw.URIFilename | str | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._content = content

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name, like those below
        return self._content.read(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._content.write(bytes(data), offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._content.sync()


class TimedFiles(apsw.VFS):
    """The file system of one database and all its connections."""

    def __init__(self, name: str, pages: Pages, log: Log) -> None:
        self.name = name
        self._pages, self._log = pages, log
        super().__init__(name, "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            return _TimedFile(self._pages, name, flags)
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            return _TimedFile(self._log, name, flags)
        return apsw.VFSFile("", name, flags)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802
        """Sleep without the interpreter lock, which SQLite's own sleep would hold."""
        time.sleep(microseconds / 1e6)
        return microseconds
