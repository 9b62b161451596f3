"""Forecasts for a run: findings about its window and its planned load, before it is made."""

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
"""The margin for chance in the load that has enough hits, in standard deviations of a Poisson distribution."""


def forecast(scenario: Scenario, load: PlannedLoad | None) -> tuple[Finding, ...]:
    """Return why a run cannot become valid, by its window and planned load (None: unknown), and what its score lacks.

    These are the limits of the verdict (`analysis.verdict`) that the plan alone misses. With several drivers, which the
    verdict judges separately, only tasks with too few hits over all drivers are named. Users may do a few tasks more or
    fewer than planned: a warning names tasks that may have too few hits by chance; a score may still be provisional.
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
    """Return the error for a run that, by its forecast, cannot become valid; "" for others."""
    why = "; ".join(item.text for item in findings if item.severity is Severity.INVALID)
    return f"this run cannot become valid: {why}" if why else ""


def _scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return how often each task is due in the window, for tasks with a weight that the run has at all."""
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
