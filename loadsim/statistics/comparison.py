"""Statistics for comparing one figure between two sets of runs; the run is the unit of replication.

The problem: 10,000 READs in one run are not 10,000 witnesses. All met the same caches, neighbours and minute of the
day, so two runs of one server differ by far more than their READs suggest. One run is one witness, and a verdict needs
several from each side.

Tests use logarithms of times: slower servers differ by a factor, and logarithms are nearly symmetric. An example:

    base   10.0  10.4   9.8  10.2  10.1 ms      mean of the logarithms 2.312, variance 0.0005
    new    11.1  10.9  11.6  11.0  11.2 ms                             2.412           0.0006

The difference is 0.0998, a ratio of 1.105. Its standard error is sqrt(0.00049 / 5 + 0.00058 / 5) = 0.0146, and with
seven degrees of freedom the 95 % interval is 0.0998 +- 2.36 x 0.0146, or 1.067 to 1.144. It excludes 1: new is slower.

- `welch`: Welch's test, as a busy version may also vary more. With few runs, one set may vary little by chance; so the
  degrees of freedom are the smaller set's, lest chance decide.
- `holm`: at 5 % each, one figure in 20 differs by chance; p values are corrected for their number. Intervals are not:
  each belongs to its own figure.
- `level`: looking again after more runs gives chance another opportunity, so the planned `looks` share the error.
- `deviations_needed`, `repeats_needed`: the difference that such runs could have shown, and how many more runs would
  settle it. Both are simulated, since the degrees of freedom are random too.
- `larger_share_p`, `not_more_p`: Barnard's test, for events that either happen in a run or do not, such as lost mail.

Degrees of freedom are whole numbers, and Student's t is an exact sum: no library is needed. `docs/decisions` has the
reasons.
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
"""The probability of finding a detectable difference."""

RESOLUTION_MS = 0.001
"""The resolution of times, whole microseconds: the shortest time, and the least variation."""

MOST_DETECTABLE = 100.0
"""The largest ratio to show as detectable."""

MOST_REPEATS = 100
"""The most further runs to recommend."""

_DRAWS = 20_000
"""The number of simulated comparisons, which gives detectable differences to within a few tenths of a percent."""

_LARGEST = 700.0
"""Roughly the logarithm of the largest float; the ends of intervals are clipped to it."""

_GRID = 1_001
"""The number of probabilities at which Barnard's test is evaluated; odd, since most maxima are at 1/2."""

_SERVERS = 4_000
"""The number of simulated servers, which gives shares to within 0.8 %."""

Decision = Literal["passed", "failed", "undecided"]


