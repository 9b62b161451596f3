"""One timing log on the disk: checked from end to end once, then read in groups of records, as they are wanted.

What is kept in memory is a page of contents: where which records stand, and which time they are of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.results import container
from loadsim.results.records import (
    EVENTS,
    INSTANTS,
    KINDS,
    MAKERS,
    NAMES,
    NEVER,
    OUTCOMES,
    Kind,
    Records,
    chosen,
    placed_us,
)

GROUP_RECORDS = 16_384
"""An engine writes blocks once a second, of few records: about so many are read together, or one block of more."""

SAMPLE_EVERY = 256
"""Of every so many records, the instant of one is kept: enough to divide a log into parts of about the same size."""

Span = tuple[int, int]
"""Instants [begin, end) in microseconds."""

EVER: Span = (-(1 << 64), 1 << 64)


class Stream(Protocol):
    """Records of one kind that need not be in memory all at once, each with who made it."""

    @property
    def count(self) -> int:
        """How many there are, at most."""

    @property
    def sample_us(self) -> NDArray[np.int64]:
        """The instants (see `placed_us`) of one in `SAMPLE_EVERY`, spread evenly."""

    def parts(self, span: Span = EVER, *, ordered: bool = True) -> Iterator[Records]:
        """The records placed in the span, part after part, in the order of their log; or in any order.

        Arrays that are handed out are the caller's own, to be changed. Raises `LogError` when a file has gone.
        """


def ahead(parts: Iterator[Records]) -> Iterator[Records]:
    """The same parts, each made in a thread while the caller is at work on the one before."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = beside.submit(next, parts, None)
            yield part


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive blocks of one kind of record: the offset and the length of each payload, and of all together.

    `first_us` and `last_us` are the smallest and the largest of the instants by which its records stand in time order,
    on the clock of the file.
    """

    named: bool
    count: int
    first_us: int
    last_us: int
    pieces: tuple[tuple[int, int], ...]
    length: int


@dataclass(frozen=True, slots=True)
class Index:
    """Where the records of one kind stand in a file, with the instants of a sample of them, on the clock of the file.

    `first_us` and `last_us` are those of the heads of its blocks, 0 when there are none.
    """

    groups: tuple[Group, ...]
    sample_us: NDArray[np.int64]
    first_us: int = 0
    last_us: int = 0

    @property
    def count(self) -> int:
        """How many records."""
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log that was read from end to end: all but its records, and where those are.

    `blocks` are whole and stand before the byte `end`; what follows, up to `size`, is damaged.
    """

    path: Path
    header: dict[str, Any]
    strings: tuple[str, ...]
    facts: dict[str, Any]
    health: list[dict[str, Any]]
    indices: Mapping[str, Index]
    blocks: int
    end: int
    size: int

    @property
    def origin_us(self) -> int:
        """When the common start was, on the clock of the file; 0 if it never came, and in a merged log."""
        if "sources" in self.header or "start_ns" not in self.facts:
            return 0
        return (int(self.facts["start_ns"]) - int(self.header["epoch_ns"])) // 1000

    @property
    def damage(self) -> str | None:
        """How much could not be read, or None."""
        left = self.size - self.end
        if not left:
            return None
        return f"{self.path.name}: the last {left} of {self.size} bytes are cut off or damaged, and were not read"


def open_log(path: Path) -> LogFile:
    """Read and check a log up to its last whole block, keeping no record in memory.

    Raises `LogError` when it is no timing log, is damaged at its head, or holds what no writer of ours makes.
    """
    try:
        with path.open("rb") as file:
            return _read(path, file)
    except OSError as failure:
        raise LogError(f"{path}: expected a timing log, found none that can be read ({failure.strerror})") from None


def _read(path: Path, file: BinaryIO) -> LogFile:
    header, end = container.read_head(str(path), file)
    strings, facts, health = [""], dict[str, Any](), list[dict[str, Any]]()
    gatherings = {kind.number: _Gathering(kind) for kind in KINDS.values()}
    blocks = 0
    for block in container.whole_blocks(file, end):
        number = block.kind & ~container.NAMED
        if number in gatherings:
            gatherings[number].add(path, block)
        elif number == container.STRINGS:
            strings += _json(path, block)
        elif number == container.FACTS:
            for fact in _json(path, block):
                facts.update(fact)
        elif number == container.HEALTH:
            health += _json(path, block)
        blocks += 1
        end = block.end
    if "sources" not in header:
        strings += dict.fromkeys(name for maker in MAKERS if (name := str(header.get(maker, ""))) not in strings)
    return LogFile(
        path=path,
        header=header,
        strings=tuple(strings),
        facts=facts,
        health=health,
        indices={name: gatherings[kind.number].index(path, len(strings)) for name, kind in KINDS.items()},
        blocks=blocks,
        end=end,
        size=max(end, os.fstat(file.fileno()).st_size),
    )


def _json(path: Path, block: container.Block) -> list[Any]:
    """The array in a block. A checksum that is right does not make it one."""
    try:
        found = json.loads(block.payload)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise LogError(f"{path}: byte {block.begin}: expected a JSON array in a block of kind {block.kind}")
    return found


