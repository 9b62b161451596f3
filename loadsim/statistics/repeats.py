"""The spread of a time between repeated runs of a scenario, and the confidence interval of its mean.

The run is the unit of replication. Runs vary with the start of the server, the layout of the disk, and the load of a
shared machine. The records of one run do not show this. As in `compare`, the mean is geometric, and the interval is
that of logarithms: no end of it is below zero.
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
"""About the logarithm of the largest float, to which an end of an interval is clipped."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A time of some runs in ms: geometric mean, and its t-interval; a single run has none."""

    mean: float
    low: float | None = None
    high: float | None = None


def spread(times_ms: Sequence[float]) -> Spread:
    """Return the spread of a time of at least one run."""
    if len(times_ms) == 1:
        return Spread(times_ms[0])
    logarithms = [math.log(max(time_ms, RESOLUTION_MS)) for time_ms in times_ms]
    middle = fmean(logarithms)
    reach = one_critical_t(1 - LEVEL, len(times_ms) - 1) * stdev(logarithms) / math.sqrt(len(times_ms))
    low, mean, high = (math.exp(min(end, _LARGEST)) for end in (middle - reach, middle, middle + reach))
    return Spread(mean, low, high)


def medians_by(users: Sequence[float], figures: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return one value per run: the median of runs with equally many users at the first, None at the others."""
    alike: defaultdict[float, list[float]] = defaultdict(list)
    for number, figure in zip(users, figures, strict=True):
        if figure is not None:
            alike[number].append(figure)
    return tuple(
        median(alike.pop(number)) if figure is not None and number in alike else None
        for number, figure in zip(users, figures, strict=True)
    )
