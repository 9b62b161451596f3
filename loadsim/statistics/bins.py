"""A window divided into time slots, and the slow hits in each.

Times on a server are correlated, so intervals and tests for trends count hits by slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.model.terms import Window
from loadsim.statistics.nearest_rank import rank

MOST_SLOTS = 500
LEAST_SLOT_S = 1.0
"""A window has as many slots as it has seconds, but at most 500."""

_SLOT_BITS = 9
_SLOT_MASK = (1 << _SLOT_BITS) - 1

Series = NDArray[np.float64]
"""One figure for each slot of a window."""


@dataclass(frozen=True, slots=True)
class Hits:
    """A task's hits in a window. A weight of 0 means that the task is not scored.

    `timed` has each hit's time (us) and, in the lowest bits, the slot in which it was due, sorted by time.
    """

    task: str
    weight: float
    timed: NDArray[Any]
    _by_slot: dict[int, Series] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.timed)

    def ranked_us(self, rank: int) -> int:
        """Return the time with this rank, counted from 1."""
        return int(self.timed[rank - 1]) >> _SLOT_BITS

    def percentile_us(self, percent: int) -> int:
        """Return the nearest-rank percentile of the times."""
        return self.ranked_us(rank(len(self.timed), percent))

    def by_slot(self, slots: int) -> Series:
        """Return the number of hits in each slot, counted once: tests for trends ask ten times."""
        if slots not in self._by_slot:
            self._by_slot[slots] = _tally(self.timed, slots)
        return self._by_slot[slots]


def bins_in(window_s: Window) -> int:
    return min(MOST_SLOTS, int(window_s.length_s / LEAST_SLOT_S))


def bin_of(due_us: NDArray[np.int64], window_s: Window) -> NDArray[np.uint16]:
    """Return the window's slot, from 0, for each instant; the nearest one for instants outside."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    slots = bins_in(window_s)
    numbers = (due_us - begin_us) * slots // (end_us - begin_us)
    return np.clip(numbers, 0, max(slots - 1, 0)).astype(np.uint16)


def timed(took_us: NDArray[Any], slot: NDArray[np.uint16]) -> NDArray[np.int64]:
    """Combine each time and its slot in one number: sorting these is several times as fast as sorting an index."""
    return took_us.astype(np.int64) << _SLOT_BITS | slot


def times_in(timed: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(timed >> _SLOT_BITS)


def slow_and_all(hits: Hits, slots: int, longer_than_us: int) -> tuple[Series, Series]:
    """Return the numbers of slow hits and of all hits in each slot."""
    # A number of the same type, so that numpy need not convert all times.
    last = hits.timed.dtype.type((longer_than_us + 1 << _SLOT_BITS) - 1)
    return _tally(hits.timed[np.searchsorted(hits.timed, last, "right") :], slots), hits.by_slot(slots)


def _tally(timed: NDArray[Any], slots: int) -> Series:
    """Count the hits in each slot, in chunks: numpy widens the numbers that it counts."""
    tally = np.zeros(slots, np.int64)
    for begin in range(0, len(timed), _AT_ONCE):
        tally += np.bincount(timed[begin : begin + _AT_ONCE] & _SLOT_MASK, minlength=slots)
    return tally.astype(np.float64)


_AT_ONCE = 1 << 16


def excess(slow: Series, everything: Series) -> Series:
    """Return how many more slow hits each slot has than its share of hits would suggest.

    To first order, the error of a percentile is proportional to the sum of this series.
    """
    return np.asarray(slow - everything * (slow.sum() / everything.sum()))
