"""One timing log on disk: checked once from end to end, then read on demand in groups of records.

Only an index is kept in memory: each group's offset and number of records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from loadsim.documents.typed import show
from loadsim.errors import LogError, printable
from loadsim.files import open_file
from loadsim.model.terms import MOST_USERS
from loadsim.timinglog import container
from loadsim.timinglog.documents import read_document
from loadsim.timinglog.facts import LogFacts, read_facts
from loadsim.timinglog.header import LogHeader, read_header
from loadsim.timinglog.health_samples import Sample, Samples
from loadsim.timinglog.record_limits import WrongRecord, check_names, check_records
from loadsim.timinglog.records import KINDS, MAKERS, NAMES, RecordKind

GROUP_RECORDS = 16_384
"""The most records in a group, unless a single block has more. Engines write a small block each second."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Consecutive blocks with one kind of record; `pieces` has a row for each payload: its offset and length.

    A row takes 16 bytes where a tuple would take 120; an engine's day
    has 28,800.
    """

    count: int
    pieces: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log that was read from end to end: everything but its records, and the groups of records by kind.

    The file has `blocks` whole blocks before byte `end`; the bytes from there to `size` are damaged.
    """

    path: Path
    header: LogHeader
    strings: tuple[str, ...]
    facts: LogFacts
    health: list[Sample]
    groups: Mapping[str, Sequence[BlockGroup]]
    blocks: int
    end: int
    size: int

    @property
    def origin_us(self) -> int:
        """The common start on the file's clock; 0 if it never came."""
        start_ns = self.facts.start_ns
        return 0 if start_ns is None else (start_ns - self.header.epoch_ns) // 1000

    @property
    def damage(self) -> str | None:
        """A text with the number of unreadable bytes, or None."""
        left = self.size - self.end
        if not left:
            return None
        name = printable(self.path.name)
        return f"{name}: the last {left} of {self.size} bytes are cut off or damaged, and were not read"


def open_log(path: Path) -> LogFile:
    """Read and check a log up to its last whole block, without keeping its records in memory.

    Raises `LogError` if the file is not a timing log, its head is damaged, or loadsim cannot have written it.
    """
    try:
        with open_file(path) as file:
            return _read(path, file)
    except OSError as failure:
        raise LogError(f"{path}: expected a timing log, found none that can be read ({failure.strerror})") from None


def _read(path: Path, file: BinaryIO) -> LogFile:
    # Check the header.
    document, end = container.read_head(str(path), file)
    header = read_header(document, f"{path}: header")
    strings, stated, health, samples = [""], dict[str, Any](), list[Sample](), Samples()
    indexers = {kind.number: _Indexer(path, kind) for kind in KINDS.values()}
    # Read the blocks.
    blocks = 0
    for block in container.whole_blocks(file, end):
        if indexer := indexers.get(block.kind):
            indexer.add(block)
        elif block.kind == container.STRINGS:
            strings += _json(path, block)
            check_names(str(path), strings)
        elif block.kind == container.FACTS:
            for fact in _objects(path, block):
                stated.update(fact)
        elif block.kind == container.HEALTH:
            health += map(samples.add, _objects(path, block))
        blocks += 1
        end = block.end
    # Check the documents, and index the records.
    facts = read_facts(stated, f"{path}: facts", header.monitor)
    samples.check(str(path), header.monitor)
    known = {*strings}
    strings += dict.fromkeys(name for maker in MAKERS if (name := getattr(header, maker)) not in known)
    check_names(str(path), strings)
    users = header.hand.users + header.senders if header.hand and header.hand.users else MOST_USERS
    return LogFile(
        path=path,
        header=header,
        strings=tuple(strings),
        facts=facts,
        health=health,
        groups={name: indexers[kind.number].groups(len(strings), users) for name, kind in KINDS.items()},
        blocks=blocks,
        end=end,
        size=max(end, os.fstat(file.fileno()).st_size),
    )


def _json(path: Path, block: container.Block) -> list[Any]:
    """Return a block's array. A correct checksum does not prove that loadsim wrote it."""
    where = f"{path}: byte {block.begin}"
    values = read_document(where, block.payload, strictly=block.kind != container.HEALTH)
    if not isinstance(values, list):
        raise LogError(f"{where}: expected a JSON array in a block of kind {block.kind}, found {show(values)}")
    return values


def _objects(path: Path, block: container.Block) -> list[dict[str, Any]]:
    values = _json(path, block)
    if not all(isinstance(value, dict) for value in values):
        raise LogError(f"{path}: byte {block.begin}: expected objects in a block of kind {block.kind}, found others")
    return values


class _Indexer:
    """Checks the records of one kind, block by block, and groups the blocks."""

    def __init__(self, path: Path, kind: RecordKind) -> None:
        self._path = path
        self._kind, self._itemsize = kind, kind.plain.itemsize
        self._groups: list[BlockGroup] = []
        self._pieces: list[tuple[int, int]] = []  # not in a group yet: offsets and lengths, ...
        self._payload = bytearray()  # ... and bytes
        self._most: dict[str, int] = {}

    def add(self, block: container.Block) -> None:
        length, itemsize = len(block.payload), self._itemsize
        if length % itemsize:
            expected = f"expected records of {itemsize} bytes, found {length} bytes"
            raise LogError(f"{self._path}: byte {block.begin}: {expected}")
        if not length:
            return
        if len(self._payload) + length > GROUP_RECORDS * itemsize:
            self._close()
        self._pieces.append((block.begin, length))
        self._payload += block.payload

    def _close(self) -> None:
        """Group the remaining blocks. Raises `LogError` for records that loadsim does not write."""
        if not self._pieces:
            return
        try:
            check_records(self._kind, self._payload, self._most)
        except WrongRecord as wrong:
            raise LogError(f"{self._path}: byte {self._pieces[0][0]} or later: {wrong}") from None
        count = len(self._payload) // self._itemsize
        self._groups.append(BlockGroup(count, np.array(self._pieces, np.int64)))
        self._pieces, self._payload = [], bytearray()

    def groups(self, names: int, users: int) -> Sequence[BlockGroup]:
        """Return all groups, after the last block. Raises `LogError` for unknown users and names."""
        self._close()
        if self._most.get("user", 0) > users:
            raise LogError(f"{self._path}: user: expected one of {users}, found user {self._most['user']}")
        for name in NAMES:
            if (most := self._most.get(name, 0)) >= names:
                raise LogError(f"{self._path}: {name}: expected a number below {names}, found {most}")
        return self._groups
