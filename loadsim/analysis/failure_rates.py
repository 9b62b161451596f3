"""Compare failure rates: a server that drops slow tasks otherwise looks faster.

Times are compared only if both sides have about the same failure rate.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadsim.analysis.compare import ALPHA, error_and_freedom, holm, two_sided_p

MORE_SHARE = 0.01
LEAST_MORE = 5
"""A side has more failures if its rate is larger by more than this share, and by at least this number of tasks."""

Side = Literal["base", "new"]


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a task in one run: planned tasks, and those that failed, never began or did not end."""

    planned: float
    unanswered: float


@dataclass(frozen=True, slots=True)
class FailureRates:
    """The counts of a task in each run of two sides that has it."""

    base: Sequence[Counts]
    new: Sequence[Counts]

    @property
    def base_share(self) -> float:
        """The failure rate in all runs of base: tasks without a hit by planned tasks; 0 if none was planned."""
        return _share(self.base)

    @property
    def new_share(self) -> float:
        return _share(self.new)

    @property
    def more(self) -> Side | None:
        """The side with more failures; None if the rates are about equal."""
        by_share = self.new_share - self.base_share
        by_tasks = by_share * sum(run.planned for run in (self.new if by_share > 0 else self.base))
        if abs(by_share) <= MORE_SHARE or abs(by_tasks) < LEAST_MORE:
            return None
        return "new" if by_share > 0 else "base"

    @property
    def p(self) -> float:
        """The probability of such a difference between equal servers, by Welch's test of the failure rates of runs.

        The variance between runs is at least that of tasks that fail independently. It is 1 with a single run on a
        side, and if no task failed or all did.
        """
        sides = [np.array([_share([run]) for run in side if run.planned]) for side in (self.base, self.new)]
        share = _share([*self.base, *self.new])
        if min(map(len, sides)) < 2 or share in (0, 1):
            return 1.0
        base, new = (
            np.maximum(
                shares.var(ddof=1), share * (1 - share) * np.mean([1 / run.planned for run in side if run.planned])
            )
            for shares, side in zip(sides, (self.base, self.new), strict=True)
        )
        error, freedom = error_and_freedom(base, new, (len(sides[0]), len(sides[1])))
        return float(two_sided_p(np.array([(sides[1].mean() - sides[0].mean()) / error]), np.array([freedom]))[0])


def _share(runs: Iterable[Counts]) -> float:
    runs = list(runs)
    planned = sum(run.planned for run in runs)
    return sum(run.unanswered for run in runs) / planned if planned else 0.0


def shown(tasks: Mapping[str, FailureRates], looks: int = 1) -> frozenset[str]:
    """Return the tasks whose difference is significant with `looks` comparisons, corrected for their number (Holm).

    Tasks without failures count, too: leaving them out would favour those that happen to have some.
    """
    if not tasks:
        return frozenset()
    corrected = holm(np.array([one.p for one in tasks.values()]))
    return frozenset(name for name, p in zip(tasks, corrected, strict=True) if p <= ALPHA / looks)


def more_failures(tasks: Mapping[str, FailureRates], significant: Container[str]) -> tuple[Side | None, bool]:
    """Return the side with more failures of a task (new before base), and True if those of a task are significant."""
    sides: tuple[Side, ...] = ("new", "base")
    for side in sides:
        if of_side := [name for name, task in tasks.items() if task.more == side]:
            return side, any(name in significant for name in of_side)
    return None, False