class _Gathering:
    """Makes the index of one kind of record, from its blocks one by one."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._named = False
        self._pieces: list[tuple[int, int]] = []
        self._payloads: list[bytes] = []
        self._count = 0
        self._seen = 0
        self._groups: list[Group] = []
        self._samples = [np.zeros(0, np.int64)]
        self._first_us: int | None = None
        self._last_us = 0
        self._most: dict[str, int] = {}

    def add(self, path: Path, block: container.Block) -> None:
        """The next block."""
        named = bool(block.kind & container.NAMED)
        record = self._kind.named if named else self._kind.plain
        if len(block.payload) != block.count * record.itemsize:
            raise LogError(f"{path}: byte {block.begin}: expected {block.count} records of {record.itemsize} bytes")
        if not block.count:
            return
        if named != self._named or self._count + block.count > GROUP_RECORDS:
            self._close()
            self._named = named
        self._pieces.append((block.begin, len(block.payload)))
        self._payloads.append(block.payload)
        self._count += block.count
        self._last_us = block.last_us if self._first_us is None else max(self._last_us, block.last_us)
        self._first_us = block.first_us if self._first_us is None else min(self._first_us, block.first_us)

    def _close(self) -> None:
        """Make a group of the blocks so far."""
        if not self._count:
            return
        records = np.frombuffer(b"".join(self._payloads), self._kind.named if self._named else self._kind.plain)
        placed = placed_us(records)
        first_us, last_us = int(placed.min()), int(placed.max())
        self._groups.append(Group(self._named, self._count, first_us, last_us, tuple(self._pieces), records.nbytes))
        self._samples.append(placed[-self._seen % SAMPLE_EVERY :: SAMPLE_EVERY].copy())
        self._seen += self._count
        for name in (*NAMES, "outcome", "event"):
            if name in (records.dtype.names or ()):
                self._most[name] = max(int(records[name].max()), self._most.get(name, 0))
        self._pieces, self._payloads, self._count = [], [], 0

    def index(self, path: Path, names: int) -> Index:
        """The index, after the last block. Refuses numbers that stand for nothing: no writer of ours makes them."""
        self._close()
        limits = {**dict.fromkeys(NAMES, names), "outcome": len(OUTCOMES), "event": len(EVENTS)}
        for name, most in self._most.items():
            if most >= limits[name]:
                raise LogError(f"{path}: {name}: expected a number below {limits[name]}, found {most}")
        return Index(
            groups=tuple(self._groups),
            sample_us=np.concatenate(self._samples),
            first_us=self._first_us or 0,
            last_us=self._last_us,
        )


@dataclass(frozen=True, slots=True)
class FileStream:
    """The records of one kind in a file, counted from `origin_us`; plain ones are by `makers` (numbers of names)."""

    path: Path
    kind: Kind
    index: Index
    origin_us: int
    makers: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return self.index.count

    @property
    def sample_us(self) -> NDArray[np.int64]:
        """See `Stream`."""
        return self.index.sample_us - self.origin_us

    def parts(self, span: Span = EVER, *, ordered: bool = True) -> Iterator[Records]:
        """See `Stream`; a part is a group, and groups without a record in the span are not read."""
        begin_us, end_us = span[0] + self.origin_us, span[1] + self.origin_us
        groups = [group for group in self.index.groups if group.first_us < end_us and group.last_us >= begin_us]
        try:
            with self.path.open("rb", buffering=0) as file:
                for group in groups:
                    records = self._named(_bytes_of(self.path, file, group), group)
                    if group.first_us < begin_us or group.last_us >= end_us:
                        placed = placed_us(records)
                        begin, end = max(begin_us, group.first_us), min(end_us, group.last_us + 1)
                        records = chosen(records, (placed >= begin) & (placed < end))
                    yield moved(records, -self.origin_us)
        except OSError as failure:
            raise LogError(f"{self.path}: expected to read it again, found: {failure.strerror}") from None

    def _named(self, found: NDArray[np.uint8], group: Group) -> Records:
        """The records that these bytes are, with who made them."""
        if group.named:
            return found.view(self.kind.named)
        plain_bytes, named_bytes = self.kind.plain.itemsize, self.kind.named.itemsize
        wide = np.empty((group.count, named_bytes), np.uint8)
        wide[:, :plain_bytes] = found.reshape(group.count, plain_bytes)
        records: Records = wide.reshape(-1).view(self.kind.named)
        for maker, number in zip(MAKERS, self.makers, strict=True):
            records[maker] = number
        return records


def _bytes_of(path: Path, file: FileIO, group: Group) -> NDArray[np.uint8]:
    """The payloads of a group. They were checked when the log was opened."""
    found = np.empty(group.length, np.uint8)
    into, filled, number = found.data, 0, file.fileno()
    for offset, length in group.pieces:
        if os.preadv(number, (into[filled : filled + length],), offset) < length:
            raise LogError(f"{path}: expected {length} bytes at byte {offset}, found that the file was cut meanwhile")
        filled += length
    return found


def moved(records: Records, by_us: int) -> Records:
    """The same records, later by so much; what never happened does not move."""
    if by_us:
        for name in INSTANTS:
            if name in (records.dtype.names or ()):
                instants = records[name]
                np.add(instants, by_us, out=instants, where=instants != NEVER)
    return records
