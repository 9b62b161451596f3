"""Student's t distribution for whole degrees of freedom, where it is a finite sum: no approximation, no library.

Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
    """Return the critical t for one number of degrees of freedom."""
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
