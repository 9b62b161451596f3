"""Groups of users by their rates of messages: a mixture of normal distributions of the rates' logarithms.

How many groups there are is decided by the Bayesian information criterion (Schwarz 1978), among those divisions whose
groups are large enough and far enough apart to deserve profiles of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MOST_GROUPS = 4
LEAST_USERS = 10
LEAST_SHARE = 0.05
LEAST_RATIO = 2.0
RULE = (
    f"1 to {MOST_GROUPS} normal distributions of the logarithms of users' rates, as many as give the lowest BIC;"
    f" each with at least {LEAST_USERS} users, {LEAST_SHARE:.0%} of all, and {LEAST_RATIO:g} times the rate of the next"
)
"""The rule, as the report states it."""

_STEPS = 300
_LEAST_DEVIATION = 0.05
"""Of a logarithm: 5 %. Otherwise, users with equal counts would be a group without any variance."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Mixture:
    weights: Floats
    means: Floats
    deviations: Floats
    bic: float


def boundaries(counts: Sequence[int], days: float) -> list[float]:
    """Return the numbers of messages that divide users into groups, in ascending order; none for one group.

    `counts` has the messages of each user in `days` days.
    """
    numbers, users = np.unique(np.asarray(counts, dtype=np.float64), return_counts=True)
    logs = np.log((numbers + 0.5) / days)
    best = _fit(logs, users, 1, days)
    for groups in range(2, MOST_GROUPS + 1):
        if len(numbers) < 2 * groups or users.sum() < groups * LEAST_USERS:
            break
        found = _fit(logs, users, groups, days)
        if found.bic < best.bic and _deserves_profiles(found, logs, users):
            best = found
    return [math.exp(at) * days - 0.5 for at in _edges(best)]


def _fit(logs: Floats, users: npt.NDArray[np.int64], groups: int, days: float) -> _Mixture:
    """Fit a mixture by expectation and maximisation, from equal quantiles."""
    total = users.sum()
    places = np.searchsorted(np.cumsum(users), (np.arange(groups) + 0.5) / groups * total)
    means = logs[np.minimum(places, len(logs) - 1)].astype(np.float64)
    spread = math.sqrt(float(np.average((logs - np.average(logs, weights=users)) ** 2, weights=users)))
    deviations = np.full(groups, max(spread / groups, _LEAST_DEVIATION))
    weights = np.full(groups, 1 / groups)
    likelihood = -math.inf
    for _ in range(_STEPS):
        densities = _densities(logs, weights, means, deviations)
        together = densities.sum(axis=1) + 1e-300
        before, likelihood = likelihood, float((users * np.log(together)).sum())
        belongs = densities / together[:, None] * users[:, None]
        sums = belongs.sum(axis=0) + 1e-12
        weights, means = sums / total, (belongs * logs[:, None]).sum(axis=0) / sums
        variances = (belongs * (logs[:, None] - means) ** 2).sum(axis=0) / sums
        # A rate that was counted in so few messages varies by chance alone at least this much (Poisson).
        by_chance = 1 / (np.exp(means) * days + 1)
        deviations = np.sqrt(np.maximum(variances, np.maximum(by_chance, _LEAST_DEVIATION**2)))
        if abs(likelihood - before) < 1e-6 * max(1.0, abs(likelihood)):
            break
    order = np.argsort(means)
    bic = (3 * groups - 1) * math.log(total) - 2 * likelihood
    return _Mixture(weights[order], means[order], deviations[order], bic)


def _densities(logs: Floats, weights: Floats, means: Floats, deviations: Floats) -> Floats:
    scaled = (logs[:, None] - means) / deviations
    densities: Floats = weights * np.exp(-0.5 * scaled**2) / (deviations * math.sqrt(2 * math.pi))
    return densities


def _deserves_profiles(mixture: _Mixture, logs: Floats, users: npt.NDArray[np.int64]) -> bool:
    if (np.diff(mixture.means) < math.log(LEAST_RATIO)).any():
        return False
    members = np.bincount(np.searchsorted(_edges(mixture), logs), weights=users, minlength=len(mixture.means))
    return bool((members >= max(LEAST_USERS, LEAST_SHARE * users.sum())).all())


def _edges(mixture: _Mixture) -> list[float]:
    """Return where, between the means of neighbours, the upper one becomes the likelier."""
    edges = []
    for at in range(len(mixture.means) - 1):
        pair = slice(at, at + 2)
        grid = np.linspace(mixture.means[at], mixture.means[at + 1], 1001)
        lower, upper = _densities(grid, mixture.weights[pair], mixture.means[pair], mixture.deviations[pair]).T
        edges.append(float(grid[int(np.argmax(upper >= lower))]))
    return edges
