"""The spread of a time between repeated runs of a scenario, and the confidence interval of its mean.

The run is the unit of replication. Runs vary with the server's start, the disk's layout, and the load on a shared
machine, none of which the records of one run show. As in `compare`, the mean is geometric, and the interval is computed
from logarithms, so that neither end is below zero.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from loadsim.statistics.comparison import RESOLUTION_MS, one_critical_t

LEVEL = 0.95
"""The level of confidence intervals."""

_LARGEST = 700.0
"""Roughly the logarithm of the largest float; the ends of intervals are clipped to it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A time in several runs, in ms: the geometric mean and its t-interval, which a single run does not have."""

    mean: float
    low: float | None = None
    high: float | None = None


def spread(times_ms: Sequence[float]) -> Spread:
    """Return the spread of a time in at least one run."""
    if len(times_ms) == 1:
        return Spread(times_ms[0])
    logarithms = [math.log(max(time_ms, RESOLUTION_MS)) for time_ms in times_ms]
    middle = fmean(logarithms)
    reach = one_critical_t(1 - LEVEL, len(times_ms) - 1) * stdev(logarithms) / math.sqrt(len(times_ms))
    low, mean, high = (math.exp(min(end, _LARGEST)) for end in (middle - reach, middle, middle + reach))
    return Spread(mean, low, high)


def medians_by(users: Sequence[float], figures: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return a value per run: for the first run at each number of users, the median of all of them; else None."""
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for number, figure in zip(users, figures, strict=True):
        if figure is not None:
            alike[number].append(figure)
    return tuple(
        median(alike.pop(number)) if figure is not None and number in alike else None
        for number, figure in zip(users, figures, strict=True)
    )
