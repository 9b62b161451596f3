"""Stores of files: a page cache of a stated size, timed operations, logs of records, and verified reads.

The operations are those of Dovecot 2.3 with `mail_fsync=optimized`, traced with strace (`docs/reference/storage.md`). A
lazy change makes no syncs. Replacing a message only changes its flags, as in IMAP.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple, Protocol

from loadsim.files import mode_at
from loadsim.storage.messages import MAILBOX_BITS, version_of
from loadsim.storage.page_cache import DirectFile, RecentlyUsed, absent_bytes, drop, opened, write
from loadsim.storage.store import STRIDE_BYTES, Checked, Io, IoTimes, StoreSettings

LOG_ROTATE_BYTES = 1 << 20  # a mailbox's log of this size is renamed, as by `mail_index_log_rotate_max_size`
INDEX = "dovecot.index.log"  # the log of each mailbox


class StoredPlace(NamedTuple):
    """A message's place. `size` is None for the whole file."""

    path: Path
    offset: int = 0
    size: int | None = None


class Frame(NamedTuple):
    """The bytes around each message, if any: a header with a mark, the key and the size, then a trailer."""

    mark: bytes = b""
    trailer: bytes = b""

    def around(self, key: int, message: bytes) -> bytes:
        header = _HEADER.pack(self.mark, key, len(message)) if self.mark else b""
        return header + message + self.trailer

    def within(self, content: bytes) -> bytes:
        """Return the message in framed bytes."""
        return content[_HEADER.size if self.mark else 0 : len(content) - len(self.trailer)]


_HEADER = struct.Struct("<2sQQ12x")  # 30 bytes, as Dovecot's
_RECORD = struct.Struct("<IQqq")  # the checksum, the key, and two numbers


class LogRecord(NamedTuple):
    """A log record. What the two numbers mean depends on the log."""

    key: int
    first: int
    second: int

    def packed(self, size_bytes: int) -> bytes:
        """Return the record with its checksum, as long as one of Dovecot's."""
        content = _RECORD.pack(0, *self)[4:].ljust(size_bytes - 4, b"\0")
        return zlib.crc32(content).to_bytes(4, "little") + content


def records(path: Path, size_bytes: int) -> Iterator[LogRecord | None]:
    """Yield a log's whole records, read from the device; None for each with a wrong checksum."""
    with suppress(FileNotFoundError), closing(DirectFile(path, os.O_RDONLY)) as file:
        content = file.read(file.size(), 0)
        for begin in range(0, len(content) - size_bytes + 1, size_bytes):
            checksum, *fields = _RECORD.unpack_from(content, begin)
            sound = zlib.crc32(content[begin + 4 : begin + size_bytes]) == checksum
            yield LogRecord(*fields) if sound else None


def numbered(directory: Path, prefix: str = "", base: int = 16) -> list[int]:
    """Return, sorted, the numbers that follow this prefix in file names; skip other files."""
    numbers = []
    for path in directory.iterdir():  # `glob` would skip unreadable directories
        with suppress(ValueError):
            numbers += [int(path.name[len(prefix) :].partition(":")[0], base)] if path.name.startswith(prefix) else []
    return sorted(numbers)


