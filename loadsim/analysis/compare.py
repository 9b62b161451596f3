"""Is one set of runs slower than another? Arithmetic on one figure of each run; the run is the unit of replication.

All of it is done on logarithms: a server that is slower is slower by a factor, and times that are spread by factors are
symmetric there. Welch's test lets the two sets vary differently. Why just these methods is among the decisions in docs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALPHA = 0.05
"""The probability of claiming a difference between equal servers; 1 - ALPHA is the level of the intervals."""

POWER = 0.8
"""The probability of finding a difference of the size that is called detectable."""

RESOLUTION_MS = 0.001
"""Times are whole microseconds: they vary by their rounding at least, and none is known to be shorter."""

MOST_DETECTABLE = 100.0
"""Runs that do not show a hundredfold difference for sure show nothing."""

MOST_REPEATS = 100
"""More than these are not advised: the difference is too near to the limit to be worth them."""

_DRAWS = 20_000
"""Of imaginary comparisons: they give a detectable difference to some tenths of a percent of itself."""

_LARGEST = 700.0
"""The logarithm of about the largest number there is: two runs that vary wildly, looked at often, say no less."""

_SERVERS = 4_000
"""Drawn to find a share of comparisons, to within 0.8 %."""

Decision = Literal["passed", "failed", "undecided"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of each run of two sets, in ms: the 95th percentile of a task, say, or the score."""

    name: str
    base_ms: Sequence[float]
    new_ms: Sequence[float]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference between two sets of runs in one figure. Means are geometric; `ratio` is that of the means, new /
    base.

    `low` and `high` bound the ratio's interval of `level(looks)`, by itself. `p` is corrected for figures and looks.
    `detectable` is the smallest ratio above 1 that runs which vary as these do would have shown (corrected, too) with a
    probability of 80 %, or None when that is above `MOST_DETECTABLE`. All four are None with a single run on a side.
    """

    name: str
    base_ms: float
    new_ms: float
    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None

    @property
    def difference_ms(self) -> float:
        """New less base."""
        return self.new_ms - self.base_ms

    @property
    def change(self) -> Literal["slower", "faster"] | None:
        """Return the change that the runs show in the second set; None if they show none."""
        if self.p is None or self.p > ALPHA:
            return None
        return "slower" if self.ratio > 1 else "faster"


def level(looks: int) -> float:
    """The level of intervals when one looks so often at runs that become more: each look has its part of `ALPHA`.

    So that all looks together claim a difference that is none with probability `ALPHA` at most, whenever they are
    (Bonferroni).
    """
    return 1 - ALPHA / looks


def compare(samples: Sequence[Sample], looks: int = 1) -> tuple[Difference, ...]:
    """The differences of figures that are looked at together: `p` is corrected for their number (Holm 1979).

    All samples are of the same runs, and this is one of so many `looks` at them, of which the others have fewer runs or
    more.
    """
    if not samples:
        return ()
    base, new = (_logarithms([getattr(sample, side) for sample in samples]) for side in ("base_ms", "new_ms"))
    means = [tuple(map(float, np.exp(side.mean(axis=-1)))) for side in (base, new)]
    plain = [
        Difference(sample.name, base_ms, new_ms, new_ms / base_ms)
        for sample, base_ms, new_ms in zip(samples, *means, strict=True)
    ]
    if min(base.shape[-1], new.shape[-1]) < 2:
        return tuple(plain)
    test = welch(base, new)
    low, high = test.interval(ALPHA / looks)
    corrected = np.minimum(holm(test.p_values()) * looks, 1.0)
    apart = pooled_deviation(base, new) * deviations_needed(*_runs(base, new), ALPHA / looks / len(samples))
    return tuple(
        replace(
            one,
            low=float(low[at]),
            high=float(high[at]),
            p=float(corrected[at]),
            detectable=math.exp(apart[at]) if apart[at] <= math.log(MOST_DETECTABLE) else None,
        )
        for at, one in enumerate(plain)
    )


# --- the test ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's test, of many pairs of sets at once: arrays of one shape. `difference` is that of the means, new - base.

    `error` is its standard error, `freedom` its degrees of freedom, whole numbers of at least 1.
    """

    difference: Floats
    error: Floats
    freedom: NDArray[np.int64]

    def p_values(self) -> Floats:
        """Return the probability of a difference at least as large between equal sets."""
        return two_sided_p(self.difference / self.error, self.freedom)

    def interval(self, alpha: float) -> tuple[Floats, Floats]:
        """The ratio's interval of level 1 - `alpha`: below, above."""
        half = critical_t(alpha, self.freedom) * self.error
        low, high = (np.clip(end, -_LARGEST, _LARGEST) for end in (self.difference - half, self.difference + half))
        return np.exp(low), np.exp(high)


