"""The store `maildir`: a file for each message, whose name has its flags, and a list of the files of each mailbox."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from loadsim.storage.file_store import FileStore, LogRecord, Place
from loadsim.storage.messages import MAILBOX_BITS
from loadsim.storage.page_cache import opened
from loadsim.storage.store import Io

SEEN = ":2,S"
INDEX, LIST = "dovecot.index.log", "dovecot-uidlist"


class Maildir(FileStore):
    """Mailboxes as directories with `tmp` and `new`."""

    record_bytes: Mapping[str, int] = {INDEX: 80, LIST: 46}
    folders = ("tmp", "new")

    def mailbox(self, number: int) -> Path:
        return self.settings.directory / f"{number:06}"

    def _new(self, key: int) -> Path:
        return self.mailbox(key >> MAILBOX_BITS) / "new" / f"{key:x}"

    def place(self, key: int) -> Place | None:
        plain = self._new(key)
        for path in (plain, plain.with_name(plain.name + SEEN)):
            if os.access(path, os.F_OK):
                return Place(path)
        return None

    def stored_keys(self) -> Iterator[int]:
        for mailbox in self.mailboxes():
            for name in sorted(path.name for path in (mailbox / "new").iterdir()):
                with suppress(ValueError):  # a file of others
                    yield int(name.partition(":")[0], 16)

    def insert(self, key: int, message: bytes, *, durable: bool) -> None:
        mailbox, new = self.mailbox(key >> MAILBOX_BITS), self._new(key)
        temporary = mailbox / "tmp" / new.name
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:  # a killed process leaves some
            began_ns = time.perf_counter_ns()
            self.write_pieces(file, message)
            self.wait(file, Io.WRITE, began_ns, len(message), durable)
        temporary.rename(new)
        if durable:
            self.sync(new.parent)
        self.append(mailbox / LIST, LogRecord(key, 0, 0), durable=durable)
        self.append(mailbox / INDEX, LogRecord(key, len(message), 0), durable=False)
        self.keep(key, Place(new), len(message))

    def replace(self, key: int, message: bytes | None, *, durable: bool) -> None:
        """Change the flag `\\Seen`: the file is renamed."""
        path, plain = self._indexed(key, 1), self._new(key)
        path.rename(plain.with_name(plain.name + SEEN) if path == plain else plain)

    def delete(self, key: int, *, durable: bool) -> None:
        path = self._indexed(key, 2)
        self.warm.remove(key)
        path.unlink()

    def _indexed(self, key: int, kind: int) -> Path:
        """Append a change of flags (1) or a deletion (2) to the index log, and return the path of the message."""
        place = self.place(key)
        if place is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._new(key)))
        index = self.mailbox(key >> MAILBOX_BITS) / INDEX
        self.append(index, LogRecord(key, 0, kind), durable=False)
        return place.path
