"""Forecasts of a run: findings about its window and its planned load, before it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import sqrt

from loadsim.analysis.score import FEW_HITS
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.terms import STRESS, Window
from loadsim.scenario.scenario import Scenario
from loadsim.statistics.intervals import SHORTEST_WINDOW_S
from loadsim.timinglog.planned_load import PlannedLoad

MARGIN = 3.0
"""The margin for chance in the load that has enough of a task, in standard deviations of Poisson's distribution."""


def forecast(scenario: Scenario, load: PlannedLoad | None) -> tuple[Finding, ...]:
    """Return why a run cannot become valid, by its window and its planned load (None: unknown); what its score lacks.

    These are the limits of the verdict (`analysis.verdict`) that the plan alone misses. With several drivers, which the
    verdict judges one by one, only tasks that are too few for all together are named. Users may do a few tasks more or
    less than planned: a warning names tasks that chance may leave with too few; a score may still become provisional.
    """
    run, limits = scenario.run, scenario.limits
    planned = {} if load is None or run.mode == STRESS else _scored_in_window(scenario, load)
    found = []
    if run.window_s < limits.window_s:
        found.append(finding(Code.SHORT_WINDOW, window_s=run.window_s, limit_s=limits.window_s))
    if few := _fewer(planned, limits.hits):
        found.append(_few(Code.FEW_PLANNED, few, limits.hits))
    valid = not found
    if valid and (near := _fewer(planned, limits.hits + MARGIN * sqrt(limits.hits))):
        found.append(replace(_few(Code.FEW_PLANNED, near, limits.hits), severity=Severity.WARNING))
    if valid and (few := _fewer(planned, FEW_HITS)):
        found.append(_few(Code.EXPECT_PROVISIONAL, few, FEW_HITS))
    if none := tuple(task for task, count in planned.items() if not count):
        found.append(finding(Code.NONE_PLANNED, tasks=none))
    if valid and run.mode != STRESS and run.window_s < SHORTEST_WINDOW_S:
        found.append(finding(Code.NO_INTERVAL, window_s=run.window_s, limit_s=SHORTEST_WINDOW_S))
    return tuple(found)


def refusal(found: Iterable[Finding]) -> str:
    """Return the error for a run that cannot become valid by its forecast; "" for others."""
    why = "; ".join(one.text for one in found if one.severity is Severity.INVALID)
    return f"this run cannot become valid: {why}" if why else ""


def _scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return the number of each task that is due in the window, of those with a weight that the run has at all."""
    run = scenario.run
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    return {task: count for task, count in planned.items() if scenario.weights.get(task) and any(load.tasks[task])}


def _fewer(planned: Mapping[str, int], needed: float) -> dict[str, int]:
    return {task: count for task, count in planned.items() if 0 < count < needed}


def _few(code: Code, few: Mapping[str, int], needed: int) -> Finding:
    """Return a finding about tasks that are too few, with the load that has enough of them."""
    tasks = tuple(f"{count} {task}" for task, count in few.items())
    factor = float(f"{(needed + MARGIN * sqrt(needed)) / min(few.values()):.2g}")
    return finding(code, tasks=tasks, limit=needed, factor=factor)