@dataclass(frozen=True, slots=True)
class Sampled:
    """One figure, in ms, for each run in two sets: a task's 95th percentile, say, or the score."""

    name: str
    base_ms: Sequence[float]
    new_ms: Sequence[float]

    @property
    def finite(self) -> Sampled:
        """The figures, without infinite ones."""
        sides = ([time_ms for time_ms in side if math.isfinite(time_ms)] for side in (self.base_ms, self.new_ms))
        return Sampled(self.name, *sides)

    def interval(self, alpha: float, stretch: float = 1.0) -> tuple[float, float] | None:
        """Return the ends of the interval for new / base at level 1 - `alpha`; None if a side has only one run."""
        if min(len(self.base_ms), len(self.new_ms)) < 2:
            return None
        low, high = welch(_logarithms([self.base_ms]), _logarithms([self.new_ms]), stretch).interval(alpha)
        return float(low[0]), float(high[0])


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference in one figure between two sets of runs. Means are geometric; `ratio` is new / base.

    `low` and `high` bound the ratio's own interval at `level(looks)`. `p` is corrected for figures and looks.
    `detectable` is the smallest ratio above 1 that such runs would show with a probability of 80 %, also corrected; it
    is None above `MOST_DETECTABLE`. All four are None if a side has only one run, or if a mean is infinite. The ratio
    of infinite means is 1.
    """

    name: str
    base_ms: float
    new_ms: float
    difference_ms: float
    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    detectable: float | None = None

    @property
    def change(self) -> Literal["slower", "faster"] | None:
        """The change that the runs show in the second set; None if they show none."""
        if self.p is None or self.p > ALPHA:
            return None
        return "slower" if self.ratio > 1 else "faster"


def level(looks: int) -> float:
    """Return the level of intervals for this number of comparisons of growing sets.

    All looks together claim a false difference with a probability of at most `ALPHA`, whenever they happen
    (Bonferroni).
    """
    return 1 - ALPHA / looks


def compare(samples: Sequence[Sampled], looks: int = 1, stretch: float = 1.0) -> tuple[Difference, ...]:
    """Return the differences in several figures of the same runs; `p` is corrected for their number (Holm 1979).

    `looks` is the planned number of comparisons as the sets grow. `stretch` comes from `run_order`.
    """
    if not samples:
        return ()
    base, new = (_logarithms([getattr(sample, side) for sample in samples]) for side in ("base_ms", "new_ms"))
    # Round off the error of the logarithms, so that the mean of a single run is that run's figure.
    means = [[float(f"{mean_ms:.12g}") for mean_ms in np.exp(side.mean(axis=-1))] for side in (base, new)]
    plain = [
        Difference(sample.name, base_ms, new_ms, 0.0, 1.0)
        if new_ms == base_ms
        else Difference(sample.name, base_ms, new_ms, new_ms - base_ms, new_ms / base_ms)
        for sample, base_ms, new_ms in zip(samples, *means, strict=True)
    ]
    if min(_runs(base, new)) < 2:
        return tuple(plain)
    infinite = [math.isinf(difference.base_ms + difference.new_ms) for difference in plain]
    base[infinite] = new[infinite] = 0.0  # stands in for figures that Welch's test cannot take
    test = welch(base, new, stretch)
    low, high = test.interval(ALPHA / looks)
    corrected = np.minimum(holm(test.p_values()) * looks, 1.0)
    needed = deviations_needed(*_runs(base, new), ALPHA / looks / len(samples))
    apart = pooled_deviation(base, new) * needed * stretch
    return tuple(
        difference
        if infinite[at]
        else replace(
            difference,
            low=float(low[at]),
            high=float(high[at]),
            p=float(corrected[at]),
            detectable=math.exp(apart[at]) if apart[at] <= math.log(MOST_DETECTABLE) else None,
        )
        for at, difference in enumerate(plain)
    )


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's test for many pairs of sets, in arrays of one shape.

    `difference` is the difference of the means (new - base), `error` its standard error, and `freedom` its degrees of
    freedom, whole numbers of at least 1.
    """

    difference: Floats
    error: Floats
    freedom: NDArray[np.int64]

    def p_values(self) -> Floats:
        """Return the probability that equal sets would differ at least as much."""
        return two_sided_p(self.difference / self.error, self.freedom)

    def interval(self, alpha: float) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of the ratio's interval at level 1 - `alpha`."""
        half = critical_t(alpha, self.freedom) * self.error
        low, high = (np.clip(end, -_LARGEST, _LARGEST) for end in (self.difference - half, self.difference + half))
        return np.exp(low), np.exp(high)


def welch(base: Floats, new: Floats, stretch: float = 1.0) -> Welch:
    """Test logarithms of times in ms; the last axis has at least two runs. Errors are multiplied by `stretch`.

    Degrees of freedom are Satterthwaite's for two sets of the smaller size, rounded down. With the real sizes, a small
    set that happens to vary little would give false differences.
    """
    error, freedom = error_and_freedom(_variance(base), _variance(new), _runs(base, new))
    return Welch(np.asarray(new.mean(axis=-1) - base.mean(axis=-1)), error * stretch, freedom)


def error_and_freedom(base: Floats, new: Floats, runs: tuple[int, int]) -> tuple[Floats, NDArray[np.int64]]:
    """Return the error and the degrees of freedom of a difference between means, from the variances between runs."""
    of_base, of_new = base / runs[0], new / runs[1]
    both = of_base + of_new
    freedom = (min(runs) - 1) * both**2 / (of_base**2 + of_new**2)
    # 1e-9: rounding errors must not turn a whole number into the next lower one.
    return np.sqrt(both), np.floor(freedom + 1e-9).astype(np.int64)


