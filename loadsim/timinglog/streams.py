"""Streams: the records of one kind in a file, read part by part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.file import BlockGroup
from loadsim.timinglog.records import RecordKind


@dataclass(frozen=True, slots=True)
class Stream:
    """The records of one kind in a file, with what makes them those of a log (see `Columns`)."""

    path: Path
    kind: RecordKind
    groups: Sequence[BlockGroup]
    makers: tuple[int, ...]
    shift_us: int
    renumber: NDArray[np.uint16] | None = None

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    def moved(self, renumber: NDArray[np.uint16] | None, shift_us: int) -> Stream:
        """Return the stream of a file as a part of a merged log: with its numbers of names, and later by `shift_us`."""
        makers = self.makers if renumber is None else tuple(int(renumber[maker]) for maker in self.makers)
        return replace(self, makers=makers, shift_us=self.shift_us + shift_us, renumber=renumber)

    def pieces(self) -> Iterator[Columns]:
        """Yield all records in the order of the file. Raises `LogError` if the file has been removed or cut."""
        try:
            with self.path.open("rb", buffering=0) as file:
                for group in self.groups:
                    stored = _bytes_of(self.path, file, group).view(self.kind.plain)
                    yield Columns(self.kind, stored, self.makers, self.shift_us, self.renumber)
        except OSError as failure:
            raise LogError(f"{self.path}: expected to read it again, found: {failure.strerror}") from None


def _bytes_of(path: Path, file: FileIO, group: BlockGroup) -> NDArray[np.uint8]:
    """Return the payloads of a group, which were checked when the log was opened."""
    found = np.empty(group.length, np.uint8)
    filled = 0
    for begin, length in group.pieces:
        if os.preadv(file.fileno(), [found.data[filled : filled + length]], begin) < length:
            raise LogError(f"{path}: expected {length} bytes at byte {begin}, found that the file was cut meanwhile")
        filled += length
    return found
