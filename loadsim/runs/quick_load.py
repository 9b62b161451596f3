"""The planned load of a run, for commands that answer in seconds."""

from __future__ import annotations

from loadsim.build_fingerprint import build_fingerprint
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.plan_cache import cached, keep
from loadsim.dryrun.rounds import Progress
from loadsim.model.terms import STRESS
from loadsim.scenario.scenario import Scenario
from loadsim.timinglog.planned_load import PlannedLoad

MOST_PLANNED_USER_DAYS = 1000
"""Medium users that are planned in about 10 s. More seldom have too few tasks in the window."""


def quick_load(scenario: Scenario, progress: Progress | None = None) -> PlannedLoad | None:
    """Return the planned load of a scenario; None for one that is not in the cache and takes long to plan.

    `progress` receives the finished share of the plan.
    """
    if scenario.run.mode == STRESS:
        return None
    software = build_fingerprint()
    load = cached(scenario, software)
    if load is None and scenario.users * scenario.run.days <= MOST_PLANNED_USER_DAYS:
        load = make_plan(scenario, progress=progress).load()
        keep(scenario, software, load)
    return load
