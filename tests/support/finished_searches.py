"""Finished capacity searches."""

from dataclasses import replace
from math import inf
from pathlib import Path

from loadsim.campaign.runs import CampaignRun, Result
from loadsim.capacity.capacity import Capacity, SearchTerms
from loadsim.capacity.search import Found, Settings
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import Resource


def measured(users: int, result: Result, nearest: float | None = None, *, broken: bool = False) -> CampaignRun:
    return CampaignRun("runs/x", f"{users} users", users, result=result, nearest=nearest, broken=broken)


def missed(name: str, found: str, limit: str) -> Finding:
    return finding(Code.CRITERION_MISSED, name, found=found, limit=limit)


def capacity(
    found: Found,
    *results: tuple[int, Result],
    interval_ms: tuple[float, float] | None = None,
    runs: int = 5,
    resources: tuple[Resource, ...] = (),
) -> Capacity:
    terms = SearchTerms(
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
        CampaignRun(
            cell=f"{users} users",
            users=users,
            repeat=repeat,
            result=result,
            score_ms=float(users),
            run=f"runs/{users:05d}-1",
            score_interval_ms=interval_ms,
            response_score_ms=inf if result == "failed" else 2.0 * users,
            tasks_per_s=users / 10,
            load_equivalent_users=users,
            findings=() if result == "passed" else (missed("score_ms", "1100.0 ms", "below 1000 ms"),),
            resources=resources,
            validity="valid",
            delivered_per_min=2.0 * users,
        )
        for users, result in results
        for repeat in range(1, 1 + runs)
    ]
    return Capacity(Path("out"), terms, tuple(steps), found)


_OWN = Resource("processor", "mx1", True, "host", "cpu_busy_share", 0.5, 0.7)
_PLAIN = capacity(
    Found(1000, 1200, "criteria"), (1000, "passed"), (1200, "failed"), resources=(_OWN,), interval_ms=(1.0, 2.0)
)
WHOLE = replace(
    _PLAIN,
    runs=tuple(
        replace(
            run,
            nearest=0.9,
            findings=(*run.findings, finding(Code.CORES_BUSY, "mx1", busy_share=0.9, engines_share=None)),
            received_share=0.7,
            taken_share=0.6,
        )
        for run in _PLAIN.runs
    ),
    refused=(finding(Code.NUMBER_REFUSED, users=2000, why=("too few hits",)),),
)
"""A search with every figure that a run and an answer can have."""


def probed() -> Capacity:
    """A search on a server whose processor is full at about 1,600 users, with the probes of its machine."""
    found = capacity(
        Found(1250, 1500, "criteria"), (500, "passed"), (1000, "passed"), (1250, "passed"), (1500, "failed")
    )
    return replace(found, runs=tuple(_probed(step, number) for number, step in enumerate(found.runs)))


def _probed(step: CampaignRun, number: int) -> CampaignRun:
    """The step with figures that differ a little from run to run."""
    load = step.users / 1600 * (1 + 0.01 * (number % 5 - 2))
    shares = {"cpu_busy_share": load, "disk_vda_busy_share": 0.5 * load, "memory_used_share": 0.2 + 0.1 * load}
    names = {"cpu_busy_share": "processor", "disk_vda_busy_share": "disk vda", "memory_used_share": "memory"}
    read_ms = _read_ms(load)
    share = read_ms / 75
    ranked = sorted(shares, key=lambda figure: -shares[figure])
    return replace(
        step,
        score_ms=2 * read_ms,
        response_score_ms=2.5 * read_ms,
        findings=(missed("tasks.READ.response_p95_ms", f"{read_ms:.1f} ms", "at most 75 ms"),) if step.reasons else (),
        resources=tuple(
            Resource(names[figure], "mx1", True, "host", figure, shares[figure], shares[figure]) for figure in ranked
        ),
        nearest=share if (share >= 1) == (step.result == "failed") else None,
    )


def _read_ms(load: float) -> float:
    return 8 / (1.02 - load)
