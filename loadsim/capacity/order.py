"""A test of the assumption behind a capacity's confidence: results of a search do not depend on the order of its runs.

A server that gets slower from run to run, or has good and bad hours, gives equal results one after another. They look
like repeated observations, but are only one. If runs with the same number of users are independent and alike, all their
orders are equally likely. This permits a permutation test, which assumes no distribution (B. F. J. Manly,
*Randomization, Bootstrap and Monte Carlo Methods in Biology*, 3rd edition, chapter 11).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT = 0.1
"""The test's level: about this share of searches with independent runs ends undecided. With correlations of 0.9, fewer
than a tenth remain with a wrong interval (decision 51)."""

_DECAY = 0.8
"""The correlation between successive runs to which the statistic is most sensitive."""

_DRAWS = 2000
"""The number of random orders."""


def depends_on_order(users: Sequence[int], *figures: Sequence[float | None]) -> bool:
    """Return True if close runs are more alike than distant ones, by more than chance, in all figures.

    Each run, in order, has a number of users, and figures (None if unknown).
    """
    _, group = np.unique(np.array(users, np.int64), return_inverse=True)
    deviations = np.array([_deviations(group, np.array(figure, np.float64)) for figure in figures])
    if not deviations.any():
        return False
    place = np.arange(len(users))
    weights = np.triu(_DECAY ** np.abs(place[:, None] - place), 1)
    draw = np.random.default_rng(54)
    grouped = np.argsort(group, kind="stable")
    orders = np.empty((_DRAWS, len(users)), np.intp)
    orders[:, grouped] = np.argsort(group + draw.random(orders.shape), axis=1)
    drawn = sum(np.einsum("di,ij,dj->d", figure[orders], weights, figure[orders]) for figure in deviations)
    as_alike = np.count_nonzero(drawn >= np.einsum("fi,ij,fj->", deviations, weights, deviations) - 1e-9)
    return bool((1 + as_alike) / (1 + _DRAWS) <= SIGNIFICANT)


def _deviations(group: NDArray[np.intp], figure: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each figure's deviation from the mean of its group, in standard deviations; 0 if unknown."""
    known = np.flatnonzero(~np.isnan(figure))
    size = np.bincount(group[known])[group[known]]
    centred = figure[known] - np.bincount(group[known], figure[known])[group[known]] / size
    spread = np.sqrt(np.bincount(group[known], centred**2)[group[known]] / size)
    deviations = np.zeros(len(figure))
    deviations[known] = np.divide(centred, spread, out=np.zeros(len(known)), where=spread > 1e-9)
    return deviations
