"""The common parts of stores of files: a page cache of a stated size, logs of records, and the reading of messages.

The operations are those of Dovecot 2.3 with `mail_fsync=optimized`, traced with strace; `docs/reference/storage.md` has
them. A lazy change is one without its syncs. Replacing a message is changing its flags: IMAP has no other change.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import NamedTuple

from loadsim.storage.messages import MAILBOX_BITS, version_of
from loadsim.storage.page_cache import DirectFile, RecentlyUsed, absent_bytes, drop, is_there, opened, write
from loadsim.storage.store import STRIDE_BYTES, Checked, Io, IoTimes, Store, StoreSettings

LOG_ROTATE_BYTES = 1 << 20  # a log of a mailbox that has this size is renamed, as by `mail_index_log_rotate_max_size`
INDEX = "dovecot.index.log"  # the log of each mailbox


class Place(NamedTuple):
    """Where a message is. `size` is None for all of the file."""

    path: Path
    offset: int = 0
    size: int | None = None


_RECORD = struct.Struct("<IQqq")  # checksum, key, and two numbers


class LogRecord(NamedTuple):
    """A record of a log: what it says of a message depends on the log."""

    key: int
    first: int
    second: int

    def packed(self, size_bytes: int) -> bytes:
        """Return the record with its checksum, as long as Dovecot's."""
        content = _RECORD.pack(0, *self)[4:].ljust(size_bytes - 4, b"\0")
        return zlib.crc32(content).to_bytes(4, "little") + content


def records(path: Path, size_bytes: int) -> Iterator[LogRecord | None]:
    """Yield the whole records of a log, read from the device; None for one with a wrong checksum."""
    with suppress(FileNotFoundError), closing(DirectFile(path, os.O_RDONLY)) as file:
        content = file.read(file.size(), 0)
        for begin in range(0, len(content) - size_bytes + 1, size_bytes):
            checksum, *fields = _RECORD.unpack_from(content, begin)
            sound = zlib.crc32(content[begin + 4 : begin + size_bytes]) == checksum
            yield LogRecord(*fields) if sound else None


def numbered(directory: Path, prefix: str = "", base: int = 16) -> list[int]:
    """Return the numbers of files, which their names have after a prefix, sorted; a file of others has none."""
    numbers = []
    for path in directory.iterdir():  # a glob leaves out what cannot be read
        with suppress(ValueError):
            numbers += [int(path.name[len(prefix) :].partition(":")[0], base)] if path.name.startswith(prefix) else []
    return sorted(numbers)


