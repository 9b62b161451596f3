"""Columns of stored records, converted to those of their log when they are read.

Records of a file may need other numbers for their names, later instants, and fields for their makers. Most analyses
read few columns, so `Columns` converts each column at its first use, and never copies whole records for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.timinglog.records import INSTANTS, MAKERS, NAMES, NEVER, Kind, Records, chosen, opaque, placed_us


@dataclass(frozen=True, slots=True)
class Columns:
    """Some records of a kind, `stored` as plain or as named records.

    `makers` (numbers of names) made the plain ones. `shift_us` is added to the stored instants. `renumber` maps stored
    numbers of names to those of the log; None leaves them.
    """

    kind: Kind
    stored: Records
    makers: tuple[int, ...] = ()
    shift_us: int = 0
    renumber: NDArray[np.uint16] | None = None
    _made: dict[str, NDArray[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a converted column, read-only."""
        if name not in self._made:
            self._made[name] = self._column(name)
        return self._made[name]

    def _column(self, name: str) -> NDArray[Any]:
        if name in MAKERS and not self._named:
            return np.full(len(self), self.makers[MAKERS.index(name)], np.uint16)
        column = np.ascontiguousarray(self.stored[name])
        if name in NAMES and self.renumber is not None:
            return self.renumber.take(column, mode="clip")
        if name in INSTANTS and self.shift_us:
            return _later(column, self.shift_us)
        return column

    @property
    def _named(self) -> bool:
        return self.stored.itemsize == self.kind.named.itemsize

    @property
    def placed_us(self) -> NDArray[np.int64]:
        placed = placed_us(self.stored)
        placed += self.shift_us
        return placed

    def kept(self, which: NDArray[np.bool_] | NDArray[np.intp]) -> Columns:
        """Return the records that a mask or an array of indices selects."""
        return replace(self, stored=chosen(self.stored, which))

    def moved(self, renumber: NDArray[np.uint16] | None, shift_us: int) -> Columns:
        """Return these records with other numbers for their names, and later by `shift_us`."""
        both = renumber if self.renumber is None or renumber is None else renumber[self.renumber]
        return Columns(
            kind=self.kind,
            stored=self.stored,
            makers=self.makers if renumber is None else tuple(int(renumber[maker]) for maker in self.makers),
            shift_us=self.shift_us + shift_us,
            renumber=self.renumber if both is None else both,
        )

    def records(self) -> Records:
        """Return the records with their makers, read-only."""
        if self._named and self.renumber is None and not self.shift_us:
            return self.stored
        records: Records = np.empty(len(self), self.kind.named)
        self.write_into(records)
        return records

    def write_into(self, records: Records) -> None:
        """Write these records into an array of as many named records."""
        if self._named:
            opaque(records)[...] = opaque(self.stored)
        else:
            halves = records.view(self.kind.halves)
            halves["plain"] = opaque(self.stored)
            halves["makers"] = np.array(self.makers, np.uint16).view(halves.dtype["makers"])
        for name in self.stored.dtype.names or ():
            if (name in NAMES and self.renumber is not None) or (name in INSTANTS and self.shift_us):
                records[name] = self._column(name)


def concatenate(parts: Iterable[Columns], kind: Kind, most: int) -> Records:
    """Return the records of all parts, at most `most`, in one array."""
    records: Records = np.empty(most, kind.named)
    filled = 0
    for part in parts:
        part.write_into(records[filled : filled + len(part)])
        filled += len(part)
    return records[:filled]


def _later(instants_us: NDArray[np.int64], by_us: int) -> NDArray[np.int64]:
    """Add `by_us` to all instants but `NEVER`."""
    later = instants_us + by_us
    if (never := instants_us == NEVER).any():
        later[never] = NEVER
    return later
