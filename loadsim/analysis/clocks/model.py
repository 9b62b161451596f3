"""A model of another machine's clock from readings of both clocks, with a bound on its error.

At the instant `at_ns` of our clock the other one shows `there_ns`, give or take `error_ns`. Between two readings the
model is a straight line. Let e0 and e1 be the errors of two readings, L the time between them, and s the share of it
that has passed, from 0 to 1. The error is at most the sum of two bounds:

  - (1 - s) e0 + s e1: the error of a chord through two points;
  - w s (1 - s) L, at most w L / 4: clocks wander, but their slope stays within a range of width w.

w is `WANDER`, unless the readings prove more: the rates between two pairs of readings may differ by more than errors
within the bounds explain. Then w is the least width that agrees with all pairs, so the model contradicts no reading. It
does not cover a clock that wandered more between readings.

Outside the readings, the line through the first and the last one continues. Its error grows with the possible error of
its slope: w, plus the errors of both readings divided by the time between them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

WANDER = 100e-6
"""The allowed change in the relative rate of two clocks while they are compared. Quartz changes by about 1e-6 with
temperature; the rest allows for a time service that adjusts the rates."""

MOST_RATE = 1e-3
"""The largest difference between rates: a time service may adjust each clock by 500e-6 (adjtimex(2))."""


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A reading of both clocks: at `at_ns` of ours the other showed `there_ns`, give or take `error_ns`."""

    at_ns: int
    there_ns: int
    error_ns: int

    @property
    def ahead_ns(self) -> int:
        return self.there_ns - self.at_ns

    def turned(self) -> Reading:
        """Return the reading as the other machine would state it."""
        return Reading(self.there_ns, self.at_ns, math.ceil(self.error_ns * (1 + MOST_RATE)))


