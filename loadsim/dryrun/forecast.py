"""Forecasts of a run: reasons for which it cannot become valid, and notes on what its score will lack."""

from __future__ import annotations

from collections.abc import Iterator

from loadsim.analysis.intervals import SHORTEST_WINDOW_S
from loadsim.analysis.score import FEW_HITS
from loadsim.dryrun.remedy import Planned, in_text, plan_of, remedies, scored_in_window
from loadsim.model.run_times import in_words
from loadsim.model.scenario import EMBEDDED, Scenario
from loadsim.model.terms import STRESS
from loadsim.timinglog.planned_load import PlannedLoad, received_of_published

NOT_VALID = "this run cannot become valid: "
"""The begin of each reason."""

NO_HELP = "; a longer run.day_length does not help: a day has the same tasks"


def not_valid(scenario: Scenario, load: PlannedLoad | None) -> str | None:
    """Return why a run cannot become valid, by its window and its planned load (None: unknown), without a remedy.

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
            f" {limits.hits} hits (limits.hits){missing}"
        )
    return f"{NOT_VALID}{'; '.join(why)}" if why else None


def forecast(
    scenario: Scenario, load: PlannedLoad | None, *, users: bool = True, planned: Planned = plan_of
) -> list[str]:
    """Return why a run cannot become valid, as `not_valid` does, with remedies. Without `users`, none has more users.

    `planned` plans the remedies, which takes some seconds.
    """
    why = not_valid(scenario, load)
    if why is None:
        return []
    return [_with_remedy(why, scenario, remedies(scenario, load, scenario.limits.hits, users=users, planned=planned))]


def notes(scenario: Scenario, load: PlannedLoad | None, *, planned: Planned = plan_of) -> list[str]:
    """Return what the score of a run will lack, by its window and its planned load; [] if it cannot become valid.

    A provisional score may still miss by a few hits: users may do a few tasks more or less than planned. `planned`
    plans the remedies, which takes some seconds.
    """
    run = scenario.run
    if run.mode == STRESS or not_valid(scenario, load):
        return []
    found = []
    if load is not None:
        if few := few_planned(scenario, load):
            why = (
                f"expect a provisional score: planned in the window are {_counts(few)}, and a score that is not"
                f" provisional needs {FEW_HITS} hits of each scored task"
            )
            needed = max(FEW_HITS, scenario.limits.hits)
            found.append(_with_remedy(why, scenario, remedies(scenario, load, needed, planned=planned)))
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


def little_mail(scenario: Scenario, load: PlannedLoad | None) -> tuple[str, ...]:
    """Return a note if users receive less mail than published for want of lists; with the share, if it is planned."""
    received = received_of_published(None if load is None else load.received_share)
    if not (received and scenario.little_mail):
        return scenario.little_mail
    create = "" if scenario.server == EMBEDDED else ", and create the lists on the server (loadsim topology export)"
    return (
        f"users receive {received}, because the scenario has no distribution lists (lists.count: 0): set their"
        f" number{create}",
    )


def _with_remedy(why: str, scenario: Scenario, found: Iterator[Scenario]) -> str:
    """Return a reason, and the remedies in words if there are any."""
    remedy = in_text(scenario, found)
    if not remedy:
        return why
    longer_day_fails = scenario.run.window_s >= scenario.limits.window_s
    return f"{why}; {remedy}{NO_HELP if longer_day_fails else ''}"


def _counts(tasks: dict[str, int]) -> str:
    return ", ".join(f"{count} {task}" for task, count in tasks.items())


def _never(planned: dict[str, int]) -> str:
    return ", ".join(task for task, count in planned.items() if not count)
