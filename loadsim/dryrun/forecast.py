"""Forecasts: findings about a run's window and planned load, before the run is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import sqrt

from loadsim.analysis.score import PROVISIONAL_HITS
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.terms import STRESS, Window
from loadsim.scenario.scenario import Scenario
from loadsim.statistics.intervals import SHORTEST_WINDOW_S
from loadsim.timinglog.planned_load import PlannedLoad

MARGIN = 3.0
"""The margin for chance when a load is said to give enough hits, in standard deviations of a Poisson distribution."""


def forecast(scenario: Scenario, load: PlannedLoad | None) -> tuple[Finding, ...]:
    """Return why a run cannot become valid, and what its score will lack. `load` is None if it is unknown.

    It applies those limits of the verdict (`analysis.verdict`) that a plan alone can miss. The verdict judges drivers
    separately; here, a task is named only if it has too few hits over all drivers. Users may do slightly more or fewer
    tasks than planned: a warning names tasks that may, by chance, have too few hits. A score may still be provisional.
    """
    run, limits = scenario.run, scenario.limits
    planned = {} if load is None or run.mode == STRESS else _scored_in_window(scenario, load)
    findings = []
    if run.window_s < limits.window_s:
        findings.append(finding(Code.SHORT_WINDOW, window_s=run.window_s, limit_s=limits.window_s))
    if few := _fewer(planned, limits.hits):
        findings.append(_few(Code.FEW_PLANNED, few, limits.hits))
    valid = not findings
    if valid and (near := _fewer(planned, limits.hits + MARGIN * sqrt(limits.hits))):
        findings.append(replace(_few(Code.FEW_PLANNED, near, limits.hits), severity=Severity.WARNING))
    if valid and (few := _fewer(planned, PROVISIONAL_HITS)):
        findings.append(_few(Code.EXPECT_PROVISIONAL, few, PROVISIONAL_HITS))
    if none := tuple(task for task, count in planned.items() if not count):
        findings.append(finding(Code.NONE_PLANNED, tasks=none))
    if valid and run.mode != STRESS and run.window_s < SHORTEST_WINDOW_S:
        findings.append(finding(Code.NO_INTERVAL, window_s=run.window_s, limit_s=SHORTEST_WINDOW_S))
    return tuple(findings)


def refusal(findings: Iterable[Finding]) -> str:
    """Return the error for a run that, according to its forecast, cannot become valid; "" for others."""
    why = "; ".join(item.text for item in findings if item.severity is Severity.INVALID)
    return f"this run cannot become valid: {why}" if why else ""


def _scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return how often each task is due in the window, for tasks that have a weight and occur in the run at all."""
    run = scenario.run
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    return {task: count for task, count in planned.items() if scenario.weights.get(task) and any(load.tasks[task])}


def _fewer(planned: Mapping[str, int], needed: float) -> dict[str, int]:
    return {task: count for task, count in planned.items() if 0 < count < needed}


def _few(code: Code, few: Mapping[str, int], needed: int) -> Finding:
    """Return a finding about tasks with too few hits, with the load that would give enough."""
    tasks = tuple(f"{count} {task}" for task, count in few.items())
    factor = float(f"{(needed + MARGIN * sqrt(needed)) / min(few.values()):.2g}")
    return finding(code, tasks=tasks, limit=needed, factor=factor)
