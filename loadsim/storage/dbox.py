"""The stores `sdbox` and `mdbox`: a file for each message, or files that many messages share, with a map of them."""

from __future__ import annotations

import os
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadsim.storage.file_store import INDEX, FileStore, LogRecord, Place, numbered, records
from loadsim.storage.page_cache import is_there
from loadsim.storage.store import Io, StoreSettings

MAP = "dovecot.map.index.log"

HEADER = struct.Struct("<2sQQ12x")  # in front of each message: a mark, its key and its size; 30 bytes, as Dovecot's
MARK = b"\x01\x02"
TRAILER = b"\n\x01\x03\n".ljust(63, b"\0")

ROTATE_BYTES = 10 << 20  # a file of messages that has this size takes no more: the default of `mdbox_rotate_size`
PURGED_SHARE = 0.5  # a file of which a larger part has been deleted is written again, as by `doveadm purge`


class DboxStore(FileStore):
    """The parts of both: messages between header and trailer, and flags in the index log."""

    layout = "mailboxes/{:06}/dbox-Mails"
    head_bytes, tail_bytes = HEADER.size, len(TRAILER)

    def framed(self, key: int, message: bytes) -> bytes:
        return HEADER.pack(MARK, key, len(message)) + message + TRAILER

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Change a flag: it is in the index only."""
        self.index(key, 1, durable=False)


class Sdbox(DboxStore):
    record_bytes: Mapping[str, int] = {INDEX: 72}

    def _file(self, key: int) -> Path:
        return self.mailbox(key) / f"u.{key:x}"

    def place(self, key: int) -> Place | None:
        path = self._file(key)
        return Place(path) if is_there(path) else None

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.directories:
            yield from numbered(mailbox, "u.")

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        path = self._file(key)
        self.create(path, path.with_name(f".temp.{key:x}"), self.framed(key, message), durable)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync(path.parent)
        self.keep(key, Place(path), len(message))

    def delete(self, key: int, *, durable: bool) -> None:
        self.index(key, 2, durable=durable)
        self.warm.remove(key)
        self._file(key).unlink()


class Mdbox(DboxStore):
    """Files `m.N` of many messages. The map says where each one is; it is in memory, about 200 bytes for each."""

    record_bytes: Mapping[str, int] = {INDEX: 176, MAP: 124}

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self._files = settings.directory / "storage"
        self._files.mkdir(exist_ok=True)
        self.directories.append(self._files)
        self._changing = threading.Lock()
        self._places: dict[int, Place] = {}
        self._dead_bytes: Counter[Path] = Counter()
        for record in filter(None, records(self._files / MAP, self.record_bytes[MAP])):
            self._apply(record)
        self._number = max(numbered(self._files, "m.", 10), default=0) + 1

    def rotate(self, path: Path) -> None:
        if path.name != MAP:  # which is needed whole
            super().rotate(path)

    def _apply(self, record: LogRecord) -> None:
        """Change the map: a record has the number of the file, -1 for a deleted message, and its offset and size."""
        old = self._places.pop(record.key, None)
        if old and old.size:
            self._dead_bytes[old.path] += old.size
        if record.first >= 0:
            offset, size = record.second >> 32, record.second & 0xFFFFFFFF
            self._places[record.key] = Place(self._files / f"m.{record.first}", offset, size)

    def _map(self, record: LogRecord, *, durable: bool) -> None:
        self.append(self._files / MAP, record, durable=durable)
        self._apply(record)

    def place(self, key: int) -> Place | None:
        return self._places.get(key)

    def stored_keys(self) -> Iterator[int]:
        yield from sorted(self._places)

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        content = self.framed(key, message)
        with self._changing:  # Dovecot, too, holds the lock of the map while it syncs the message
            self._map(self._written(key, content, durable), durable=durable)
        self.index(key, 0, durable=durable)
        if durable:
            self.sync(self.mailbox(key))
        self.keep(key, self._places[key], len(content))

    def _written(self, key: int, content: bytes, durable: bool) -> LogRecord:
        """Append a framed message to the present file, and return its record for the map."""
        number = self._number
        end = self.write(self._files / f"m.{number}", os.O_APPEND, content, Io.WRITE, durable)
        if end >= ROTATE_BYTES:
            self._number += 1
        begin = end - len(content)
        if durable and not begin:
            self.sync(self._files)
        return LogRecord(key, number, begin << 32 | len(content))

    def delete(self, key: int, *, durable: bool) -> None:
        self.index(key, 2, durable=False)
        with self._changing:
            self._map(LogRecord(key, -1, 0), durable=durable)
        self.index(key, 2, durable=durable)
        self.warm.remove(key)

    def settle(self) -> None:
        """Write the messages of a file again of which the most has been deleted, and remove it.

        Other threads wait for none of the syncs.
        """
        with self._changing:
            full = [path for path, dead in self._dead_bytes.items() if dead > PURGED_SHARE * ROTATE_BYTES]
            if not full:
                return
            path = full[0]
            if path.name == f"m.{self._number}":
                self._number += 1
            keys = [key for key, place in self._places.items() if place.path == path]
        moved: list[LogRecord] = []
        for key in keys:
            with self._changing:
                if content := self.content(key):
                    moved.append(self._written(key, content, durable=False))
        for number in {record.first for record in moved}:
            self.sync(self._files / f"m.{number}")
        self.sync(self._files)
        with self._changing:  # the map points to what is on the device
            for record in moved:
                if record.key in self._places:
                    self._map(record, durable=False)
        self.sync(self._files / MAP)
        path.unlink(missing_ok=True)  # the map is of all times
        with self._changing:
            del self._dead_bytes[path]
