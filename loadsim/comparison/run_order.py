"""The order of two sets' runs. Successive runs are alike, so it matters whether the sets took turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

import numpy as np

CORRELATIONS = (0.3, 0.6, 0.9)
"""Correlations of successive runs, besides 0, for which error rates hold; between runs `n` apart, the nth power."""


def stretch(began: Sequence[Sequence[str | None]]) -> float:
    """Return the factor by which Welch's test underestimates its standard error, at least 1.

    `began` has the start times of each set, in ISO 8601. Runs that begin together count as taking turns; runs with
    unknown times do not. If sets take turns, the factor is 1.
    """
    starts = [(start, number, side) for side, times in enumerate(began) for number, start in enumerate(times)]
    if all(start for start, _, _ in starts):
        starts.sort()
    return _stretch(tuple(side == 0 for _, _, side in starts))


def alternate(began: Sequence[Sequence[str | None]]) -> bool:
    """Return True if each run follows one of the other set: a run's after-effects then always favour the same side.

    Runs that begin together follow no run. With a single run on a side, the result is False.
    """
    starts = sorted((start or "", side) for side, times in enumerate(began) for start in times)
    return min(map(len, began)) > 1 and all(
        one < another and side != other for (one, side), (another, other) in pairwise(starts)
    )


@lru_cache
def _stretch(is_base: tuple[bool, ...]) -> float:
    """Return the largest ratio of the true error to its expected estimate, over all correlations."""
    base = np.array(is_base)
    sides = [np.flatnonzero(base), np.flatnonzero(~base)]
    if min(map(len, sides)) < 2:
        return 1.0
    places = np.arange(len(base))
    weights = np.where(base, -1 / len(sides[0]), 1 / len(sides[1]))
    worst = 1.0
    for correlation in CORRELATIONS:
        alike = correlation ** np.abs(places - places[:, np.newaxis])
        estimated = sum((1 - alike[np.ix_(side, side)].mean()) / (len(side) - 1) for side in sides)
        worst = max(worst, float(weights @ alike @ weights / estimated))
    return math.sqrt(worst)


def stretched(p: float, factor: float) -> float:
    """Return a one-sided p after dividing its normal deviate by the factor of `stretch`."""
    normal = NormalDist()
    return normal.cdf(normal.inv_cdf(p) / factor) if 0 < p < 0.5 else p
