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

from loadsim.storage.file_store import FileStore, LogRecord, Place, opened, records
from loadsim.storage.io_times import Io
from loadsim.storage.messages import MAILBOX_BITS
from loadsim.storage.store import StoreSettings

INDEX, MAP = "dovecot.index.log", "dovecot.map.index.log"

HEADER = struct.Struct("<2sQQ12x")
"""In front of each message: a mark, its key and its size; 30 bytes, as Dovecot's."""

MARK = b"\x01\x02"
TRAILER = b"\n\x01\x03\n".ljust(63, b"\0")

ROTATE_BYTES = 10 << 20
"""A file of messages that has this size takes no more: the default of `mdbox_rotate_size`."""

PURGED_SHARE = 0.5
"""A file of which a larger part has been deleted is written again, as by `doveadm purge`."""


class DboxStore(FileStore):
    """The parts of both: an index log for each mailbox, and messages between header and trailer."""

    def mailbox(self, number: int) -> Path:
        return self.settings.directory / "mailboxes" / f"{number:06}" / "dbox-Mails"

    def index(self, key: int, kind: int, *, durable: bool) -> None:
        """Record an insertion (0), a change of flags (1) or a deletion (2)."""
        path = self.mailbox(key >> MAILBOX_BITS) / INDEX
        self.append(path, LogRecord(key, kind, 0), durable=durable)

    def write_message(self, file: int, key: int, message: bytes, durable: bool) -> None:
        """Write a message at the file's position; its header is written last, when its size is known."""
        began_ns, begin = time.perf_counter_ns(), os.lseek(file, 0, os.SEEK_CUR)
        header = HEADER.pack(MARK, key, len(message))
        self.write_pieces(file, header + message + TRAILER)
        os.pwrite(file, header, begin)
        self.wait(file, Io.WRITE, began_ns, len(message) + HEADER.size + len(TRAILER), durable)

    def frame(self, key: int, size_bytes: int) -> tuple[bytes, bytes]:
        return HEADER.pack(MARK, key, size_bytes), TRAILER

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Change a flag: it is in the index only."""
        self.index(key, 1, durable=False)


class Sdbox(DboxStore):
    """A file for each message."""

    record_bytes: Mapping[str, int] = {INDEX: 72}

    def _file(self, key: int) -> Path:
        return self.mailbox(key >> MAILBOX_BITS) / f"u.{key:x}"

    def place(self, key: int) -> Place | None:
        try:
            size = self._file(key).stat().st_size
        except FileNotFoundError:
            return None
        return Place(self._file(key), HEADER.size, max(0, size - HEADER.size - len(TRAILER)))

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.mailboxes():
            yield from numbered(mailbox.glob("u.*"), 16)

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        path = self._file(key)
        temporary = path.with_name(f".temp.{key:x}")
        with opened(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
            self.write_message(file, key, message, durable)
        temporary.rename(path)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync_directory(path.parent)
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
        with self._changing:
            number, offset = self._written(key, message, durable)
            self._map(key, number, offset, len(message), durable=durable)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync_directory(self.mailbox(key >> MAILBOX_BITS))
        self.keep(key, self._places[key], len(message))

    def _written(self, key: int, message: bytes, durable: bool) -> tuple[int, int]:
        """Append a message to the present file; return its number, and where the message begins."""
        number = self._number
        with opened(self._files / f"m.{number}", os.O_RDWR | os.O_CREAT) as file:
            begin = os.lseek(file, 0, os.SEEK_END)
            self.write_message(file, key, message, durable)
            if os.fstat(file).st_size >= ROTATE_BYTES:
                self._number += 1
        if durable and not begin:
            self.sync_directory(self._files)
        return number, begin + HEADER.size

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
        """Write the messages of a file again, one at a time: other threads wait for none of the syncs."""
        with self._changing:
            if path.name == f"m.{self._number}":
                self._number += 1
            keys = [key for key, place in self._places.items() if place.path == path]
        written = {self._files / MAP}
        for key in keys:
            with self._changing:
                place = self._places.get(key)
                message = self._read(key) if place and place.path == path else None
                if message is not None:
                    number, offset = self._written(key, message, durable=False)
                    self._map(key, number, offset, len(message), durable=False)
                    written.add(self._files / f"m.{number}")
        for each in written:
            with opened(each, os.O_RDONLY) as file:
                os.fdatasync(file)
        path.unlink(missing_ok=True)
        with self._changing:
            del self._dead_bytes[path]

    def logs(self) -> Iterator[Path]:
        yield from super().logs()
        if (path := self._files / MAP).exists():
            yield path


def open_sdbox(settings: StoreSettings) -> Sdbox:
    return Sdbox(settings)


def open_mdbox(settings: StoreSettings) -> Mdbox:
    return Mdbox(settings)