def welch(base: Floats, new: Floats) -> Welch:
    """The test of logarithms of times in ms; the last axis are the runs, two at least.

    Degrees of freedom are Satterthwaite's for two sets as small as the smaller one, rounded down: where one of few runs
    happens to vary little, the larger set would otherwise lend it its certainty, and differences would be found that
    are none.
    """
    return Welch(
        np.asarray(new.mean(axis=-1) - base.mean(axis=-1)),
        *error_and_freedom(_variance(base), _variance(new), _runs(base, new)),
    )


def error_and_freedom(base: Floats, new: Floats, runs: tuple[int, int]) -> tuple[Floats, NDArray[np.int64]]:
    """Of the difference of two means, from both variances between runs."""
    of_base, of_new = base / runs[0], new / runs[1]
    both = of_base + of_new
    freedom = (min(runs) - 1) * both**2 / (of_base**2 + of_new**2)
    # What is a whole number but for its last digits is not to be rounded down to the one before.
    return np.sqrt(both), np.floor(freedom + 1e-9).astype(np.int64)


def holm(p_values: Floats) -> Floats:
    """p values corrected for their number, along the last axis (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    scaled = np.take_along_axis(p_values, order, axis=-1) * np.arange(count, 0, -1)
    corrected = np.empty_like(scaled)
    np.put_along_axis(corrected, order, np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0), axis=-1)
    return corrected


def _logarithms(times_ms: Sequence[Sequence[float]]) -> Floats:
    return np.log(np.maximum(np.array(times_ms, dtype=np.float64), RESOLUTION_MS))


def _variance(logarithms: Floats) -> Floats:
    """Between runs; at least that of a time's rounding (uniform over a microsecond)."""
    rounding = RESOLUTION_MS**2 / 12 * np.exp(-2 * logarithms.mean(axis=-1))
    return np.asarray(np.maximum(logarithms.var(axis=-1, ddof=1), rounding))


def _runs(base: Floats, new: Floats) -> tuple[int, int]:
    return base.shape[-1], new.shape[-1]


# --- what could have been found ---------------------------------------------------------------------------------


def pooled_deviation(base: Floats, new: Floats) -> Floats:
    """The standard deviation between runs, of both sets together: of so few runs a better guess than each by itself."""
    free = [count - 1 for count in _runs(base, new)]
    both = sum(count * _variance(side) for count, side in zip(free, (base, new), strict=True))
    return np.sqrt(both / sum(free))


@lru_cache(maxsize=1024)
def deviations_needed(base_runs: int, new_runs: int, alpha: float) -> float:
    """Return the distance, in standard deviations between runs, at which two sets are told apart with probability
    `POWER`.

    Found by drawing imaginary comparisons with the errors of normal logarithms, always the same ones: the test's
    degrees of freedom change from one to the next, so there is no formula for its power.
    """
    draw = np.random.default_rng(20)
    runs = base_runs, new_runs
    base, new = (draw.chisquare(count - 1, _DRAWS) / (count - 1) for count in runs)
    error, freedom = error_and_freedom(base, new, runs)
    missed_by = draw.standard_normal(_DRAWS) * math.sqrt(1 / base_runs + 1 / new_runs)
    return float(np.quantile(critical_t(alpha, freedom) * error - missed_by, POWER))


# --- the limit --------------------------------------------------------------------------------------------------


def decide(difference: Difference, max_regression: float) -> Decision:
    """Compare the ratio's interval with the limit 1 + `max_regression`; `max_regression` is a share."""
    limit = 1 + max_regression
    if difference.low is None or difference.high is None:
        return "undecided"
    if difference.high < limit:
        return "passed"
    return "failed" if difference.low > limit else "undecided"