def holm(p_values: Floats) -> Floats:
    """Correct p values for their number, along the last axis (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)
    scaled = np.take_along_axis(p_values, order, axis=-1) * np.arange(count, 0, -1)
    corrected = np.empty_like(scaled)
    np.put_along_axis(corrected, order, np.minimum(np.maximum.accumulate(scaled, axis=-1), 1.0), axis=-1)
    return corrected


@lru_cache(maxsize=1024)
def larger_share_p(events: tuple[int, int], runs: tuple[int, int]) -> float:
    """Return Barnard's one-sided p for a larger share in new than in base, from the events and runs of each.

    It is the largest probability of shares at least as far apart, over all shares that both sides may have in common
    (Barnard, Biometrika 34, 1947).
    """
    common = np.linspace(0, 1, _GRID)
    of_base, of_new = (
        np.array([math.comb(count, hits) * common**hits * (1 - common) ** (count - hits) for hits in range(count + 1)])
        for count in runs
    )
    apart = np.arange(runs[1] + 1) * runs[0] - np.arange(runs[0] + 1)[:, np.newaxis] * runs[1]
    as_far = apart >= events[1] * runs[0] - events[0] * runs[1]
    return min(float(np.einsum("bn,bq,nq->q", as_far.astype(np.float64), of_base, of_new).max()), 1.0)


@lru_cache(maxsize=1024)
def not_more_p(events: tuple[int, int], runs: tuple[int, int], more: float) -> float:
    """Return the one-sided p for ruling out that new's share exceeds base's by `more` or above (unconditional).

    Results are ordered by their distance from `more`, in standard errors at the likeliest shares this far apart
    (Farrington and Manning, Statistics in Medicine 9, 1990).
    """
    of_base = np.linspace(0, 1 - more, _GRID)
    of_new = of_base + more
    base, new = (
        np.array([math.comb(count, hits) * share**hits * (1 - share) ** (count - hits) for hits in range(count + 1)])
        for count, share in zip(runs, (of_base, of_new), strict=True)
    )
    likely = base[:, np.newaxis] * new
    errors = np.sqrt(of_base * (1 - of_base) / runs[0] + of_new * (1 - of_new) / runs[1])[likely.argmax(axis=-1)]
    apart = np.arange(runs[1] + 1) / runs[1] - np.arange(runs[0] + 1)[:, np.newaxis] / runs[0] - more
    deviates = apart / np.maximum(errors, RESOLUTION_MS)
    return min(float(likely[deviates <= deviates[events] + RESOLUTION_MS].sum(axis=0).max()), 1.0)


def enough_runs(more: float, alpha: float) -> int:
    """Return the fewest runs per set that rule out such an excess (`not_more_p`) if no run has the event."""
    return next(runs for runs in range(1, MOST_REPEATS) if not_more_p((0, 0), (runs, runs), more) <= alpha)


def _logarithms(times_ms: Sequence[Sequence[float]]) -> Floats:
    return np.log(np.maximum(np.array(times_ms, dtype=np.float64), RESOLUTION_MS))


def _variance(logarithms: Floats) -> Floats:
    """Return the variance between runs; at least the variance from rounding to a microsecond."""
    rounding = RESOLUTION_MS**2 / 12 * np.exp(-2 * logarithms.mean(axis=-1))
    return np.asarray(np.maximum(logarithms.var(axis=-1, ddof=1), rounding))


def _runs(base: Floats, new: Floats) -> tuple[int, int]:
    return base.shape[-1], new.shape[-1]


def pooled_deviation(base: Floats, new: Floats) -> Floats:
    """Return both sets' common standard deviation between runs: few runs give a poor estimate for each set alone."""
    free = [count - 1 for count in _runs(base, new)]
    both = sum(count * _variance(side) for count, side in zip(free, (base, new), strict=True))
    return np.sqrt(both / sum(free))