@dataclass(frozen=True)
class OtherClock:
    """A clock with at least one reading; `readings` are in time order, at different instants. See `of`.

    Its rate relative to ours stays in a range of width `wander`, and within `most_rate` to either side. These are
    `WANDER` and `MOST_RATE` unless readings, including some that were left out, prove more.
    """

    readings: tuple[Reading, ...]
    wander: float = WANDER
    most_rate: float = MOST_RATE

    @classmethod
    def of(cls, readings: Iterable[Reading]) -> OtherClock:
        """Build the clock from readings in any order, leaving out those less exact than the model of the others.

        All readings determine `wander` first, so the model contradicts none that is left out. The most exact ones are
        added first. The rest are tried again, because adding a reading may increase the error elsewhere. Raises
        `ValueError` without readings.
        """
        in_time = sorted(readings)
        if not in_time:
            raise ValueError("expected a reading of the other clock, found none")
        wander, most_rate = _proven(in_time)
        best = {reading.at_ns: reading for reading in sorted(in_time, key=lambda reading: -reading.error_ns)}
        rest = sorted(best.values(), key=lambda reading: (reading.error_ns, reading.at_ns))
        kept: list[Reading] = []
        while True:
            left: list[Reading] = []
            for one in rest:
                place = bisect_left(kept, one)
                if 0 < place < len(kept):
                    known_ns = _between(kept[place - 1], kept[place], one.at_ns, wander)
                else:
                    known_ns = cls(tuple(kept), wander, most_rate).there(one.at_ns).error_ns if kept else math.inf
                if one.error_ns < known_ns:
                    kept.insert(place, one)
                else:
                    left.append(one)
            if len(left) == len(rest):
                return cls(tuple(kept), wander, most_rate)
            rest = left

    def there(self, at_ns: int) -> Reading:
        """Return what the other clock shows at an instant of our clock."""
        first = self.readings[0]
        ahead_ns, errors_ns = self.ahead(np.array([at_ns - first.at_ns], np.float64))
        return Reading(at_ns, at_ns + first.ahead_ns + round(float(ahead_ns[0])), math.ceil(errors_ns[0]) + 1)

    def ahead(self, since_ns: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how much its lead over our clock has grown `since_ns` after the first reading, and the errors.

        Values are nanoseconds, exact to about 0.01 ns within a day.
        """
        passed_ns = self._passed_ns
        before_ns, after_ns = np.maximum(-since_ns, 0), np.maximum(since_ns - passed_ns[-1], 0)
        ahead_ns = np.interp(since_ns, passed_ns, self._ahead_ns) + self.rate * (after_ns - before_ns)
        errors_ns = np.interp(since_ns, passed_ns, self._errors_ns) + self._rate_error * (after_ns + before_ns)
        if len(passed_ns) > 1:
            right = np.clip(np.searchsorted(passed_ns, since_ns), 1, len(passed_ns) - 1)
            length_ns = passed_ns[right] - passed_ns[right - 1]
            share = np.clip((since_ns - passed_ns[right - 1]) / length_ns, 0, 1)
            errors_ns += self.wander * share * (1 - share) * length_ns
        return ahead_ns, errors_ns

    @cached_property
    def rate(self) -> float:
        """The relative difference between the rates, from the first reading to the last; 0 for a single reading."""
        if len(self.readings) == 1:
            return 0.0
        return float(np.clip(self._ahead_ns[-1] / self._passed_ns[-1], -self.most_rate, self.most_rate))

    @cached_property
    def _rate_error(self) -> float:
        """The largest error of `rate` outside the readings."""
        if len(self.readings) == 1:
            return self.most_rate
        proven = (self._errors_ns[0] + self._errors_ns[-1]) / self._passed_ns[-1] + self.wander
        return float(min(self.most_rate + abs(self.rate), proven))

    @cached_property
    def _passed_ns(self) -> NDArray[np.float64]:
        """The times since the first reading, subtracted as integers: floats are too coarse for instants."""
        return np.array([reading.at_ns - self.readings[0].at_ns for reading in self.readings], np.float64)

    @cached_property
    def _ahead_ns(self) -> NDArray[np.float64]:
        return np.array([reading.ahead_ns - self.readings[0].ahead_ns for reading in self.readings], np.float64)

    @cached_property
    def _errors_ns(self) -> NDArray[np.float64]:
        return np.array([reading.error_ns for reading in self.readings], np.float64)


def _between(one: Reading, other: Reading, at_ns: int, wander: float) -> float:
    length_ns = other.at_ns - one.at_ns
    share = (at_ns - one.at_ns) / length_ns
    return (1 - share) * one.error_ns + share * other.error_ns + wander * share * (1 - share) * length_ns


def _proven(readings: Sequence[Reading]) -> tuple[float, float]:
    """Return the wander of the rate, and its distance from ours: `WANDER` and `MOST_RATE`, or more if proven.

    These are the least values with which a clock can pass through all readings within their errors. All pairs count,
    not only neighbours: among many poor readings, those far apart prove most.
    """
    first = readings[0]
    all_passed_ns = np.array([reading.at_ns - first.at_ns for reading in readings], np.float64)
    ahead_ns = np.array([reading.ahead_ns - first.ahead_ns for reading in readings], np.float64)
    errors_ns = np.array([reading.error_ns for reading in readings], np.float64)
    passed_ns, places = np.unique(all_passed_ns, return_inverse=True)
    if len(passed_ns) == 1:
        return WANDER, MOST_RATE
    low_ns, high_ns = np.full(len(passed_ns), -np.inf), np.full(len(passed_ns), np.inf)
    np.maximum.at(low_ns, places, ahead_ns - errors_ns)  # readings at one instant all hold
    np.minimum.at(high_ns, places, ahead_ns + errors_ns)
    fastest, slowest = _steepest(passed_ns, high_ns, low_ns), -_steepest(passed_ns, -low_ns, -high_ns)
    return max(WANDER, fastest - slowest), max(MOST_RATE, fastest, -slowest)


def _steepest(passed_ns: NDArray[np.float64], begin_ns: NDArray[np.float64], end_ns: NDArray[np.float64]) -> float:
    """Return the greatest slope from a point of `begin_ns` to a later one of `end_ns`, at the instants `passed_ns`.

    Each step draws lines of the current slope through the beginnings. The end highest above its line gives the next
    slope, until no end is above. This takes few steps, and no table of all pairs.
    """
    slope = float((end_ns[-1] - begin_ns[0]) / (passed_ns[-1] - passed_ns[0]))
    while True:
        begins_ns, ends_ns = begin_ns - slope * passed_ns, end_ns - slope * passed_ns
        end = 1 + int(np.argmax(ends_ns[1:] - np.minimum.accumulate(begins_ns)[:-1]))
        begin = int(np.argmin(begins_ns[:end]))
        steeper = float((end_ns[end] - begin_ns[begin]) / (passed_ns[end] - passed_ns[begin]))
        if steeper <= slope:
            return slope
        slope = steeper
