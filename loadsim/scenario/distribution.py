"""Distributions of whole numbers with a published minimum, average and maximum."""

from __future__ import annotations

import math
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Annotated, Any

from loadsim.documents.schema import Amount, Count, Milliseconds, Size
from loadsim.documents.typed import ReadAs, mismatch, strict


@lru_cache(maxsize=1024)
def _decay(count: int, mean: float) -> float:
    """Find, by bisection, the d >= 0 for which chances proportional to exp(-d k), k = 0..count-1, have this mean.

    `mean` is above 0 and at most the midpoint, for which d is 0.
    """

    def mean_of(d: float) -> float:
        span = d * count
        if span < 1e-3:  # the closed form loses its digits here; the next term of the series is below 1e-15 * count
            return (count - 1) / 2 - d * (count**2 - 1) / 12 + d**3 * (count**4 - 1) / 720
        return 1 / math.expm1(d) - (count / math.expm1(span) if span < 700 else 0.0)

    low, high = 0.0, 700.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if mean_of(middle) > mean else (low, middle)
    return middle


@dataclass(frozen=True, slots=True)
class Distribution:
    """A truncated geometric distribution of whole numbers from `min` to `max`, with exactly this `average`.

    The papers publish these three numbers but no distribution. A triangular one cannot have a mean of 10 on [4, 50].
    """

    min: int
    average: float
    max: int

    def __post_init__(self) -> None:
        if self.min > self.average:
            raise mismatch("a minimum of at most the average", f"{self.min} above {self.average:g}")
        if self.average > self.max:
            raise mismatch("an average of at most the maximum", f"{self.average:g} above {self.max}")

    def at(self, u: float) -> int:
        """Return the inverse distribution function at `u` in [0, 1), in closed form."""
        low, high = self.average - self.min, self.max - self.average
        if not low or not high:
            return self.max if low else self.min
        if low > high:  # larger numbers are more likely: mirror a falling distribution
            return self.max - _falling(1 - u, self.max - self.min + 1, high)
        return self.min + _falling(u, self.max - self.min + 1, low)


def _falling(u: float, count: int, mean: float) -> int:
    """Return the inverse distribution function at `u`, which may be 1, for 0..count-1 with falling chances."""
    decay = _decay(count, mean)
    if not decay:
        return min(int(u * count), count - 1)
    above = u * math.expm1(-decay * count)  # minus the share below u
    return count - 1 if above <= -1 else min(int(math.log1p(above) / -decay), count - 1)


def _read_as(limit: Any, average: Any) -> ReadAs:
    """Return the annotation for a distribution whose numbers are read as these types."""
    keys = [("min", limit), ("average", average), ("max", limit)]
    section: Any = strict(make_dataclass("_Section", keys, frozen=True, slots=True))
    return ReadAs(section, lambda read: Distribution(read.min, float(read.average), read.max))


CountDistribution = Annotated[Distribution, _read_as(Count, Amount)]
DurationDistribution = Annotated[Distribution, _read_as(Milliseconds, Milliseconds)]
"""Durations in the file; milliseconds as values."""
SizeDistribution = Annotated[Distribution, _read_as(Size, Size)]
"""Sizes such as 22K in the file; bytes as values."""
