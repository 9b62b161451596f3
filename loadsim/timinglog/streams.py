"""Streams: the records of one kind, read part by part, in the order of the file or in slices of time."""

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

_SMALL_GAP_BYTES = 1 << 16
"""Blocks of a kind are read with smaller gaps between them, which is faster than separate reads."""

_PIECES_AT_ONCE = 512
"""The most pieces of a file per read. Systems accept at least 1,024 (IOV_MAX), gaps included."""

_HELD_GROUPS = 8
"""The most groups that stay in memory because the next slice of time needs them, too."""


class Stream(Protocol):
    """Records of one kind with their makers. Their place in time is that of `records.placed_us`.

    Reading raises `LogError` if a file has been removed or cut.
    """

    @property
    def count(self) -> int:
        """Return the most records that the stream can have."""

    @property
    def sample_us(self) -> NDArray[np.int64]:
        """Return the instants of one record in `SAMPLE_EVERY`, evenly spaced."""

    def pieces(self) -> Iterator[Columns]:
        """Yield all records in any order."""

    def parts(self) -> Iterator[Columns]:
        """Yield all records in the order of their log."""

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        """Yield the records from each bound to the next, in parts that are each in time order.

        Records with the same instant keep the order of their log.
        """


_Part = TypeVar("_Part")


def ahead(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Yield the parts, and make the next one in a thread while the caller uses one."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = thread.submit(next, parts, None)
            yield part


@dataclass(frozen=True, slots=True)
class FileStream:
    """The records of one kind in a file, counted from `origin_us`; `makers` (numbers of names) made the plain ones."""

    path: Path
    kind: Kind
    index: Index
    origin_us: int
    makers: tuple[int, ...]

    @property
    def count(self) -> int:
        return self.index.count

    @property
    def sample_us(self) -> NDArray[np.int64]:
        return self.index.sample_us - self.origin_us

    def pieces(self) -> Iterator[Columns]:
        return self.parts()

    def parts(self) -> Iterator[Columns]:
        with self._opened() as file:
            for group in self.index.groups:
                yield self._columns(file, group)

    def slices(self, bounds_us: Sequence[int]) -> Iterator[list[Columns]]:
        """Read a group of several slices once, unless more than `_HELD_GROUPS` are kept."""
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
    """Records with their time order, and their instants in that order."""

    columns: Columns
    order: NDArray[np.intp]
    placed_us: NDArray[np.int64]

    @classmethod
    def of(cls, columns: Columns) -> _InOrder:
        """Sort records; those with the same instant keep their order."""
        placed_us = columns.placed_us
        order = in_order(placed_us)
        return cls(columns, order, placed_us[order])

    def between(self, begin_us: int, end_us: int) -> Columns:
        """Return the records of [begin, end) in time order."""
        begin, end = np.searchsorted(self.placed_us, [begin_us, end_us])
        return self.columns.kept(self.order[begin:end])


def in_order(instants_us: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the indices that sort instants stably.

    If both fit into 62 bits, instant and index are sorted as one number, which is twice as fast as `argsort`.
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
    """Return the payloads of a group, which were checked when the log was opened."""
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
    """Yield consecutive pieces (offset and length) that one read takes, with the gaps between them."""
    begin = 0
    for number, ((offset, length), following) in enumerate(pairwise(pieces), 1):
        if following[0] - offset - length > _SMALL_GAP_BYTES or number - begin == _PIECES_AT_ONCE:
            yield pieces[begin:number]
            begin = number
    yield pieces[begin:]
