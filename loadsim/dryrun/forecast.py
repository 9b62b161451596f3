"""Reasons, known before a run, for which it cannot become valid."""

from __future__ import annotations

from math import ceil

from loadsim.model.scenario import Scenario
from loadsim.model.terms import STRESS, Window
from loadsim.timinglog.planned_load import PlannedLoad

NOT_VALID = "this run cannot become valid: "
"""The begin of each reason."""


def forecast(scenario: Scenario, load: PlannedLoad | None) -> list[str]:
    """Return why a run cannot become valid, by its window and its planned load (None: unknown).

    These are the limits of the verdict (`analysis.verdict`) that the plan alone misses. With several drivers, which the
    verdict judges one by one, only tasks that are too few for all together are named.
    """
    run, limits = scenario.run, scenario.limits
    reasons = []
    if run.window_s < limits.window_s:
        reasons.append(
            f"{NOT_VALID}its window is {run.window_s:g} s long, at least {limits.window_s:g} s needed (limits.window)"
        )
    if load is None or run.mode == STRESS:
        return reasons
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    few = {task: count for task, count in planned.items() if scenario.weights.get(task) and 0 < count < limits.hits}
    if few:
        counts = ", ".join(f"{count} {task}" for task, count in few.items())
        users = _sufficient(scenario.users, limits.hits, min(few.values()))
        reasons.append(
            f"{NOT_VALID}planned in its window are {counts}, and each scored task needs {limits.hits} hits"
            " (limits.hits); take a longer window (run.window, run.warm_up), more days (run.days), or about"
            f" {users:,} users"
        )
    return reasons


def _sufficient(users: int, needed: int, scarcest: int) -> int:
    """Return the number of users that have enough of the scarcest task, in proportion, rounded up to two digits."""
    exact = ceil(users * needed / scarcest)
    unit = int(10 ** max(len(str(exact)) - 2, 0))
    return ceil(exact / unit) * unit
