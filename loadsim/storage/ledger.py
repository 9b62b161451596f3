"""A store's ledger, kept next to it: the messages when it was last closed, and the acknowledged changes since then.

Each change is noted before it begins and again once acknowledged. So whenever a process is killed, the ledger shows
which messages must be there and which may be. Closing the store removes the notes.
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

ABSENT = -1  # the version of a message that was deleted, or not yet inserted
_LIVE, CHANGES = "live", "changes"
_ENTRY = np.dtype([("key", "<u8"), ("version", "<i4")])
_NOTE = struct.Struct("<QiI")  # key, version and `Noted`; before the first, as many bytes name the boot

Live = NDArray[np.void]
"""The keys and versions of messages, sorted by key."""


def _session() -> bytes:
    """Return 16 bytes that identify the machine's boot."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))


class Noted(IntEnum):
    BEGUN = 0
    LAZY = 1
    DURABLE = 2


def is_filled(directory: Path) -> bool:
    """Return True if a directory has the ledger of a filled database."""
    return bool(mode_at(directory / _LIVE))


class Ledger:
    """The ledger in a directory. All threads call `note`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._opened = ExitStack()
        self.close = self._opened.close

    @property
    def is_clean(self) -> bool:
        """True if the store was filled, and closed after its last change."""
        return is_filled(self.directory) and not mode_at(self.directory / CHANGES)

    @property
    def survived(self) -> bool:
        """True if the machine has not rebooted since the changes began: no note is lost."""
        return self.is_clean or (self.directory / CHANGES).read_bytes()[: _NOTE.size] == _session()

    def begin(self) -> None:
        """Durably record the machine's boot, and that changes follow, as notes are not synced."""
        replace_durably(self.directory / CHANGES, _session())
        self._file = self._opened.enter_context(opened(self.directory / CHANGES, os.O_WRONLY | os.O_APPEND))

    def note(self, key: int, version: int, state: Noted) -> None:
        write(self._file, _NOTE.pack(key, version, state))

    def ended(self) -> tuple[Live, dict[str, int]]:
        """Return the messages, and the sizes of the logs, as of when the store was last closed."""
        checksum, _, content = (self.directory / _LIVE).read_bytes().partition(b"\n")
        if checksum != b"%d" % zlib.crc32(content):
            raise Damaged(f"ledger: {_LIVE}")
        sizes, _, entries = content.partition(b"\n")
        return np.frombuffer(entries, _ENTRY), json.loads(sizes)

    def write(self, live: Live, sizes: Mapping[str, int]) -> None:
        """Record a closed store's messages and logs."""
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
    """Return the versions of the listed messages among these keys."""
    return dict(live[np.isin(live["key"], np.fromiter(keys, np.uint64))].tolist())


def live_of(entries: Iterable[tuple[int, int]]) -> Live:
    """Return keys and versions, sorted by key."""
    live = np.fromiter(entries, _ENTRY)
    live.sort(order="key")
    return live


def compare(ledger: Ledger, stored: Live, live: Live | None = None) -> Iterator[tuple[str, int]]:
    """Yield `lost`, `stale` or `unexpected` with the key of each message that contradicts the ledger.

    `stored` has the verified messages of the store. `live`, the messages when it was closed, replaces the ledger's own
    list if this process still has it. After a machine crash, nothing is known.
    """
    if not ledger.survived:
        return
    allowed: Mapping[int, set[int]] = {}
    if live is None:
        (live, _), allowed = ledger.ended(), ledger.changed()
    # numpy compares millions of messages; only those that differ or were changed are looked at one by one.
    common, in_live, in_stored = np.intersect1d(live["key"], stored["key"], return_indices=True)
    differ = common[live["version"][in_live] != stored["version"][in_stored]]
    lost, unexpected = np.delete(live["key"], in_live), np.delete(stored["key"], in_stored)
    suspects = sorted({*lost.tolist(), *unexpected.tolist(), *differ.tolist(), *allowed})
    had, has = _versions(live, suspects), _versions(stored, suspects)
    for key in suspects:
        version, versions = has.get(key, ABSENT), allowed.get(key) or {had.get(key, ABSENT)}
        if version not in versions:
            yield ("lost" if version == ABSENT else "unexpected" if versions == {ABSENT} else "stale"), key
