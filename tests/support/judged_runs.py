"""Summaries of runs by what a campaign reads of them, and the run directories that have them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from timing_samples import write_sample

from loadsim.analysis.criteria import Result, missed_criteria
from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.verdict import Verdict, by_severity
from loadsim.model.figures import Figures
from loadsim.model.terms import Window

OF_CAUSE = {
    "load": finding(Code.NO_SCORE),
    "aborted": finding(Code.ABORTED, why="failed share 62 %"),
    "generator": finding(Code.GENERATOR_LATE, late_p95_ms=60.0, limit_ms=50.0),
    "fault": finding(Code.NO_END),
    "ended": finding(Code.STOPPED),
    "terms": finding(Code.SHORT_WINDOW, window_s=1.0, limit_s=30.0),
}
"""An invalid finding of each cause."""


def verdict(criteria: Sequence[Result], findings: Iterable[Finding] = ()) -> Verdict:
    return Verdict(by_severity((*findings, *missed_criteria(criteria, ended_early=False))))


@cache
def sample_figures() -> Figures:
    with TemporaryDirectory() as place:
        return summarise([write_sample(Path(place) / "c1.0.tlog")]).figures


def summary(users: int, passed: bool, *causes: str, **changes: Any) -> Summary:
    """The summary of a run with so many users, with changed figures; the share of failed tasks decides if it passed."""
    criteria = (Result("failed_share", {"max": 0.01}, 0.0 if passed else 0.05),)
    figures = replace(
        sample_figures(),
        score_ms=10.0 * users,
        response_score_ms=20.0 * users,
        tasks_per_s=users / 10,
        window_s=Window(600.0, 1200.0),
        delivery=replace(sample_figures().delivery, delivered=50.0 * users),
        load_equivalent_users=4 * users,
        by_protocol={},
        **changes,
    )
    return Summary(verdict(criteria, (OF_CAUSE[cause] for cause in causes)), criteria, figures)


class Finished:
    """Finished runs of a search, as after a crash: their directories are there, and their summaries known."""

    def __init__(self, out: Path) -> None:
        self._runs = out / "runs"
        self._summaries: dict[str, Summary] = {}

    def put(self, users: int, number: int, passed: bool, *causes: str) -> None:
        name = f"{users:05d}-{number}"
        (self._runs / name).mkdir(parents=True, exist_ok=True)
        self._summaries[name] = summary(users, passed, *causes)

    def __call__(self, directory: Path) -> Summary | None:
        return self._summaries.get(directory.name)


def all_finished(out: Path, capacity: int) -> Finished:
    """Eight runs of each number up to 64: more than a search makes."""
    found = Finished(out)
    for users in range(1, 65):
        for number in range(1, 9):
            found.put(users, number, users <= capacity)
    return found
