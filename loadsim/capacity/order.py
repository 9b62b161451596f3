"""A test of the assumption behind a capacity's confidence: results of a search do not depend on the order of its runs.

A server that gets slower from run to run, or has good and bad hours, gives equal results one after the other. They look
like evidence, and are one observation. If the runs with each number of users are independent and equal, each order of
them is equally likely: a permutation test, which needs no distribution of any figure (B. F. J. Manly, *Randomization,
Bootstrap and Monte Carlo Methods in Biology*, 3rd edition, chapter 11).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT = 0.1
"""The test's level: at most this share of searches with independent runs ends undecided. With correlations of 0.9, it
leaves fewer than a tenth with a wrong interval (decision 51)."""

_DECAY = 0.8
"""The correlation of successive runs to which the statistic is most sensitive."""

_DRAWS = 2000
"""The number of random orders."""


def depends_on_order(users: Sequence[int], figures: Sequence[float | None]) -> bool:
    """Return True if near runs are more alike than distant ones beyond chance (`SIGNIFICANT`).

    Each run has a number of users and a figure, None if it is not known; runs are in their order.
    """
    figure = np.array(figures, np.float64)
    place = np.flatnonzero(~np.isnan(figure))
    deviation, group = _deviations(np.array(users)[place], figure[place])
    if not deviation.any():
        return False
    weights = np.triu(_DECAY ** np.abs(place[:, None] - place), 1)
    draw = np.random.default_rng(54)
    grouped = np.argsort(group, kind="stable")
    orders = np.empty((_DRAWS, len(place)))
    orders[:, grouped] = deviation[np.argsort(group + draw.random(orders.shape), axis=1)]
    found = np.einsum("di,ij,dj->d", orders, weights, orders)
    as_found = np.count_nonzero(found >= deviation @ weights @ deviation - 1e-9)
    return bool((1 + as_found) / (1 + _DRAWS) <= SIGNIFICANT)


def _deviations(users: NDArray[np.int64], figure: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return each figure's deviation from the mean of its number of users, in standard deviations, and its group."""
    _, group, size = np.unique(users, return_inverse=True, return_counts=True)
    centred = figure - (np.bincount(group, figure) / size)[group]
    spread = np.sqrt(np.bincount(group, centred**2) / size)[group]
    return np.divide(centred, spread, out=np.zeros(len(figure)), where=spread > 1e-9), group
