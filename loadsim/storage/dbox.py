"""The stores `sdbox` and `mdbox`: a file for each message, or files that many messages share, with a map of them."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from loadsim.storage.file_store import FileStore, LogRecord, Place, records
from loadsim.storage.messages import MAILBOX_BITS
from loadsim.storage.page_cache import opened
from loadsim.storage.store import Io, StoreSettings

INDEX, MAP = "dovecot.index.log", "dovecot.map.index.log"

HEADER = struct.Struct("<2sQQ12x")  # in front of each message: a mark, its key and its size; 30 bytes, as Dovecot's
MARK = b"\x01\x02"
TRAILER = b"\n\x01\x03\n".ljust(63, b"\0")

ROTATE_BYTES = 10 << 20  # a file of messages that has this size takes no more: the default of `mdbox_rotate_size`
PURGED_SHARE = 0.5  # a file of which a larger part has been deleted is written again, as by `doveadm purge`


class DboxStore(FileStore):
    """The parts of both: an index log for each mailbox, and messages between header and trailer."""

    head_bytes, tail_bytes = HEADER.size, len(TRAILER)

    def mailbox(self, number: int) -> Path:
        return self.settings.directory / "mailboxes" / f"{number:06}" / "dbox-Mails"

    def index(self, key: int, kind: int, *, durable: bool) -> None:
        """Record an insertion (0), a change of flags (1) or a deletion (2)."""
        path = self.mailbox(key >> MAILBOX_BITS) / INDEX
        self.append(path, LogRecord(key, kind, 0), durable=durable)

    def write_content(self, file: int, content: bytes, durable: bool) -> None:
        """Write a framed message at the file's position; its head is written once more, as its size was not known."""
        began_ns, begin = time.perf_counter_ns(), os.lseek(file, 0, os.SEEK_CUR)
        self.write_pieces(file, content)
        os.pwrite(file, content[: HEADER.size], begin)
        self.wait(file, Io.WRITE, began_ns, len(content), durable)

    def framed(self, key: int, message: bytes) -> bytes:
        return HEADER.pack(MARK, key, len(message)) + message + TRAILER

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Change a flag: it is in the index only."""
        self.index(key, 1, durable=False)


class Sdbox(DboxStore):
    record_bytes: Mapping[str, int] = {INDEX: 72}

    def _file(self, key: int) -> Path:
        return self.mailbox(key >> MAILBOX_BITS) / f"u.{key:x}"

    def place(self, key: int) -> Place | None:
        path = self._file(key)
        return Place(path) if os.access(path, os.F_OK) else None

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.mailboxes():
            yield from numbered(mailbox.glob("u.*"), 16)

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        path = self._file(key)
        temporary = path.with_name(f".temp.{key:x}")
        with opened(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
            self.write_content(file, self.framed(key, message), durable)
        temporary.rename(path)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync(path.parent)
        self.keep(key, Place(path), len(message))

    def delete(self, key: int, *, durable: bool) -> None:
        self.index(key, 2, durable=durable)
        self.warm.remove(key)
        self._file(key).unlink()


def numbered(paths: Iterable[Path], base: int = 10) -> list[int]:
    """Return the numbers at the end of names, sorted; a file of others has none."""
    numbers = []
    for path in paths:
        with suppress(ValueError):
            numbers.append(int(path.name[2:], base))
    return sorted(numbers)


class Mdbox(DboxStore):
    """Files `m.N` of many messages. The map says where each one is; it is in memory, about 200 bytes for each."""

    record_bytes: Mapping[str, int] = {INDEX: 176, MAP: 124}

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self._files = settings.directory / "storage"
        self._files.mkdir(exist_ok=True)
        self._changing = threading.Lock()
        self._places: dict[int, Place] = {}
        self._dead_bytes: Counter[Path] = Counter()
        for record in filter(None, records(self._files / MAP, self.record_bytes[MAP])):
            self._apply(record)
        self._number = max(numbered(self._files.glob("m.*")), default=0) + 1

    def rotate(self, path: Path) -> None:
        if path.name != MAP:  # which is needed whole
            super().rotate(path)

    def _apply(self, record: LogRecord) -> None:
        """Change the map: a record has the number of the file and the offset, -1 for a deleted message."""
        old = self._places.pop(record.key, None)
        if old and old.size:
            self._dead_bytes[old.path] += old.size
        if record.first >= 0:
            offset, size = record.second >> 32, record.second & 0xFFFFFFFF
            self._places[record.key] = Place(self._files / f"m.{record.first}", offset, size)

    def _map(self, key: int, number: int, offset: int, size: int, *, durable: bool) -> None:
        record = LogRecord(key, number, offset << 32 | size)
        self.append(self._files / MAP, record, durable=durable)
        self._apply(record)

    def place(self, key: int) -> Place | None:
        return self._places.get(key)

    def stored_keys(self) -> Iterator[int]:
        yield from sorted(self._places)

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        content = self.framed(key, message)
        with self._changing:  # Dovecot, too, holds the lock of the map while it syncs the message
            number, offset = self._written(content, durable)
            self._map(key, number, offset, len(content), durable=durable)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync(self.mailbox(key >> MAILBOX_BITS))
        self.keep(key, self._places[key], len(content))

    def _written(self, content: bytes, durable: bool) -> tuple[int, int]:
        """Append a framed message to the present file; return the file's number, and the offset."""
        number = self._number
        with opened(self._files / f"m.{number}", os.O_RDWR | os.O_CREAT) as file:
            begin = os.lseek(file, 0, os.SEEK_END)
            self.write_content(file, content, durable)
            if os.fstat(file).st_size >= ROTATE_BYTES:
                self._number += 1
        if durable and not begin:
            self.sync(self._files)
        return number, begin

    def delete(self, key: int, *, durable: bool) -> None:
        self.index(key, 2, durable=False)
        with self._changing:
            self._map(key, -1, 0, 0, durable=durable)
        self.index(key, 2, durable=durable)
        self.warm.remove(key)

    def settle(self) -> None:
        """Purge one file of which the most has been deleted."""
        with self._changing:
            full = [path for path, dead in self._dead_bytes.items() if dead > PURGED_SHARE * ROTATE_BYTES]
        if full:
            self._purge(full[0])

    def _purge(self, path: Path) -> None:
        """Write the messages of a file again: other threads wait for none of the syncs. Then remove the file."""
        with self._changing:
            if path.name == f"m.{self._number}":
                self._number += 1
            keys = [key for key, place in self._places.items() if place.path == path]
        moved: list[tuple[int, int, int, int]] = []
        for key in keys:
            with self._changing:
                if content := self.content(key):
                    moved.append((key, *self._written(content, durable=False), len(content)))
        for number in {number for _, number, _, _ in moved}:
            self.sync(self._files / f"m.{number}")
        self.sync(self._files)
        with self._changing:  # the map points to what is on the device
            for key, number, offset, size in moved:
                if key in self._places:
                    self._map(key, number, offset, size, durable=False)
        self.sync(self._files / MAP)
        path.unlink(missing_ok=True)  # the map is of all times
        with self._changing:
            del self._dead_bytes[path]

    def logs(self) -> Iterator[Path]:
        yield from super().logs()
        if (path := self._files / MAP).exists():
            yield path
