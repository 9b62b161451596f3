"""Finished capacity searches."""

from __future__ import annotations

from pathlib import Path

from loadsim.analysis.capacity import Capacity, Terms
from loadsim.analysis.capacity_search import Found, Result, Settings
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.analysis.resources import Resource


def capacity(
    found: Found,
    *results: tuple[int, Result],
    interval_ms: tuple[float, float] | None = None,
    runs: int = 5,
    resources: tuple[Resource, ...] = (),
) -> Capacity:
    """A search that has ended, with these steps."""
    terms = Terms(
        software="loadsim 1",
        name="test",
        scenario="0" * 64,
        seed=1,
        embedded=False,
        day_s=28_800,
        compression=1,
        score_limit_ms=1000,
        response_score_limit_ms=5000,
        settings=Settings(500, 4000),
        pause_s=60,
        engines=None,
        pin=False,
        clients=None,
    )
    steps = [
        MeasuredStep(
            users=users,
            result=result,
            score_ms=float(users),
            run=f"steps/{users:05d}-1",
            score_interval_ms=interval_ms,
            response_score_ms="inf" if result == "fail" else 2.0 * users,
            tasks_per_s=users / 10,
            load_equivalent_users=users,
            reasons=() if result == "pass" else ("score_ms 1100.0 ms, below 1000 ms wanted",),
            resources=resources,
        )
        for users, result in results
        for _ in range(runs)
    ]
    return Capacity(Path("out"), terms, tuple(steps), found)