@lru_cache(maxsize=1024)
def deviations_needed(base_runs: int, new_runs: int, alpha: float) -> float:
    """Return the difference that the test finds with probability `POWER`, in standard deviations between runs.

    It is simulated with normal logarithms and a fixed seed. There is no formula, since the test's degrees of freedom
    vary from one comparison to the next.
    """
    draw = np.random.default_rng(20)
    runs = base_runs, new_runs
    base, new = (draw.chisquare(count - 1, _DRAWS) / (count - 1) for count in runs)
    error, freedom = error_and_freedom(base, new, runs)
    missed_by = draw.standard_normal(_DRAWS) * math.sqrt(1 / base_runs + 1 / new_runs)
    return float(np.quantile(critical_t(alpha, freedom) * error - missed_by, POWER))


def repeats_needed(
    sample: Sampled, max_regression: float, looks: int = 1, corrected: float = 1.0, stretch: float = 1.0
) -> int | None:
    """Return how many more runs of each set would settle it, with probability `POWER`.

    Ratio and variance are uncertain, so servers are drawn from their posterior distribution: normal logarithms with one
    variance, and a flat prior. None if it takes more than `MOST_REPEATS`, or if a side has only one run. To fail needs
    an interval at level 1 - `ALPHA` / `looks` / `corrected`.
    """
    base, new = _logarithms([sample.base_ms]), _logarithms([sample.new_ms])
    runs = _runs(base, new)
    if min(runs) < 2:
        return None
    means = 0.0, float(new.mean() - base.mean()) - math.log(1 + max_regression)
    squares = [float(_variance(side)[0]) * (count - 1) for side, count in zip((base, new), runs, strict=True)]

    # Draw servers.
    draw = np.random.default_rng(21)
    variance = sum(squares) / draw.chisquare(sum(runs) - 2, _SERVERS)
    deviation = np.sqrt(variance)
    true = [
        mean + draw.standard_normal(_SERVERS) * deviation / math.sqrt(count)
        for mean, count in zip(means, runs, strict=True)
    ]

    def enough(more: int) -> bool:
        """Return True if this many further runs settle it for enough servers."""
        draw = np.random.default_rng(more)
        sides = []
        for mean, square, count, of_server in zip(means, squares, runs, true, strict=True):
            added = of_server + draw.standard_normal(_SERVERS) * deviation / math.sqrt(more)
            within = variance * draw.chisquare(more - 1, _SERVERS) if more > 1 else 0.0
            between = (added - mean) ** 2 * count * more / (count + more)
            together = (count * mean + more * added) / (count + more)
            sides.append((together, (square + within + between) / (count + more - 1)))
        (of_base, base_variance), (of_new, new_variance) = sides
        error, freedom = error_and_freedom(base_variance, new_variance, (runs[0] + more, runs[1] + more))
        apart, error = of_new - of_base, error * stretch
        passes = apart < -critical_t(ALPHA / looks, freedom) * error
        return float(np.mean(passes | (apart > critical_t(ALPHA / looks / corrected, freedom) * error))) >= POWER

    more = bisect_left(range(1, MOST_REPEATS + 1), True, key=enough) + 1
    return more if more <= MOST_REPEATS else None


LOOKS_WITH_REPEATS = 2
"""The fewest looks for runs that are to be compared again after further repeats."""

MOST_LOOKS = 100
"""With more looks, the correction would leave no difference significant."""

# For whole degrees of freedom the distribution is a finite sum: no approximation, no library. Abramowitz and Stegun,
# Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.

_HALVINGS = 60
"""The number of times a right angle is halved to reach the precision of a float."""


def two_sided_p(statistics: Floats, freedom: NDArray[np.int64]) -> Floats:
    """Return the two-sided p for each Student's t; degrees of freedom are at least 1. The arrays have one shape."""
    p_values = np.empty_like(statistics)
    for whole in np.unique(freedom):
        same = freedom == whole
        p_values[same] = _beyond(statistics[same], int(whole))
    return p_values


def critical_t(alpha: float, freedom: NDArray[np.int64]) -> Floats:
    """Return the two-sided critical t for each number of degrees of freedom (at least 1); 0 < `alpha` < 1."""
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
    """Return 1 - A(t | freedom), in the handbook's notation."""
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