class FileStore(Store, ABC):
    """A store whose messages are in files, each between a head and a tail."""

    transactional = False

    layout: str  # the directory of a mailbox by its number
    folders: Sequence[str] = ("",)  # the directories of a mailbox
    record_bytes: Mapping[str, int]  # the logs by name, and the bytes of a record of each: those of Dovecot
    head_bytes = tail_bytes = 0

    def __init__(self, settings: StoreSettings) -> None:
        self.io = IoTimes()
        self.settings = settings
        self.warm = RecentlyUsed[Place](settings.cache_bytes)  # the messages that the page cache of the system may keep
        self._unread: Iterator[int] = iter(())
        self.directories = [self.mailbox(number << MAILBOX_BITS) for number in range(settings.mailboxes)]
        for mailbox, folder in product(self.directories, self.folders):
            (mailbox / folder).mkdir(parents=True, exist_ok=True)

    # --- of each kind of store ---

    @abstractmethod
    def place(self, key: int) -> Place | None:
        """Return where a message is, None if it is nowhere."""

    def framed(self, key: int, message: bytes) -> bytes:
        """Return a message between its head and its tail."""
        return message

    def settle(self) -> None:
        return

    # --- of all ---

    def mailbox(self, key: int) -> Path:
        """Return the directory of the mailbox of a message."""
        return self.settings.directory / self.layout.format(key >> MAILBOX_BITS)

    def logs(self) -> Iterator[Path]:
        for directory, name in product(self.directories, self.record_bytes):
            if is_there(directory / name):
                yield directory / name

    @property
    def warm_share(self) -> float:
        return self.warm.filled_share

    def read(self, key: int) -> bytes | None:
        content = self.content(key)
        if content is not None and (place := self.place(key)):
            self.keep(key, place, len(content))
        return None if content is None else self._message(content)

    def _message(self, content: bytes) -> bytes:
        return content[self.head_bytes : len(content) - self.tail_bytes]

    def keep(self, key: int, place: Place, size_bytes: int) -> None:
        """Keep a message in the page cache, and drop those that exceed its size."""
        for each in self.warm.put(key, place, size_bytes):
            drop(each.path, each.offset, each.size or 0)

    def content(self, key: int) -> bytes | None:
        """Return a message with its frame; what comes from the device is timed."""
        for _ in range(2):  # a purge may have moved it
            place = self.place(key)
            if place is None:
                return None
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
        """Write to a file, which may be new. Return the offset of the end of what was written.

        A durable write waits for the device, and counts: one that stays in memory is none.
        """
        with opened(path, os.O_WRONLY | os.O_CREAT | flags) as file:
            began_ns = time.perf_counter_ns()
            write(file, content)
            if durable:
                os.fdatasync(file)
                self.io.add(kind, began_ns, len(content))
            return os.lseek(file, 0, os.SEEK_CUR)

    def create(self, path: Path, temporary: Path, content: bytes, durable: bool) -> None:
        """Write the file of a framed message under another name, and rename it."""
        self.write(temporary, os.O_TRUNC, content, Io.WRITE, durable)  # a killed process leaves some
        temporary.rename(path)

    def index(self, key: int, kind: int, *, durable: bool) -> None:
        """Record an insertion (0), a change of flags (1) or a deletion (2)."""
        self.append(self.mailbox(key) / INDEX, LogRecord(key, kind, 0), durable=durable)

    def append(self, path: Path, record: LogRecord, *, durable: bool) -> None:
        packed = record.packed(self.record_bytes[path.name])
        if self.write(path, os.O_APPEND, packed, Io.LOG_WRITE, durable) > LOG_ROTATE_BYTES:
            self.rotate(path)

    def rotate(self, path: Path) -> None:
        with suppress(FileNotFoundError):  # another thread has just done it
            path.replace(path.with_name(f"{path.name}.2"))

    def sync(self, path: Path) -> None:
        with opened(path, os.O_RDONLY) as file:
            began_ns = time.perf_counter_ns()
            os.fdatasync(file)
            self.io.add(Io.SYNC, began_ns, 0)

    def maintain(self) -> Checked:
        """Read the next messages, about 256 KB, and verify them. After the last one, begin again."""
        size_bytes = 0
        for key in self._unread:
            checked = self._check(key)
            size_bytes += checked.bytes
            if checked.damaged or size_bytes >= STRIDE_BYTES:
                return Checked(size_bytes, checked.damaged)
        self._unread = self.stored_keys()
        return Checked(size_bytes)

    def _check(self, key: int) -> Checked:
        """Read a message from the device, past the page cache, with its frame."""
        place, content = self.place(key), b""
        if place:
            with suppress(FileNotFoundError), closing(DirectFile(place.path, os.O_RDONLY)) as file:
                began_ns = time.perf_counter_ns()
                content = file.read(file.size() if place.size is None else place.size, place.offset)
                self.io.add(Io.MAINTENANCE, began_ns, len(content))
        if place is None or place != self.place(key):  # it was deleted, changed or moved meanwhile
            return Checked(0)
        message = self._message(content)
        sound = version_of(key, message) is not None and self.framed(key, message) == content
        return Checked(len(content), "" if sound else f"message {key:x}")

    def check(self) -> Iterator[Checked]:
        yield from map(self._check, self.stored_keys())
        for path in self.logs():
            size_bytes = self.record_bytes[path.name]
            for number, record in enumerate(records(path, size_bytes), 1):
                yield Checked(size_bytes, "" if record else f"{path.parent.name}/{path.name}: record {number}")

    def log_sizes(self) -> Mapping[str, int]:
        return {str(path.relative_to(self.settings.directory)): path.stat().st_size for path in self.logs()}

    def recover(self) -> int:
        """Cut the part of a record that a killed process left at the end of a log, and read all logs."""
        sizes = [(self.record_bytes[path.name], path) for path in self.logs()]
        for size, path in sizes:
            os.truncate(path, path.stat().st_size // size * size)
        return sum(size for size, path in sizes for _ in records(path, size))

    def close(self) -> None:
        """Write everything, and drop it from the page cache."""
        os.sync()
        for place in filter(None, map(self.place, self.stored_keys())):
            drop(place.path, place.offset, place.size or 0)
