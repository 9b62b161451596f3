"""Columns of stored records, read part by part, and converted for their log.

A log may number names differently from a file, move its instants, and add fields for the records' makers. Most analyses
read only a few columns, so `Columns` converts each column on first use, and never copies whole records.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.timinglog.file import BlockGroup
from loadsim.timinglog.records import INSTANTS, MAKERS, NAMES, NEVER, RecordKind, Records

READ_BYTES = 1 << 18
"""The most bytes to read at once: each second, engines write a small block of each kind."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one kind, as `stored` in a file.

    `makers` are the numbers of their makers' names in the log. `shift_us` is added to the stored instants. `renumber`
    maps stored numbers of names to the log's; None leaves them unchanged. Tasks appear as if the generator had been at
    most `most_late_s` late. `part_of` has the records of which these are a part, at these places: parts share the
    converted columns.
    """

    kind: RecordKind
    stored: Records
    makers: tuple[int, ...]
    shift_us: int = 0
    renumber: NDArray[np.uint16] | None = None
    most_late_s: float = math.inf
    part_of: tuple[Columns, NDArray[np.intp]] | None = None
    _made: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.part_of[1] if self.part_of else self.stored)

    @property
    def client(self) -> int:
        """The number of the client's name."""
        return self.makers[MAKERS.index("client")]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a converted column, read-only."""
        if name not in self._made:
            self._made[name] = self._column(name)
        return self._made[name]

    def _column(self, name: str) -> NDArray[Any]:
        if name in MAKERS:
            return np.full(len(self), self.makers[MAKERS.index(name)], np.uint16)
        if self.part_of:
            whole, places = self.part_of
            return whole[name].take(places)
        column = np.ascontiguousarray(self.stored[name])
        if name in NAMES and self.renumber is not None:
            return self.renumber.take(column, mode="clip")
        if name in INSTANTS and self.shift_us:
            column = _later(column, self.shift_us)
        if self.most_late_s < math.inf and name in ("started_us", "ended_us"):
            beyond_s = np.maximum(self["late_generator_s"] - self.most_late_s, 0)
            return _later(column, -(beyond_s * 1e6).astype(np.int64))
        return column

    def kept(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        """Return the records that a mask or an array of indices selects."""
        if which.dtype == np.bool_ and which.all():
            return self
        whole, own = self.part_of or (self, np.arange(len(self)))
        return replace(self, part_of=(whole, own[which]))

    def by(self, *names: str) -> Iterator[Columns]:
        """Yield the records with each combination of values of these columns of names, sorted by them."""
        numbers = [self[name] for name in names]
        order = np.lexsort([number for number in reversed(numbers) if (number != number[:1]).any()] or numbers[:1])
        differ = np.logical_or.reduce([np.diff(number[order]) != 0 for number in numbers])
        return map(self.kept, np.split(order, np.flatnonzero(differ) + 1))

    def records(self) -> Records:
        records: Records = np.empty(len(self), self.kind.named)
        for name in records.dtype.names or ():
            records[name] = self._column(name)
        return records


def concatenate(parts: Iterable[Columns], kind: RecordKind, most: int) -> Records:
    records: Records = np.empty(most, kind.named)
    filled = 0
    for part in parts:
        records[filled : filled + len(part)] = part.records()
        filled += len(part)
    return records[:filled]


def _later(instants_us: NDArray[np.int64], by_us: int | NDArray[np.int64]) -> NDArray[np.int64]:
    later = instants_us + by_us
    if (never := instants_us == NEVER).any():
        later[never] = NEVER
    return later


@dataclass(frozen=True, slots=True)
class Stream:
    """A file's records of one kind, and how to convert them for a log (see `Columns`)."""

    path: Path
    kind: RecordKind
    groups: Sequence[BlockGroup]
    makers: tuple[int, ...]
    shift_us: int
    renumber: NDArray[np.uint16] | None = None
    most_late_s: float = math.inf

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    def moved(self, renumber: NDArray[np.uint16] | None, shift_us: int) -> Stream:
        """Return the stream as part of a merged log: with that log's numbers for names, and `shift_us` later."""
        makers = self.makers if renumber is None else tuple(int(renumber[maker]) for maker in self.makers)
        return replace(self, makers=makers, shift_us=self.shift_us + shift_us, renumber=renumber)

    def pieces(self) -> Iterator[Columns]:
        """Yield all records in the file's order. Raises `LogError` if the file has been removed or truncated."""
        try:
            with self.path.open("rb", buffering=0) as file:
                for group in self.groups:
                    yield self._columns(_bytes_of(self.path, file, group))
        except OSError as failure:
            raise LogError(f"{self.path}: expected to read it again, found: {failure.strerror}") from None

    def _columns(self, stored: NDArray[np.uint8]) -> Columns:
        records = stored.view(self.kind.plain)
        return Columns(self.kind, records, self.makers, self.shift_us, self.renumber, self.most_late_s)


def _bytes_of(path: Path, file: FileIO, group: BlockGroup) -> NDArray[np.uint8]:
    """Return a group's payloads, which were checked when the log was opened."""
    payloads = np.empty(group.pieces[:, 1].sum(), np.uint8)
    room, filled = payloads.data, 0
    for pieces in _near(group.pieces.tolist()):
        begin, end = pieces[0][0], sum(pieces[-1])
        if len(read := os.pread(file.fileno(), end - begin, begin)) < end - begin:
            wanted = f"expected {end - begin} bytes at byte {begin}"
            raise LogError(f"{path}: {wanted}, found that the file was truncated meanwhile")
        for at, length in pieces:
            room[filled : filled + length] = read[at - begin : at - begin + length]
            filled += length
    return payloads


def _near(pieces: Sequence[Sequence[int]]) -> Iterator[Sequence[Sequence[int]]]:
    """Group pieces that a single read of at most `READ_BYTES` covers, gaps included; a longer piece is on its own."""
    first = 0
    for place, (begin, length) in enumerate(pieces):
        if begin + length - pieces[first][0] > READ_BYTES and place > first:
            yield pieces[first:place]
            first = place
    yield pieces[first:]
