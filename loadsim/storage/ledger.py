"""The messages that a store must have: those at the last clean end, and the changes since then that were acknowledged.

The ledger stands next to the store. A change is noted before it begins and when it has been acknowledged, so that after
the end of a process at any instant it is known what must be there, and what may be. The notes are there only from the
first change to a clean end.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.files import mode_at
from loadsim.storage.page_cache import opened, replace_durably, sync_directory, write
from loadsim.storage.store import Damaged

ABSENT = -1  # in place of a version: the message was deleted, or not yet inserted
_LIVE, CHANGES = "live", "changes"
_ENTRY = np.dtype([("key", "<u8"), ("version", "<i4")])
_NOTE = struct.Struct("<QiI")  # key, version and `Noted`; in front of the first one, as many bytes name the session

Live = NDArray[np.void]
"""Keys and versions of messages, by ascending key."""


def _session() -> bytes:
    """Return the 16 bytes of the machine's session, which ends with the next start."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))


class Noted(IntEnum):
    BEGUN = 0
    LAZY = 1
    DURABLE = 2


def is_filled(directory: Path) -> bool:
    """Return True if a directory has the ledger of a database that was filled."""
    return bool(mode_at(directory / _LIVE))


class Ledger:
    """The ledger in a directory. `note` is called by all threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened = ExitStack()
        self.close = self._opened.close

    @property
    def is_clean(self) -> bool:
        """The store ended cleanly, after it was filled."""
        return is_filled(self.directory) and not mode_at(self.directory / CHANGES)

    @property
    def survived(self) -> bool:
        """The machine has not been started again since the changes began: none of them is missing here."""
        return self.is_clean or (self.directory / CHANGES).read_bytes()[: _NOTE.size] == _session()

    def begin(self) -> None:
        """Record durably that changes follow, and in which session of the machine: they are not synced."""
        replace_durably(self.directory / CHANGES, _session())
        self._file = self._opened.enter_context(opened(self.directory / CHANGES, os.O_WRONLY | os.O_APPEND))

    def note(self, key: int, version: int, state: Noted) -> None:
        write(self._file, _NOTE.pack(key, version, state))

    def ended(self) -> tuple[Live, dict[str, int]]:
        """Return the messages, and the sizes of the store's logs, at the last clean end."""
        checksum, _, content = (self.directory / _LIVE).read_bytes().partition(b"\n")
        if checksum != b"%d" % zlib.crc32(content):
            raise Damaged(f"ledger: {_LIVE}")
        sizes, _, entries = content.partition(b"\n")
        return np.frombuffer(entries, _ENTRY), json.loads(sizes)

    def write(self, live: Live, sizes: Mapping[str, int]) -> None:
        """Record the messages and the logs of a store that has ended cleanly."""
        content = json.dumps(sizes).encode() + b"\n" + live.tobytes()
        replace_durably(self.directory / _LIVE, b"%d\n" % zlib.crc32(content) + content)
        (self.directory / CHANGES).unlink(missing_ok=True)
        sync_directory(self.directory)
        self.close()

    def changed(self) -> dict[int, set[int]]:
        """Return the versions that each changed message may have."""
        if self.is_clean:
            return {}
        content = (self.directory / CHANGES).read_bytes()
        notes = content[_NOTE.size : len(content) // _NOTE.size * _NOTE.size]
        before = _versions(self.ended()[0], (key for key, _, _ in _NOTE.iter_unpack(notes)))
        allowed: dict[int, set[int]] = {}
        for key, version, state in _NOTE.iter_unpack(notes):
            versions = allowed.setdefault(key, {before.get(key, ABSENT)})
            if state == Noted.DURABLE:
                versions.clear()
            versions.add(version)
        return allowed


def _versions(live: Live, keys: Iterable[int]) -> dict[int, int]:
    """Return the versions of those of some messages that a list has."""
    return dict(live[np.isin(live["key"], np.fromiter(keys, np.uint64))].tolist())


def live_of(entries: Iterable[tuple[int, int]]) -> Live:
    """Return keys and versions by ascending key."""
    live = np.fromiter(entries, _ENTRY)
    live.sort(order="key")
    return live


def compare(ledger: Ledger, found: Live, live: Live | None = None) -> Iterator[tuple[str, int]]:
    """Yield what a store does not have as the ledger says: `lost`, `stale` or `unexpected`, with the key.

    `found` are the messages of the store that prove themselves. `live` is the list of a clean end, if it is known
    better than from the disk. After a crash of the machine, nothing is known.
    """
    if not ledger.survived:
        return
    allowed: Mapping[int, set[int]] = {}
    if live is None:
        (live, _), allowed = ledger.ended(), ledger.changed()
    # One whose version is the same needs no look, unless it changed meanwhile: numpy compares millions of them.
    common, of_live, of_found = np.intersect1d(live["key"], found["key"], return_indices=True)
    differ = common[live["version"][of_live] != found["version"][of_found]]
    lost, unexpected = np.delete(live["key"], of_live), np.delete(found["key"], of_found)
    suspects = sorted({*lost.tolist(), *unexpected.tolist(), *differ.tolist(), *allowed})
    had, has = _versions(live, suspects), _versions(found, suspects)
    for key in suspects:
        version, versions = has.get(key, ABSENT), allowed.get(key) or {had.get(key, ABSENT)}
        if version not in versions:
            yield ("lost" if version == ABSENT else "unexpected" if versions == {ABSENT} else "stale"), key
