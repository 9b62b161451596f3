"""Forecasts of a run, for commands that answer in seconds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.dryrun.forecast import forecast, little_mail, notes
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.plan_cache import cached, keep
from loadsim.dryrun.remedy import plan_of
from loadsim.dryrun.rounds import Progress
from loadsim.model.scenario import Scenario
from loadsim.model.terms import STRESS
from loadsim.timinglog.planned_load import PlannedLoad

MOST_PLANNED_USER_DAYS = 1000
"""Medium users that are planned in about 10 s. More seldom have too few tasks in the window."""


Trying = Callable[[], AbstractContextManager[None]]
"""Enters a block in which plans try remedies: several seconds without progress."""


def quick_forecast(
    scenario: Scenario, progress: Progress | None = None, trying: Trying = nullcontext
) -> tuple[list[str], list[str]]:
    """Return why a run cannot become valid, and notes: what its score and its mail will lack (`dryrun.forecast`).

    Without a plan in the cache, tasks are counted for scenarios of at most `MOST_PLANNED_USER_DAYS`; `progress`
    receives the finished share of the scenario's own plan, and `trying` is entered for those that try remedies.
    """
    load = quick_load(scenario, progress)
    with trying():
        reasons, lacks = forecasts(scenario, load)
    return reasons, [*lacks, *little_mail(scenario, load)]


def forecasts(scenario: Scenario, load: PlannedLoad | None) -> tuple[list[str], list[str]]:
    """Return why a run with this load cannot become valid, and what its score will lack; remedies by kept plans."""
    return forecast(scenario, load, planned=kept_plan), notes(scenario, load, planned=kept_plan)


def kept_plan(scenario: Scenario) -> PlannedLoad:
    """Return the planned load of a scenario, from the cache or made and kept: a run that obeys a remedy finds it."""
    software = build_fingerprint()
    load = cached(scenario, software)
    if load is None:
        load = plan_of(scenario)
        keep(scenario, software, load)
    return load


def quick_load(scenario: Scenario, progress: Progress | None = None) -> PlannedLoad | None:
    """Return the planned load of a scenario; None for one that is not in the cache and takes long to plan."""
    if scenario.run.mode == STRESS:
        return None
    software = build_fingerprint()
    load = cached(scenario, software)
    if load is None and scenario.users * scenario.run.days <= MOST_PLANNED_USER_DAYS:
        load = make_plan(scenario, progress=progress).load()
        keep(scenario, software, load)
    return load
