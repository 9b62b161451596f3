"""Compare failure rates: otherwise, a server that drops slow tasks would look faster.

Times are compared only if both sides have about the same failure rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from loadsim.statistics.comparison import one_critical_t

MORE_SHARE = 0.01
LEAST_MORE = 5
"""A side has more failures if its rate is higher by more than this share and at least this many tasks."""

MOST_FREEDOM = 200
"""With this many degrees of freedom, Student's t is nearly normal."""

Side = Literal["base", "new"]


@dataclass(frozen=True, slots=True)
class Counts:
    """A task's counts in one run: planned ones, and those that failed, or did not begin or end."""

    planned: float
    unanswered: float


@dataclass(frozen=True, slots=True)
class FailureRates:
    """A task's counts in the runs of both sides; `partial` if some runs do not have the task.

    `never` marks events that must not happen, such as lost mail.
    """

    base: Sequence[Counts]
    new: Sequence[Counts]
    never: bool = field(default=False, kw_only=True)
    partial: bool = field(default=False, kw_only=True)

    @property
    def base_share(self) -> float:
        """The failure rate over all of base's runs: the share of planned tasks without a hit; 0 if none was planned."""
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
    def allowed(self) -> float:
        """The largest difference at which new does not count as worse."""
        return 0.0 if self.never else max(MORE_SHARE, LEAST_MORE / max(sum(run.planned for run in self.new), 1))

    def interval(self, alpha: float, stretch: float = 1.0) -> tuple[float, float] | None:
        """Return the interval of new - base at level 1 - `alpha`, by Welch's test of the runs' rates.

        The variance between runs is at least what it would be if tasks failed independently. This part is known, and
        only the rest costs degrees of freedom. `stretch` is that of `run_order`. None with a single run on a side.
        """
        sides = [[run for run in side if run.planned] for side in (self.base, self.new)]
        runs = min(map(len, sides))
        if runs < 2:
            return None
        share = min(_share([*self.base, *self.new]), 1.0)
        rates = [np.array([_share([run]) for run in side]) for side in sides]
        known = [share * (1 - share) * float(np.mean([1 / run.planned for run in side])) / len(side) for side in sides]
        of_mean = [max(float(rate.var(ddof=1)) / len(rate), least) for rate, least in zip(rates, known, strict=True)]
        apart = float(rates[1].mean() - rates[0].mean())
        rest = sum((found - least) ** 2 for found, least in zip(of_mean, known, strict=True))
        freedom = (runs - 1) * sum(of_mean) ** 2 / rest if rest else MOST_FREEDOM
        half = stretch * math.sqrt(sum(of_mean)) * one_critical_t(alpha, int(min(freedom + 1e-9, MOST_FREEDOM)))
        return apart - half, apart + half


def _share(runs: Iterable[Counts]) -> float:
    runs = list(runs)
    planned = sum(run.planned for run in runs)
    return sum(run.unanswered for run in runs) / planned if planned else 0.0


def more_failures(tasks: Iterable[FailureRates]) -> Side | None:
    """Return the side with more failures of some task: new if that is true of both, None if of neither."""
    sides = {task.more for task in tasks}
    return "new" if "new" in sides else "base" if "base" in sides else None
