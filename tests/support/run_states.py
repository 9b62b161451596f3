"""Runs at some instants, as they are shown."""

from pathlib import Path

from timing_samples import done, write_sample
from virtual_runs import QUIET, scenario_of

from loadsim.analysis.summary import Summary, summarise
from loadsim.cli.live.figures import LiveRun, View
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.scenario.scenario import Scenario

TIMES = {"day_length": "300s", "ramp_up": "1s", "warm_up": "60s", "window": "180s"}
"""The window is from 60 s to 240 s of 300."""


def scenario_of_run(place: Path) -> Scenario:
    return scenario_of(place, (QUIET, 200), run=TIMES)


def live_run(place: Path, *snapshots: LiveSnapshot, views: tuple[View, ...] = ()) -> LiveRun:
    live = LiveRun(scenario_of_run(place), *views)
    live.due({"READ": [6] * 300, "SEND": [2] * 300})
    live.stage("prepare")
    live.prepared("inspect", 200, 200)
    live.prepared("initialise", 3, 7)
    live.stage("load")
    for snapshot in snapshots:
        live.snapshot(snapshot, {})
    return live


def summary_of(place: Path, least_hits: int = 1) -> Summary:
    """Return the summary of a run with a READ of 10 ms and a BROWSE of 4; READ's criterion is missed, another met.

    It is valid if one hit is enough.
    """
    header = {
        "criteria": {"tasks.READ.p95_ms": {"max": 9}, "failed_share": {"max": 0}},
        "limits": {"hits": least_hits, "window_s": 1},
    }
    write_sample(place / f"{least_hits}.tlog", [done("READ", 1, 10), done("BROWSE", 2, 4)], header=header)
    return summarise([place / f"{least_hits}.tlog"])