def repeats_needed(sample: Sample, max_regression: float, looks: int = 1) -> int | None:
    """Return how many more runs of each set decide with probability `POWER`, as far as these runs tell.

    They tell neither the ratio nor how runs vary for sure, so the servers are drawn from all that may have made these
    runs (normal logarithms that vary alike, nothing known before). None when it takes more than `MOST_REPEATS`, or when
    a single run on either side says nothing about how runs vary.
    """
    base, new = _logarithms([sample.base_ms]), _logarithms([sample.new_ms])
    runs = _runs(base, new)
    if min(runs) < 2:
        return None
    means = 0.0, float(new.mean() - base.mean()) - math.log(1 + max_regression)
    squares = [float(_variance(side)[0]) * (count - 1) for side, count in zip((base, new), runs, strict=True)]

    # What the servers may be.
    draw = np.random.default_rng(21)
    variance = sum(squares) / draw.chisquare(sum(runs) - 2, _SERVERS)
    deviation = np.sqrt(variance)
    true = [
        mean + draw.standard_normal(_SERVERS) * deviation / math.sqrt(count)
        for mean, count in zip(means, runs, strict=True)
    ]

    def enough(more: int) -> bool:
        """Return whether so many more runs of each decide for enough of these servers."""
        draw = np.random.default_rng(more)
        found = []
        for mean, square, count, of_server in zip(means, squares, runs, true, strict=True):
            added = of_server + draw.standard_normal(_SERVERS) * deviation / math.sqrt(more)
            within = variance * draw.chisquare(more - 1, _SERVERS) if more > 1 else 0.0
            between = (added - mean) ** 2 * count * more / (count + more)
            together = (count * mean + more * added) / (count + more)
            found.append((together, (square + within + between) / (count + more - 1)))
        (of_base, base_variance), (of_new, new_variance) = found
        error, freedom = error_and_freedom(base_variance, new_variance, (runs[0] + more, runs[1] + more))
        return float(np.mean(np.abs(of_new - of_base) > critical_t(ALPHA / looks, freedom) * error)) >= POWER

    more = bisect_left(range(1, MOST_REPEATS + 1), True, key=enough) + 1
    return more if more <= MOST_REPEATS else None


# --- several looks ----------------------------------------------------------------------------------------------

FIRST_LOOK = 3
"""The fewest runs of each that should be compared."""

MOST_LOOKS = 100
"""With more looks, the correction leaves no difference significant."""

MOST_LOOKED_AT = 30
"""Beyond so many runs of each, the share of false claims is still that of these."""


@lru_cache
def false_claims(runs: int) -> float:
    """Return how often equal sets are claimed to differ, with a look at each number of runs from 3 up to `runs`.

    Each look is a test at `ALPHA`, and the first claim counts. Found by drawing, always the same ones.
    """
    draw = np.random.default_rng(22)
    base, new = draw.standard_normal((2, _SERVERS, runs))
    claimed = np.zeros(_SERVERS, np.bool_)
    for count in range(FIRST_LOOK, runs + 1):
        claimed |= welch(base[:, :count], new[:, :count]).p_values() <= ALPHA
    return float(claimed.mean())


# --- Student's t --------------------------------------------------------------------------------------------------
#
# For whole degrees of freedom the distribution is a finite sum: no approximation, no library. Abramowitz and Stegun,
# Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.

_HALVINGS = 60
"""Of a right angle: what is left is below the rounding of a floating-point number."""


def two_sided_p(statistics: Floats, freedom: NDArray[np.int64]) -> Floats:
    """Return the probability that Student's t lies at least as far from 0, on either side, as each statistic.

    Arrays of one shape; degrees of freedom are at least 1.
    """
    found = np.empty_like(statistics)
    for whole in np.unique(freedom):
        of_these = freedom == whole
        found[of_these] = _beyond(statistics[of_these], int(whole))
    return found


def critical_t(alpha: float, freedom: NDArray[np.int64]) -> Floats:
    """For each number of degrees of freedom the t that is exceeded, on one side or the other, with probability `alpha`.

    `freedom` is at least 1, `alpha` above 0 and below 1.
    """
    different, places = np.unique(freedom, return_inverse=True)
    values = np.array([one_critical_t(alpha, int(whole)) for whole in different])
    return np.asarray(values[places].reshape(freedom.shape))


@lru_cache(maxsize=4096)
def one_critical_t(alpha: float, freedom: int) -> float:
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if float(_beyond(np.array(math.sqrt(freedom) * math.tan(middle)), freedom)) > alpha:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _beyond(statistics: NDArray[Any], freedom: int) -> Floats:
    """1 - A(t | freedom), for a whole number of degrees of freedom."""
    angles = np.arctan(np.abs(statistics) / math.sqrt(freedom))
    sine, cosine = np.sin(angles), np.cos(angles)
    odd = freedom % 2
    term = cosine if odd else np.ones_like(sine)
    total = np.zeros_like(sine)
    for step in range(1 + odd, freedom, 2):
        total = total + term
        term = term * cosine**2 * (step / (step + 1))
    within = (angles + sine * total) * (2 / math.pi) if odd else sine * total
    return np.asarray(np.clip(1.0 - within, 0.0, 1.0))
