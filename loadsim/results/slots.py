"""A window in slots of time: how many hits in each of them were slow, and over how many slots that hangs together.

What happens on a server hangs together in time: a queue fills and empties, a disk is busy and free again. Whoever takes
its records for independent believes too much. Intervals and the search for trends ask here how far it reaches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_SLOTS = 500
LEAST_SLOT_S = 1.0
"""A window has as many slots as it has seconds, at most 500: enough to see how long a hiccup lasts."""

_SLOT_BITS = 9

_SIGNIFICANT_RUN = 5
"""Correlation has ended where it is insignificant at so many lags in a row (Politis and White 2004, section 3.2)."""

Series = NDArray[np.float64]
"""One figure for each slot of a window."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The hits of a task in a window: what each took, in microseconds and sorted, and in which slot it was due.

    A weight of 0: not scored.
    """

    task: str
    weight: float
    took_us: NDArray[Any]
    slot: NDArray[np.uint16]


def slots_in(window_s: tuple[float, float]) -> int:
    """How many slots a window has; 0 for one that is shorter than a slot."""
    return min(MOST_SLOTS, int((window_s[1] - window_s[0]) / LEAST_SLOT_S))


def slot_of(due_us: NDArray[np.int64], window_s: tuple[float, float]) -> NDArray[np.uint16]:
    """In which slot of the window, from 0, each instant lies; of one outside, the nearest."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    slots = slots_in(window_s)
    numbers = (due_us - begin_us) * slots // (end_us - begin_us)
    return np.clip(numbers, 0, max(slots - 1, 0)).astype(np.uint16)


def in_order(took_us: NDArray[Any], slot: NDArray[np.uint16]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Hits sorted by what they took, with their slots: in one number each, which is sorted several times as fast as by
    way of an index.
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
    """How many hits each slot of the window has that took longer than this, and how many at all."""
    # Of the same type: else all of them would be converted first.
    slow = hits.slot[np.searchsorted(hits.took_us, hits.took_us.dtype.type(longer_than_us), "right") :]
    return _tally(slow, slots), _tally(hits.slot, slots)


def _tally(slot: NDArray[np.uint16], slots: int) -> Series:
    """How often each slot occurs; looked at in parts, for numpy makes wide numbers of what it counts."""
    tally = np.zeros(slots, np.int64)
    for begin in range(0, len(slot), _AT_ONCE):
        tally += np.bincount(slot[begin : begin + _AT_ONCE], minlength=slots)
    return tally.astype(np.float64)


_AT_ONCE = 1 << 16


def excess(slow: Series, everything: Series) -> Series:
    """By how much there were more slow hits in each slot than its number of hits lets expect.

    To first order, a percentile is off by the mean of this series (times a constant): how the series hangs together is
    how the percentile's errors do.
    """
    share: Series = slow - everything * (slow.sum() / everything.sum())
    return share


def covariances(series: Series) -> Series:
    """The covariance of a series with itself, by lag from 0, as far as it hangs together; tapered to nought there.

    The flat-top window of Politis and White ("Automatic block-length selection for the dependent bootstrap", 2004):
    whole up to the lag where correlation has ended, then falling to nought at twice that.
    """
    length = len(series)
    centred = series - series.mean()
    covariance = np.correlate(centred, centred, "full")[length - 1 :] / length
    if covariance[0] <= 0:
        return np.zeros(1)
    limit = 2 * math.sqrt(math.log10(length) / length)
    farthest = min(math.isqrt(length - 1) + 1 + _SIGNIFICANT_RUN, length - 1)
    significant = np.flatnonzero(np.abs(covariance[1 : farthest + 1]) > limit * covariance[0]) + 1
    ended = 0
    for lag in significant.tolist():
        if lag > ended + _SIGNIFICANT_RUN:
            break
        ended = lag
    reach = min(2 * max(ended, 1), length - 1)
    taper = np.clip(2 * (1 - np.arange(reach + 1) / reach), 0, 1)
    tapered: Series = covariance[: reach + 1] * taper
    return tapered


def block_slots(series: Series) -> int:
    """How many slots a block of the circular block bootstrap needs, at least 1, for what hangs together in a series.

    Politis and White (2004), with the constant as corrected by Patton, Politis and White (2009); at most a third of the
    series and three times its root, as theirs.
    """
    covariance = covariances(series)
    lags = np.arange(len(covariance))
    long_run = 2 * float(covariance.sum()) - float(covariance[0])
    curvature = 2 * float((lags * covariance).sum())
    longest = min(3 * math.sqrt(len(series)), len(series) / 3)
    if curvature == 0:
        return 1
    if long_run <= 0:
        return math.ceil(longest)
    wanted = math.cbrt(1.5 * (curvature / long_run) ** 2 * len(series))
    return max(1, math.ceil(min(wanted, longest)))
