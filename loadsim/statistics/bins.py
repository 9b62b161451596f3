"""A window in slots of time: the slow hits of each slot.

Times on a server are correlated, so intervals and tests for trends count hits by slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.model.terms import Window

MOST_SLOTS = 500
LEAST_SLOT_S = 1.0
"""A window has as many slots as it has seconds, at most 500."""

_SLOT_BITS = 9

Series = NDArray[np.float64]
"""One figure for each slot of a window."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of a task in a window: their times, sorted, and the slot in which each was due. Weight 0: not scored."""

    task: str
    weight: float
    took_us: NDArray[Any]
    slot: NDArray[np.uint16]


def bins_in(window_s: Window) -> int:
    return min(MOST_SLOTS, int(window_s.length_s / LEAST_SLOT_S))


def bin_of(due_us: NDArray[np.int64], window_s: Window) -> NDArray[np.uint16]:
    """Return the slot of the window, from 0, of each instant; the nearest for instants outside."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    slots = bins_in(window_s)
    numbers = (due_us - begin_us) * slots // (end_us - begin_us)
    return np.clip(numbers, 0, max(slots - 1, 0)).astype(np.uint16)


def in_order(took_us: NDArray[Any], slot: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Sort hits by their times, with their bins.

    Time and bin share one number: sorting it is several times as fast as sorting an index.
    """
    both = took_us.astype(np.int64)
    both <<= _SLOT_BITS
    both |= slot
    both.sort()
    slots = both.astype(np.uint16)
    slots &= 2**_SLOT_BITS - 1
    both >>= _SLOT_BITS
    return both, slots


def slow_and_all(hits: Hits, slots: int, longer_than_us: float) -> tuple[Series, Series]:
    """Return slow and total hit counts per time bin."""
    # The same type avoids a conversion of all times.
    slow = hits.slot[np.searchsorted(hits.took_us, hits.took_us.dtype.type(longer_than_us), "right") :]
    return _tally(slow, slots), _tally(hits.slot, slots)


def _tally(slot: NDArray[np.uint16], slots: int) -> Series:
    """Count the hits of each bin, in chunks: numpy widens the numbers that it counts."""
    tally = np.zeros(slots, np.int64)
    for begin in range(0, len(slot), _AT_ONCE):
        tally += np.bincount(slot[begin : begin + _AT_ONCE], minlength=slots)
    return tally.astype(np.float64)


_AT_ONCE = 1 << 16


def excess(slow: Series, everything: Series) -> Series:
    """Return the slow hits of each slot above the number that its hits let expect.

    To first order, the error of a percentile is proportional to the sum of this series.
    """
    return np.asarray(slow - everything * (slow.sum() / everything.sum()))
