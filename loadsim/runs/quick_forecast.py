"""The reasons for which a run cannot become valid, for commands that answer in seconds."""

from __future__ import annotations

from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.dryrun.forecast import forecast
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.plan_cache import cached, keep
from loadsim.model.scenario import Scenario
from loadsim.model.terms import STRESS
from loadsim.timinglog.planned_load import PlannedLoad

MOST_PLANNED_USER_DAYS = 300
"""Medium users that are planned in about 3 s. The window of a scenario with more seldom has too few tasks."""


def quick_forecast(scenario: Scenario) -> list[str]:
    """Return why a run cannot become valid (`dryrun.forecast`).

    Without a plan in the cache, tasks are counted for scenarios of at most `MOST_PLANNED_USER_DAYS`.
    """
    return forecast(scenario, _load(scenario))


def _load(scenario: Scenario) -> PlannedLoad | None:
    if scenario.run.mode == STRESS:
        return None
    software = build_fingerprint()
    load = cached(scenario, software)
    if load is None and scenario.users * scenario.run.days <= MOST_PLANNED_USER_DAYS:
        load = make_plan(scenario).tally.load()
        keep(scenario, software, load)
    return load
