"""Records of one kind that need not be in memory all at once: where they come from, and in which order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.file import Group, Index
from loadsim.timinglog.records import Kind

Span = tuple[int, int]
"""Instants [begin, end) in microseconds."""

EVER: Span = (-(1 << 63), (1 << 63) - 1)
"""All instants that fit into a record."""

_SMALL_GAP_BYTES = 1 << 16
"""What stands between the blocks of one kind is read with them, if it is less: that is faster than to leave it out."""

_PIECES_AT_ONCE = 512
"""So many pieces of a file are asked for at once; systems take at least 1,024 (IOV_MAX), gaps included."""

_HELD_GROUPS = 8
"""At most so many groups, of which one slice of time needed a part, are kept in memory for the next."""


class Stream(Protocol):
    """Records of one kind, each with who made it; instants at which they are placed are those of `placed_us`.

    What reads them raises `LogError` when a file has gone.
    """

    @property
    def count(self) -> int:
        """How many there are, at most."""

    @property
    def sample_us(self) -> NDArray[np.int64]:
        """The instants at which one in `SAMPLE_EVERY` is placed, spread evenly."""

    def pieces(self) -> Iterator[Columns]:
        """All of them in any order."""

    def parts(self, span: Span = EVER) -> Iterator[Columns]:
        """Those placed in the span, part after part, in the order of their log."""

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        """Those placed from each bound to the next, in parts of which each is in time order.

        What shares its instant stays in the order of its log.
        """


_Part = TypeVar("_Part")


def ahead(parts: Iterator[_Part]) -> Iterator[_Part]:
    """The same parts, each made in a thread while the caller is at work on the one before."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = beside.submit(next, parts, None)
            yield part


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

    def pieces(self) -> Iterator[Columns]:
        """See `Stream`; a piece is a group."""
        with self._opened() as file:
            for group in self.index.groups:
                yield self._columns(file, group)

    def parts(self, span: Span = EVER) -> Iterator[Columns]:
        """See `Stream`; a part is a group, and groups without a record in the span are not read."""
        begin_us, end_us = (bound_us + self.origin_us for bound_us in span)
        with self._opened() as file:
            for group in self.index.groups:
                if group.first_us < end_us and group.last_us >= begin_us:
                    columns = self._columns(file, group)
                    if group.first_us < begin_us or group.last_us >= end_us:
                        placed = columns.placed_us + self.origin_us
                        begin, end = max(begin_us, group.first_us), min(end_us, group.last_us + 1)
                        columns = columns.kept((placed >= begin) & (placed < end))
                    yield columns

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        """See `Stream`; a group that lies in several slices is read once, if all is as usual."""
        groups = self.index.groups
        firsts_us = np.array([group.first_us for group in groups], np.int64) - self.origin_us
        lasts_us = np.array([group.last_us for group in groups], np.int64) - self.origin_us
        held: dict[int, _InOrder] = {}
        with self._opened() as file:
            for begin_us, end_us in pairwise(bounds_us):
                needed = np.flatnonzero((firsts_us < end_us) & (lasts_us >= begin_us)).tolist()
                found = {
                    number: held.get(number) or _InOrder.of(self._columns(file, groups[number])) for number in needed
                }
                held = dict([one for one in found.items() if lasts_us[one[0]] >= end_us][-_HELD_GROUPS:])
                yield [some for one in found.values() if len(some := one.between(begin_us, end_us))]

    @contextmanager
    def _opened(self) -> Iterator[FileIO]:
        try:
            with self.path.open("rb", buffering=0) as file:
                yield file
        except OSError as failure:
            raise LogError(f"{self.path}: expected to read it again, found: {failure.strerror}") from None

    def _columns(self, file: FileIO, group: Group) -> Columns:
        stored = _bytes_of(self.path, file, group).view(self.kind.named if group.named else self.kind.plain)
        return Columns(self.kind, stored, self.makers, -self.origin_us)


@dataclass(frozen=True, slots=True)
class _InOrder:
    """Records and the order of time in which they are, with their instants in that order."""

    columns: Columns
    order: NDArray[np.intp]
    placed_us: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Columns) -> _InOrder:
        """In order; what shares its instant stays as it is."""
        placed_us = columns.placed_us
        order = in_order(placed_us)
        return cls(columns, order, placed_us[order])

    def between(self, begin_us: int, end_us: int) -> Columns:
        """Those from one instant to another, in time order."""
        begin, end = np.searchsorted(self.placed_us, [begin_us, end_us])
        return self.columns.kept(self.order[begin:end])


def in_order(instants_us: NDArray[np.int64]) -> NDArray[np.intp]:
    """The order of instants, by their place where they are the same.

    If they fit, instant and place are sorted as one number: that is twice as fast as any sort by way of an index.
    """
    bits = len(instants_us).bit_length()
    first_us, last_us = int(instants_us.min()), int(instants_us.max())
    if last_us - first_us >= 1 << 62 - bits:
        return np.argsort(instants_us, kind="stable")
    both = instants_us - first_us
    both <<= bits
    both |= np.arange(len(both))
    both.sort()
    both &= (1 << bits) - 1
    return both


def _bytes_of(path: Path, file: FileIO, group: Group) -> NDArray[np.uint8]:
    """The payloads of a group. They were checked when the log was opened."""
    found = np.empty(group.length, np.uint8)
    into, filled = found.data, 0
    for extent in _extents(group.pieces):
        offset, end = extent[0][0], extent[0][0]
        buffers = []
        for begin, length in extent:
            if begin > end:
                buffers.append(memoryview(bytearray(begin - end)))
            buffers.append(into[filled : filled + length])
            filled += length
            end = begin + length
        if os.preadv(file.fileno(), buffers, offset) < end - offset:
            raise LogError(
                f"{path}: expected {end - offset} bytes at byte {offset}, found that the file was cut meanwhile"
            )
    return found


def _extents(pieces: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    """The pieces (offset and length) of a file in sets that are better read at once, with what stands between them."""
    begin = 0
    for number, ((offset, length), following) in enumerate(pairwise(pieces), 1):
        if following[0] - offset - length > _SMALL_GAP_BYTES or number - begin == _PIECES_AT_ONCE:
            yield pieces[begin:number]
            begin = number
    yield pieces[begin:]
