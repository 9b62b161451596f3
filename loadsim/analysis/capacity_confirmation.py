"""The confirmation of a capacity: runs with 80, 100 and 120 % of its users, after the search.

The levels are those of SPECmail. The lower two must pass, and the upper one must be worse: it fails, or is slower by
more than runs with 100 % differ. A level is repeated if its run is not as expected: two of three results decide, as in
a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from loadsim.analysis.capacity_search import (
    FAILED,
    GENERATOR,
    MOST_VOID,
    PASSED,
    UNDECIDED,
    VOID,
    Found,
    Result,
    Settings,
    decision,
)
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.compare import RESOLUTION_MS, one_critical_t

PERCENTS = (80, 100, 120)
"""The levels, in per cent of the capacity's users, in the order of their runs."""

SLOWER_BY_CHANCE = 0.05
"""The share of further runs with 100 % whose score is as large as that of a slower run."""


@dataclass(frozen=True, slots=True)
class Confirming:
    """A run of a level. `after_steps` is the number of the search's steps before it."""

    percent: int
    step: MeasuredStep
    after_steps: int


@dataclass(frozen=True, slots=True)
class Level:
    """A level and its runs. `result`: `pass` if it is as expected, None if further runs are needed.

    `users` is None for a level with more users than the search allows.
    """

    percent: int
    users: int | None
    runs: tuple[MeasuredStep, ...]
    result: Result | None


def levels(
    runs: Sequence[Confirming], steps: Sequence[MeasuredStep], answer: Found, settings: Settings
) -> tuple[Level, ...]:
    """Return the levels of the capacity that a search found; none without one.

    Runs with other numbers of users, or before the last step of the search, belong to an earlier answer.
    """
    capacity = answer.low
    if capacity is None:
        return ()
    current = [one for one in runs if one.after_steps == len(steps)]
    with_capacity = [step for step in (*steps, *(one.step for one in current)) if step.users == capacity]
    judged = [step for step in with_capacity if step.result not in (GENERATOR, VOID)]
    slower_ms = _slower_ms([float(step.score_ms) for step in judged if step.score_ms is not None])
    found: list[Level] = []
    for percent in PERCENTS:
        users = max(capacity + 1 if percent > 100 else settings.least, round(capacity * percent / 100))
        if users > settings.most:
            found.append(Level(percent, None, (), UNDECIDED))
            continue
        own = tuple(one.step for one in current if (one.percent, one.step.users) == (percent, users))
        results = [_worse(step, answer.high, slower_ms) if percent > 100 else step.result for step in own]
        result = UNDECIDED if results.count(VOID) >= MOST_VOID else decision(results)
        found.append(Level(percent, users, own, result))
    return tuple(found)


def _worse(step: MeasuredStep, failed_users: int | None, slower_ms: float | None) -> Result:
    """Return `pass` for a run above the capacity that fails, or is slower than runs with the capacity.

    A pass of a number that failed in the search contradicts the search, even if it is slower. A pass whose score cannot
    be compared is undecided.
    """
    if step.result == FAILED:
        return PASSED
    if step.result != PASSED:
        return step.result
    if failed_users is not None and step.users >= failed_users:
        return FAILED
    if slower_ms is None or step.score_ms is None:
        return UNDECIDED
    return PASSED if float(step.score_ms) > slower_ms else FAILED


def _slower_ms(scores_ms: Sequence[float]) -> float | None:
    """Return the score from which a run is slower than the runs with these scores; None if it is not known.

    It is the one-sided prediction limit for one further run: Student's t of the logarithms, as in `repeats`.
    """
    if len(scores_ms) < 2 or not all(map(math.isfinite, scores_ms)):
        return None
    logarithms = [math.log(max(score_ms, RESOLUTION_MS)) for score_ms in scores_ms]
    critical = one_critical_t(2 * SLOWER_BY_CHANCE, len(logarithms) - 1)  # two-sided
    reach = critical * stdev(logarithms) * math.sqrt(1 + 1 / len(logarithms))
    try:
        return math.exp(fmean(logarithms) + reach)
    except OverflowError:
        return math.inf


def next_level(found: Sequence[Level]) -> Level | None:
    """Return the level to measure next; None if all are decided."""
    return next((level for level in found if level.result is None), None)
