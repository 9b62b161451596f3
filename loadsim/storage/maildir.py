"""The store `maildir`: a file for each message, whose name has its flags, and a list of the files of each mailbox."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from loadsim.storage.file_store import INDEX, FileStore, LogRecord, Place, numbered
from loadsim.storage.page_cache import is_there

SEEN = ":2,S"
LIST = "dovecot-uidlist"


class Maildir(FileStore):
    """Mailboxes as directories with `tmp` and `new`."""

    layout = "{:06}"
    folders = ("tmp", "new")
    record_bytes: Mapping[str, int] = {INDEX: 80, LIST: 46}

    def _new(self, key: int) -> Path:
        return self.mailbox(key) / "new" / f"{key:x}"

    def place(self, key: int) -> Place | None:
        plain = self._new(key)
        for path in (plain, plain.with_name(plain.name + SEEN)):
            if is_there(path):
                return Place(path)
        return None

    def _file(self, key: int) -> Path:
        """Return the path of a message; if it is lost, one that is missing."""
        place = self.place(key)
        return place.path if place else self._new(key)

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.directories:
            yield from numbered(mailbox / "new")

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        mailbox, new = self.mailbox(key), self._new(key)
        self.create(new, mailbox / "tmp" / new.name, message, durable)
        if durable:
            self.sync(new.parent)
        self.append(mailbox / LIST, LogRecord(key, 0, 0), durable=durable)
        self.index(key, 0, durable=False)
        self.keep(key, Place(new), len(message))

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Change the flag `\\Seen`: the file is renamed."""
        self.index(key, 1, durable=False)
        path, plain = self._file(key), self._new(key)
        path.rename(plain.with_name(plain.name + SEEN) if path == plain else plain)

    def delete(self, key: int, *, durable: bool) -> None:
        self.index(key, 2, durable=False)
        self.warm.remove(key)
        self._file(key).unlink()