class MailFiles:
    """The directories, logs and timed operations of one store of files."""

    def __init__(
        self, settings: StoreSettings, mailbox: str, record_bytes: Mapping[str, int], folders: Sequence[str] = ("",)
    ) -> None:
        """`mailbox` formats a mailbox's directory from its number. `record_bytes` has each log's record size."""
        self.io = IoTimes()
        self.settings = settings
        self.record_bytes = record_bytes
        self._mailbox = mailbox
        self.directories = [self.mailbox(number << MAILBOX_BITS) for number in range(settings.mailboxes)]
        for directory, folder in product(self.directories, folders):
            (directory / folder).mkdir(parents=True, exist_ok=True)

    def mailbox(self, key: int) -> Path:
        """Return the directory of a message's mailbox."""
        return self.settings.directory / self._mailbox.format(key >> MAILBOX_BITS)

    def logs(self) -> Iterator[Path]:
        paths = (directory / name for directory, name in product(self.directories, self.record_bytes))
        return filter(mode_at, paths)

    def read(self, place: StoredPlace) -> bytes | None:
        """Return the bytes at a place; None if the file is missing. Reads from the device are timed."""
        with suppress(FileNotFoundError), opened(place.path, os.O_RDONLY) as file:
            size = os.fstat(file).st_size if place.size is None else place.size
            os.posix_fadvise(file, place.offset, size, os.POSIX_FADV_RANDOM)
            absent = absent_bytes(file, place.offset, size)
            content, got = bytearray(size), 0
            view, began_ns = memoryview(content), time.perf_counter_ns()
            while got < size and (more := os.preadv(file, [view[got:]], place.offset + got)):
                got += more
            if absent:
                self.io.add(Io.READ, began_ns, absent)
            return bytes(content)
        return None

    def write(self, path: Path, flags: int, content: bytes, kind: Io, durable: bool) -> int:
        """Write to a file, which may be new, and return the offset after the last byte written.

        A durable write waits for the device, and is timed.
        """
        with opened(path, os.O_WRONLY | os.O_CREAT | flags) as file:
            began_ns = time.perf_counter_ns()
            write(file, content)
            if durable:
                os.fdatasync(file)
                self.io.add(kind, began_ns, len(content))
            return os.lseek(file, 0, os.SEEK_CUR)

    def index(self, key: int, kind: int, *, durable: bool) -> None:
        """Record an insertion (0), a change of flags (1) or a deletion (2)."""
        self.append(self.mailbox(key) / INDEX, LogRecord(key, kind, 0), durable=durable)

    def append(self, path: Path, record: LogRecord, *, durable: bool, rotated: bool = True) -> None:
        packed = record.packed(self.record_bytes[path.name])
        if self.write(path, os.O_APPEND, packed, Io.LOG_WRITE, durable) > LOG_ROTATE_BYTES and rotated:
            self.rotate(path)

    def rotate(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # another thread has just rotated it
            path.replace(path.with_name(f"{path.name}.2"))

    def sync(self, path: Path) -> None:
        with opened(path, os.O_RDONLY) as file:
            began_ns = time.perf_counter_ns()
            os.fdatasync(file)
            self.io.add(Io.SYNC, began_ns, 0)


class FileLayout(Protocol):
    """The files of a mail server's mailboxes, and its operations on them."""

    files: MailFiles
    frame: Frame

    def place(self, key: int) -> StoredPlace | None:
        """Return the place of a message; None if it is missing."""

    def stored_keys(self) -> Iterator[int]: ...

    def insert(self, key: int, content: bytes, *, durable: bool) -> StoredPlace:
        """Store a framed message, and return its place."""

    def change_flag(self, key: int) -> None: ...

    def delete(self, key: int, *, durable: bool) -> None: ...

    def settle(self) -> None:
        """Do background work."""


class FileStore:
    """A store of files in a given layout."""

    transactional = False

    def __init__(self, layout: FileLayout) -> None:
        self.layout, self.files, self.io = layout, layout.files, layout.files.io
        self.settle, self.stored_keys = layout.settle, layout.stored_keys
        self._warm = RecentlyUsed[StoredPlace](self.files.settings.cache_bytes)  # what the page cache may keep
        self._unread: Iterator[int] = iter(())

    @property
    def warm_share(self) -> float:
        return self._warm.filled_share

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        content = self.layout.frame.around(key, message)
        self._keep(key, self.layout.insert(key, content, durable=durable), len(content))

    def read(self, key: int) -> bytes | None:
        for _ in range(2):  # a purge may have moved it
            if (place := self.layout.place(key)) is None:
                return None
            if (content := self.files.read(place)) is not None:
                self._keep(key, place, len(content))
                return self.layout.frame.within(content)
        return None

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        self.layout.change_flag(key)

    def delete(self, key: int, *, durable: bool) -> None:
        self._warm.remove(key)
        self.layout.delete(key, durable=durable)

    def _keep(self, key: int, place: StoredPlace, size_bytes: int) -> None:
        """Keep a message in the page cache, and drop the least recently used ones beyond its size."""
        for old in self._warm.put(key, place, size_bytes):
            drop(old.path, old.offset, old.size or 0)

    def maintain(self) -> Checked:
        """Read and verify the next messages, about 256 KB; after the last one, begin again."""
        size_bytes = 0
        for key in self._unread:
            checked = self._check(key)
            size_bytes += checked.bytes
            if checked.damaged or size_bytes >= STRIDE_BYTES:
                return Checked(size_bytes, checked.damaged)
        self._unread = self.stored_keys()
        return Checked(size_bytes)

    def _check(self, key: int) -> Checked:
        """Read a message and its frame from the device, bypassing the page cache."""
        place, content = self.layout.place(key), b""
        if place:
            with suppress(FileNotFoundError), closing(DirectFile(place.path, os.O_RDONLY)) as file:
                began_ns = time.perf_counter_ns()
                content = file.read(file.size() if place.size is None else place.size, place.offset)
                self.io.add(Io.MAINTENANCE, began_ns, len(content))
        if place is None or place != self.layout.place(key):  # deleted, changed or moved during the read
            return Checked(0)
        message = self.layout.frame.within(content)
        sound = version_of(key, message) is not None and self.layout.frame.around(key, message) == content
        return Checked(len(content), "" if sound else f"message {key:x}")

    def check(self) -> Iterator[Checked]:
        yield from map(self._check, self.stored_keys())
        for path in self.files.logs():
            size_bytes = self.files.record_bytes[path.name]
            for number, record in enumerate(records(path, size_bytes), 1):
                yield Checked(size_bytes, "" if record else f"{path.parent.name}/{path.name}: record {number}")

    def log_sizes(self) -> Mapping[str, int]:
        top = self.files.settings.directory
        return {str(path.relative_to(top)): path.stat().st_size for path in self.files.logs()}

    def recover(self) -> int:
        """Cut off the partial record that a killed process left at the end of a log, and read all logs."""
        sizes = [(self.files.record_bytes[path.name], path) for path in self.files.logs()]
        for size, path in sizes:
            os.truncate(path, path.stat().st_size // size * size)
        return sum(size for size, path in sizes for _ in records(path, size))

    def close(self) -> None:
        """Write everything, and drop it from the page cache."""
        os.sync()
        for place in filter(None, map(self.layout.place, self.stored_keys())):
            drop(place.path, place.offset, place.size or 0)
