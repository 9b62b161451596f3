"""Dovecot's mailboxes as stores: `maildir`, `sdbox` and `mdbox`."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from loadsim.files import mode_at
from loadsim.storage.file_store import INDEX, FileStore, Frame, LogRecord, MailFiles, StoredPlace, numbered, records
from loadsim.storage.store import Io, StoreSettings

LIST = "dovecot-uidlist"
MAP = "dovecot.map.index.log"

DBOX = "mailboxes/{:06}/dbox-Mails"
DBOX_FRAME = Frame(b"\x01\x02", b"\n\x01\x03\n".ljust(63, b"\0"))

ROTATE_BYTES = 10 << 20  # no message is appended to a file of this size: the default of `mdbox_rotate_size`
PURGED_SHARE = 0.5  # a file is rewritten when more than this share was deleted, as by `doveadm purge`


class FilePerMessage:
    """A file per message: `maildir`, with the flag `\\Seen` in file names, and `sdbox`."""

    def __init__(self, files: MailFiles, frame: Frame, name: str, temporary: str, seen: str = "") -> None:
        """`name` and `temporary` format the path of a message's file from its key; `seen` is the flag's suffix."""
        self.files, self.frame = files, frame
        self._name, self._temporary, self._seen = name, temporary, seen
        self._listed = LIST in files.record_bytes  # a durable insertion syncs the list, or else the index log

    def _named(self, key: int, suffix: str = "") -> Path:
        return self.files.mailbox(key) / (self._name.format(key) + suffix)

    def place(self, key: int) -> StoredPlace | None:
        return next(
            (StoredPlace(path) for path in (self._named(key), self._named(key, self._seen)) if mode_at(path)), None
        )

    def _path(self, key: int) -> Path:
        """Return a message's path; for a lost one, a path without a file."""
        place = self.place(key)
        return place.path if place else self._named(key)

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.files.directories:
            yield from numbered((mailbox / self._name).parent, Path(self._name).name.partition("{")[0])

    def insert(self, key: int, content: bytes, *, durable: bool) -> StoredPlace:
        mailbox, path = self.files.mailbox(key), self._named(key)
        temporary = mailbox / self._temporary.format(key)  # a killed process may have left one
        self.files.write(temporary, os.O_TRUNC, content, Io.WRITE, durable)
        temporary.rename(path)
        if self._listed:
            if durable:
                self.files.sync(path.parent)
            self.files.append(mailbox / LIST, LogRecord(key, 0, 0), durable=durable)
            self.files.index(key, 0, durable=False)
        else:
            self.files.index(key, 0, durable=durable)
            if durable:
                self.files.sync(path.parent)
        return StoredPlace(path)

    def change_flag(self, key: int) -> None:
        self.files.index(key, 1, durable=False)
        if self._seen:
            path, plain = self._path(key), self._named(key)
            path.rename(self._named(key, self._seen) if path == plain else plain)

    def delete(self, key: int, *, durable: bool) -> None:
        self.files.index(key, 2, durable=durable and not self._listed)
        self._path(key).unlink()

    def settle(self) -> None:
        return


