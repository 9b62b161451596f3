"""Runs at some instants, as metrics describe them."""

from __future__ import annotations

from pathlib import Path

from timing_samples import done, write_sample
from virtual_runs import QUIET, scenario_of

from loadsim.analysis.summary import Summary, summarise
from loadsim.cli.metrics.state import RunMetrics
from loadsim.engine.snapshot import LiveSnapshot

TIMES = {"day_length": "300s", "ramp_up": "1s", "warm_up": "60s", "window": "180s"}
"""The window is from 60 s to 240 s of 300."""


def metrics_of(place: Path, *snapshots: LiveSnapshot) -> RunMetrics:
    """Those of a run that has been prepared, after these snapshots."""
    metrics = RunMetrics(scenario_of(place, (QUIET, 200), run=TIMES))
    metrics.stage("prepare")
    metrics.prepared("inspect", 200, 200)
    metrics.prepared("initialise", 3, 7)
    metrics.prepared("initialise", 1, 4, "a client")
    metrics.stage("load")
    for snapshot in snapshots:
        metrics.snapshot(snapshot, {})
    return metrics


def summary_of(place: Path, least_hits: int = 1) -> Summary:
    """That of a run with a READ of 10 ms, and a BROWSE of 4; the criterion of READ is missed, another met.

    It is valid if one hit is enough.
    """
    header = {
        "criteria": {"tasks.READ.p95_ms": {"max": 9}, "failed_share": {"max": 0}},
        "limits": {"hits": least_hits, "window_s": 1},
    }
    write_sample(place / f"{least_hits}.tlog", [done("READ", 1, 10), done("BROWSE", 2, 4)], header=header)
    return summarise([place / f"{least_hits}.tlog"])
