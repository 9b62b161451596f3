"""The confirmation of a capacity: runs with 80, 100 and 120 % of its users, after the search.

The levels are those of SPECmail. The lower two must pass, and the upper one must be worse: it fails, or is slower. A
level is repeated if its run is not as expected: two of three results decide, as in a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.analysis.capacity_search import FAILED, MOST_VOID, PASSED, UNDECIDED, VOID, Result, decision
from loadsim.analysis.capacity_step import MeasuredStep

PERCENTS = (80, 100, 120)
"""The levels, in per cent of the capacity's users, in the order of their runs."""


@dataclass(frozen=True, slots=True)
class Confirming:
    """A run of a level."""

    percent: int
    step: MeasuredStep


@dataclass(frozen=True, slots=True)
class Level:
    """A level and its runs. `result`: `pass` if it is as expected, None if further runs are needed.

    `users` is None for a level above 100 % if the search allows no more users than the capacity.
    """

    percent: int
    users: int | None
    runs: tuple[MeasuredStep, ...]
    result: Result | None


def levels(runs: Sequence[Confirming], capacity: int, least: int, most: int) -> tuple[Level, ...]:
    """Return the levels of a capacity in users. Runs with other numbers belong to an earlier answer."""
    found: list[Level] = []
    score_ms: float | None = None
    for percent in PERCENTS:
        users = min(most, max(least, round(capacity * percent / 100)))
        if percent > 100 and users <= capacity:
            found.append(Level(percent, None, (), UNDECIDED))
            continue
        own = tuple(one.step for one in runs if (one.percent, one.step.users) == (percent, users))
        results = [_worse(step, score_ms) if percent > 100 else step.result for step in own]
        result = UNDECIDED if results.count(VOID) >= MOST_VOID else decision(results)
        found.append(Level(percent, users, own, result))
        if percent == 100:
            score_ms = max((float(step.score_ms) for step in own if step.score_ms is not None), default=None)
    return tuple(found)


def _worse(step: MeasuredStep, score_ms: float | None) -> Result:
    """Return `pass` for a run that fails, or is slower than all with 100 %; `fail` for one that is as good."""
    if step.result == FAILED:
        return PASSED
    if step.result != PASSED:
        return step.result
    return PASSED if score_ms is not None and float(step.score_ms or 0) > score_ms else FAILED


def next_level(found: Sequence[Level]) -> Level | None:
    """Return the level to measure next; None if all are decided."""
    return next((level for level in found if level.result is None), None)
