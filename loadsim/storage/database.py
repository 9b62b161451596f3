"""The `database` store: a table of messages in SQLite with a write-ahead log, like a mail server's database engine."""

from __future__ import annotations

import errno
import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import apsw

from loadsim.findings.formats import count
from loadsim.storage.messages import MAILBOX_BITS
from loadsim.storage.page_cache import DirectFile, drop
from loadsim.storage.pages import CHECKSUM_BYTES, PAGE_BYTES, Log, Pages, TimedFiles, is_sound
from loadsim.storage.store import STRIDE_BYTES, Checked, Damaged, Io, IoTimes, StoreSettings

FILE_NAME = "mail.db"

FRAME_HEADER_BYTES = 24  # before each page in the log: SQLite's file format, section 4.1
LONGEST_BUSY_MS = 1_000_000  # the longest wait for SQLite's locks: the disk is not at fault if they are held
_SERIAL = itertools.count()

_SCHEMA = """
CREATE TABLE message(key INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE mailbox(number INTEGER PRIMARY KEY, messages INTEGER NOT NULL);
"""
_COUNT = "INSERT INTO mailbox VALUES(?1, ?2) ON CONFLICT(number) DO UPDATE SET messages = messages + ?2"


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Raise `Damaged` for damage that SQLite finds, `OSError` for its other errors; those of our files pass through.

    SQLite itself only opens and locks files and shares memory; the disk is not at fault if that fails.
    """
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:  # pages missing from a cut file have no checksum
        raise Damaged(f"{FILE_NAME}: {error}") from None
    except apsw.Error as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:  # the shared memory is a file
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise OSError(f"{type(error).__name__}: {error}") from None


class DatabaseStore:
    """A database with a connection per thread. Changes take turns, as in every engine with one log."""

    transactional = True

    def __init__(self, settings: StoreSettings) -> None:
        self._path = settings.directory / FILE_NAME
        self._settings = settings
        self.io = IoTimes()
        self._writing = threading.Lock()
        self._pages = Pages(self._path, self.io, settings.cache_bytes)
        self._log = Log(self._path.with_name(FILE_NAME + "-wal"), self.io)
        drop(self._log.path, written=True)  # a recovery reads it from the device
        self._files = TimedFiles(f"loadsim-{os.getpid()}-{next(_SERIAL)}", self._pages, self._log)
        self._at, self._checkpointed_bytes = 0, 0
        self._local, self._connections = threading.local(), list[apsw.Connection]()
        with _as_os_errors():
            if self._own.execute("PRAGMA journal_mode").get != "wal":
                if not settings.new:
                    raise Damaged(f"{FILE_NAME}: no messages")
                self._own.reserve_bytes("main", CHECKSUM_BYTES)
                self._own.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                if self._own.execute("PRAGMA journal_mode = wal").get != "wal":  # the error itself is swallowed
                    raise OSError("SQLite: expected a log, found none")
                self._own.execute(_SCHEMA)

    @property
    def _own(self) -> apsw.Connection:
        """The calling thread's connection."""
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with _as_os_errors():
                connection = apsw.Connection(str(self._path), vfs=self._files.name)
                connection.set_busy_timeout(LONGEST_BUSY_MS)
                connection.wal_autocheckpoint(0)
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                # A commit only writes to the log; `Log.sync` waits for the device.
                connection.execute("PRAGMA synchronous = NORMAL")
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        self._change("INSERT INTO message VALUES(?, ?)", (key, message), key, 1, durable)

    @_as_os_errors()
    def read(self, key: int) -> bytes | None:
        row = self._own.execute("SELECT content FROM message WHERE key = ?", (key,)).get
        return None if row is None else bytes(row)

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        self._change("UPDATE message SET content = ? WHERE key = ?", (message, key), key, 0, durable)

    def delete(self, key: int, *, durable: bool) -> None:
        self._change("DELETE FROM message WHERE key = ?", (key,), key, -1, durable)

    def _change(self, statement: str, values: tuple[object, ...], key: int, messages: int, durable: bool) -> None:
        connection = self._own
        with self._writing, _as_os_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(statement, values)
                connection.execute(_COUNT, (key >> MAILBOX_BITS, messages))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        if durable:
            self._log.sync(Io.LOG_WRITE)

    @property
    def warm_share(self) -> float:
        return self._pages.cache.filled_share

    def settle(self) -> None:
        """Write changed pages when the log is full: most of them under load, the last ones between two changes."""
        if self._log.written_bytes - self._checkpointed_bytes < self._settings.log_bytes:
            return
        self._write_pages(apsw.SQLITE_CHECKPOINT_PASSIVE)
        for _ in range(self._settings.log_copies):
            self._copy_log()
        with self._writing:
            self._checkpointed_bytes = self._log.written_bytes
            self._write_pages(apsw.SQLITE_CHECKPOINT_RESTART)

    @_as_os_errors()
    def _write_pages(self, mode: int) -> int:
        """Write changed pages to the database; return the number of pages in the log."""
        return self._own.wal_checkpoint(mode=mode)[0]

    def _copy_log(self) -> None:
        """Read the log, as if to send it to another copy of the database."""
        with closing(DirectFile(self._log.path, os.O_RDONLY)) as file:
            written = min(file.size(), self._log.written_bytes - self._checkpointed_bytes)
            for offset in range(0, written, STRIDE_BYTES):
                began_ns = time.perf_counter_ns()
                self.io.add(Io.REPLICATION, began_ns, len(file.read(STRIDE_BYTES, offset)))

    def maintain(self) -> Checked:
        checked = self._stride(self._at, all_written=False)
        self._at = self._at + STRIDE_BYTES if checked.bytes else 0
        return checked

    def _stride(self, offset: int, *, all_written: bool = True) -> Checked:
        began_ns = time.perf_counter_ns()
        content = self._pages.file.read(STRIDE_BYTES, offset)
        self.io.add(Io.MAINTENANCE, began_ns, len(content))
        for begin in range(0, len(content), PAGE_BYTES):
            if not is_sound(content[begin : begin + PAGE_BYTES], offset + begin):
                with self._pages.writing:  # it may have been read while being written
                    page = self._pages.file.read(PAGE_BYTES, offset + begin)
                # A hole of zeros is a page that is only in the log: a checkpoint skips what a reader must not see.
                if not is_sound(page, offset + begin) and (all_written or any(page)):
                    return Checked(len(content), f"{FILE_NAME}: page {(offset + begin) // PAGE_BYTES + 1}")
        return Checked(len(content))

    def check(self) -> Iterator[Checked]:
        self._write_pages(apsw.SQLITE_CHECKPOINT_PASSIVE)  # otherwise pages would be read from the log
        # SQLite's file format, section 1.3.8: page 1 has the number of pages.
        size, stated = self._pages.file.size(), int.from_bytes(self._pages.file.read(32, 0)[28:32])
        if size < stated * PAGE_BYTES:
            yield Checked(0, f"{FILE_NAME}: {count(stated - size // PAGE_BYTES, 'page')} at its end")
        yield from map(self._stride, range(0, self._pages.file.size(), STRIDE_BYTES))

    def stored_keys(self) -> Iterator[int]:
        with _as_os_errors():
            for (key,) in self._own.execute("SELECT key FROM message ORDER BY key"):
                yield key

    def log_sizes(self) -> Mapping[str, int]:
        """Return the size up to the first frame with a wrong checksum: for SQLite, that ends the log."""
        frames = self._write_pages(apsw.SQLITE_CHECKPOINT_PASSIVE)
        return {self._log.path.name: frames * (PAGE_BYTES + FRAME_HEADER_BYTES)}

    def recover(self) -> int:
        (size_bytes,) = self.log_sizes().values()
        self._write_pages(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return size_bytes

    def close(self) -> None:
        self._write_pages(apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._log.sync()
        for connection in self._connections:
            connection.close()
        self._files.unregister()
        self._log.close()
        self._pages.file.close()
