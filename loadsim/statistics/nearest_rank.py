"""Nearest-rank percentiles: each is one of the samples."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from numpy.typing import NDArray


def rank(samples: int, percent: int | Fraction) -> int:
    """Return the position, from 1, of the nearest-rank percentile among sorted samples.

    The computation is exact: 7 % of 100 samples are 7, where floating point would give 8.
    """
    return max(1, math.ceil(Fraction(percent) * samples / 100))


def percentile(ordered: NDArray[Any], percent: int | Fraction, infinite: int = 0) -> float:
    """Return the nearest-rank percentile of sorted samples, followed by `infinite` more that are infinite.

    "95 percent of all response times recorded for that action were equal to or below that value" (IBM 1998, Appendix
    A). Raises `ValueError` without samples.
    """
    samples = len(ordered) + infinite
    if not samples:
        raise ValueError("no samples")
    at = rank(samples, percent)
    return float(ordered[at - 1]) if at <= len(ordered) else math.inf
