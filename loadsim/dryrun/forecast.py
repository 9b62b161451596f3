"""Forecasts of a run: reasons for which it cannot become valid, and notes on what its score will lack."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from loadsim.analysis.score import FEW_HITS
from loadsim.analysis.statistics.intervals import SHORTEST_WINDOW_S
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.run_times import in_words
from loadsim.model.scenario import Scenario
from loadsim.model.terms import STRESS, Window
from loadsim.timinglog.planned_load import LITTLE_MAIL, PlannedLoad

NOT_VALID = "this run cannot become valid: "
"""The begin of each reason."""

MARGIN = 3.0
"""The margin for chance in the load that has enough of a task, in standard deviations of Poisson's distribution."""


def scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return the number of each task that is due in the window, of those with a weight that the run has at all."""
    run = scenario.run
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    return {task: count for task, count in planned.items() if scenario.weights.get(task) and any(load.tasks[task])}


def not_valid(scenario: Scenario, load: PlannedLoad | None) -> str | None:
    """Return why a run cannot become valid, by its window and its planned load (None: unknown), and what would help.

    These are the limits of the verdict (`analysis.verdict`) that the plan alone misses. With several drivers, which the
    verdict judges one by one, only tasks that are too few for all together are named.
    """
    run, limits = scenario.run, scenario.limits
    planned = {} if load is None or run.mode == STRESS else scored_in_window(scenario, load)
    few = {task: count for task, count in planned.items() if 0 < count < limits.hits}
    none = _never(planned)
    why = []
    if run.window_s < limits.window_s:
        why.append(
            f"its window is {in_words(run.window_s)} long, at least {in_words(limits.window_s)} needed (limits.window)"
        )
    if few or (why and none):
        missing = f"; none are {none}, which would be missing from the score" if none else ""
        why.append(
            f"planned in its window are {_counts(few) or 'no scored tasks'}, and each scored task needs"
            f" {limits.hits} hits (limits.hits){missing}{_enough(few, limits.hits)}"
        )
    return f"{NOT_VALID}{'; '.join(why)}" if why else None


def notes(scenario: Scenario, load: PlannedLoad | None) -> list[str]:
    """Return what the score of a run will lack, by its window and its planned load; [] if it cannot become valid.

    A provisional score may still miss by a few hits: users may do a few tasks more or less than planned.
    """
    run = scenario.run
    if run.mode == STRESS or not_valid(scenario, load):
        return []
    found = []
    if load is not None:
        if few := few_planned(scenario, load):
            found.append(
                f"expect a provisional score: planned in the window are {_counts(few)}, and a score that is not"
                f" provisional needs {FEW_HITS} hits of each scored task{_enough(few, FEW_HITS)}"
            )
        if none := _never(scored_in_window(scenario, load)):
            found.append(f"the score will lack {none}: none is planned in the window")
    if run.window_s < SHORTEST_WINDOW_S:
        found.append(
            f"the score will have no confidence interval: the window is {in_words(run.window_s)} long, at least"
            f" {in_words(SHORTEST_WINDOW_S)} needed (run.window{'' if run.night_length_s else ', run.days'})"
        )
    return found


def few_planned(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return the scored tasks that make the score provisional: the window has too few of them. With their numbers."""
    return {task: count for task, count in scored_in_window(scenario, load).items() if 0 < count < FEW_HITS}


def little_mail(scenario: Scenario, load: PlannedLoad | None) -> tuple[Finding, ...]:
    """Return a finding if users receive less mail than published for want of lists; with its share, if planned."""
    if not scenario.lacks_lists:
        return ()
    share = None if load is None else load.received_share
    if share is None or share >= LITTLE_MAIL:
        return (finding(Code.NO_LISTS),)
    return (finding(Code.LITTLE_MAIL, received_share=share),)


def _enough(few: Mapping[str, int], needed: int) -> str:
    """Return, as a clause, the load that has enough of tasks that are too few."""
    if not few:
        return ""
    factor = (needed + MARGIN * sqrt(needed)) / min(few.values())
    return f"; {factor:.2g} times the users, or as many more days in the window, have enough"


def _counts(tasks: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {task}" for task, count in tasks.items())


def _never(planned: Mapping[str, int]) -> str:
    return ", ".join(task for task, count in planned.items() if not count)