class Mdbox:
    """Files `m.N` of many messages, and a map of their places, also kept in memory (about 200 bytes per message)."""

    frame = DBOX_FRAME

    def __init__(self, settings: StoreSettings) -> None:
        self.files = MailFiles(settings, DBOX, {INDEX: 176, MAP: 124})
        self._storage = settings.directory / "storage"
        self._storage.mkdir(exist_ok=True)
        self.files.directories.append(self._storage)
        self._changing = threading.Lock()
        self._places: dict[int, StoredPlace] = {}
        self._dead_bytes: Counter[Path] = Counter()
        for record in filter(None, records(self._storage / MAP, self.files.record_bytes[MAP])):
            self._apply(record)
        self._number = max(numbered(self._storage, "m.", 10), default=0) + 1

    def _apply(self, record: LogRecord) -> None:
        """Apply a record to the map: the file's number, or -1 for a deleted message, then offset and size."""
        old = self._places.pop(record.key, None)
        if old and old.size:
            self._dead_bytes[old.path] += old.size
        if record.first >= 0:
            offset, size = record.second >> 32, record.second & 0xFFFFFFFF
            self._places[record.key] = StoredPlace(self._storage / f"m.{record.first}", offset, size)

    def _map(self, record: LogRecord, *, durable: bool) -> None:
        self.files.append(self._storage / MAP, record, durable=durable, rotated=False)  # the whole map is needed
        self._apply(record)

    def place(self, key: int) -> StoredPlace | None:
        return self._places.get(key)

    def stored_keys(self) -> Iterator[int]:
        yield from sorted(self._places)

    def insert(self, key: int, content: bytes, *, durable: bool) -> StoredPlace:
        with self._changing:  # Dovecot also locks the map while it syncs the message
            self._map(self._written(key, content, durable), durable=durable)
        self.files.index(key, 0, durable=durable)
        if durable:
            self.files.sync(self.files.mailbox(key))
        return self._places[key]

    def _written(self, key: int, content: bytes, durable: bool) -> LogRecord:
        """Append a framed message to the current file, and return its record for the map."""
        number = self._number
        end = self.files.write(self._storage / f"m.{number}", os.O_APPEND, content, Io.WRITE, durable)
        if end >= ROTATE_BYTES:
            self._number += 1
        begin = end - len(content)
        if durable and not begin:
            self.files.sync(self._storage)
        return LogRecord(key, number, begin << 32 | len(content))

    def change_flag(self, key: int) -> None:
        """Record the flag, which is only in the index log."""
        self.files.index(key, 1, durable=False)

    def delete(self, key: int, *, durable: bool) -> None:
        self.files.index(key, 2, durable=False)
        with self._changing:
            self._map(LogRecord(key, -1, 0), durable=durable)
        self.files.index(key, 2, durable=durable)

    def settle(self) -> None:
        """Move the rest of a mostly deleted file to the current one, and remove it. Syncs hold no lock."""
        # 1. Choose a file, and append no more to it.
        with self._changing:
            mostly_dead = [path for path, dead in self._dead_bytes.items() if dead > PURGED_SHARE * ROTATE_BYTES]
            if not mostly_dead:
                return
            path = mostly_dead[0]
            if path.name == f"m.{self._number}":
                self._number += 1
            keys = [key for key, place in self._places.items() if place.path == path]
        # 2. Append its messages to the current file, and sync that.
        moved: list[LogRecord] = []
        for key in keys:
            with self._changing:
                if (place := self._places.get(key)) and (content := self.files.read(place)):
                    moved.append(self._written(key, content, durable=False))
        for number in {record.first for record in moved}:
            self.files.sync(self._storage / f"m.{number}")
        self.files.sync(self._storage)
        # 3. Point the map to the copies, and remove the file.
        with self._changing:
            for record in moved:
                if record.key in self._places:
                    self._map(record, durable=False)
        self.files.sync(self._storage / MAP)
        path.unlink(missing_ok=True)  # an old map may still name it
        with self._changing:
            del self._dead_bytes[path]


def open_maildir(settings: StoreSettings) -> FileStore:
    files = MailFiles(settings, "{:06}", {INDEX: 80, LIST: 46}, ("tmp", "new"))
    return FileStore(FilePerMessage(files, Frame(), "new/{:x}", "tmp/{:x}", seen=":2,S"))


def open_sdbox(settings: StoreSettings) -> FileStore:
    return FileStore(FilePerMessage(MailFiles(settings, DBOX, {INDEX: 72}), DBOX_FRAME, "u.{:x}", ".temp.{:x}"))


def open_mdbox(settings: StoreSettings) -> FileStore:
    return FileStore(Mdbox(settings))
