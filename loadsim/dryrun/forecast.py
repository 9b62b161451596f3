"""Forecasts of a run: reasons for which it cannot become valid, and notes on what its score will lack."""

from __future__ import annotations

from math import ceil

from loadsim.analysis.intervals import SHORTEST_WINDOW_S
from loadsim.analysis.score import FEW_HITS
from loadsim.model.run_times import at_least, in_words
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
    too_short = run.window_s < limits.window_s
    planned = {} if load is None or run.mode == STRESS else _scored_in_window(scenario, load)
    few = {task: count for task, count in planned.items() if 0 < count < limits.hits}
    none = _never(planned)
    missing = f"; none are {none}, which would be missing from the score" if none else ""
    hits = (
        f"planned in its window are {_counts(few) or 'no scored tasks'}, and each scored task needs"
        f" {limits.hits} hits (limits.hits){missing}"
    )
    # Users do not lengthen a window that is too short, and its few tasks say little about a longer one.
    if too_short and load is not None and (few or none) and (needed_s := _needed_s(scenario, load)) > limits.window_s:
        return [
            f"{NOT_VALID}its window is {in_words(run.window_s)} long, and with {scenario.users:,} users, one of about"
            f" {at_least(needed_s)} is needed (run.window): {hits}"
        ]
    if too_short:
        return [
            f"{NOT_VALID}its window is {in_words(run.window_s)} long, at least {in_words(limits.window_s)} needed"
            " (limits.window); take a longer window (run.window)"
        ]
    if few:
        return [f"{NOT_VALID}{hits}; {_remedy(scenario, limits.hits, min(few.values()))}"]
    return []


def notes(scenario: Scenario, load: PlannedLoad | None) -> list[str]:
    """Return what the score of a run will lack, by its window and its planned load; [] if it cannot become valid.

    A provisional score may still miss by a few hits: users may do a few tasks more or less than planned.
    """
    run = scenario.run
    if run.mode == STRESS or forecast(scenario, load):
        return []
    found = []
    if load is not None:
        planned = _scored_in_window(scenario, load)
        few = {task: count for task, count in planned.items() if 0 < count < FEW_HITS}
        if few:
            remedy = _remedy(scenario, FEW_HITS, min(few.values()))
            found.append(
                f"expect a provisional score: planned in the window are {_counts(few)}, and a score that is not"
                f" provisional needs {FEW_HITS} hits of each scored task; {remedy}"
            )
        if none := _never(planned):
            found.append(f"the score will lack {none}: none is planned in the window")
    if run.window_s < SHORTEST_WINDOW_S:
        found.append(
            f"the score will have no confidence interval: the window is {in_words(run.window_s)} long, at least"
            f" {in_words(SHORTEST_WINDOW_S)} needed (run.window{'' if run.night_length_s else ', run.days'})"
        )
    return found


def _scored_in_window(scenario: Scenario, load: PlannedLoad) -> dict[str, int]:
    """Return the number of each task that is due in the window, of those with a weight that the run has at all."""
    run = scenario.run
    planned = load.in_window(Window(run.warm_up_s, run.warm_up_s + run.window_s))
    return {task: count for task, count in planned.items() if scenario.weights.get(task) and any(load.tasks[task])}


def _counts(tasks: dict[str, int]) -> str:
    return ", ".join(f"{count} {task}" for task, count in tasks.items())


def _never(planned: dict[str, int]) -> str:
    return ", ".join(task for task, count in planned.items() if not count)


def _remedy(scenario: Scenario, needed: int, scarcest: int) -> str:
    """Return the window or the users that have enough of the scarcest task, in proportion."""
    run = scenario.run
    days = "" if run.night_length_s else ", more days (run.days)"  # with nights, the window lies in one day
    return (
        f"take a window of about {at_least(run.window_s * needed / scarcest)} (run.window, run.warm_up){days}, or about"
        f" {_sufficient(scenario.users, needed, scarcest):,} users"
    )


def _needed_s(scenario: Scenario, load: PlannedLoad) -> float:
    """Return the length of a window with enough hits of each scored task, by their numbers in the whole run."""
    scarcest = min(sum(counts) for task, counts in load.tasks.items() if scenario.weights.get(task) and any(counts))
    return scenario.run.duration_s * scenario.limits.hits / scarcest


def _sufficient(users: int, needed: int, scarcest: int) -> int:
    """Return the number of users that have enough of the scarcest task, in proportion, rounded up to two digits."""
    exact = ceil(users * needed / scarcest)
    unit = int(10 ** max(len(str(exact)) - 2, 0))
    return ceil(exact / unit) * unit
