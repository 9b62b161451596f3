"""The criteria and limits of a run, judged by what has been seen of its window so far.

This is provisional in two ways: the window goes on, and live percentiles are from histograms, precise to 13 %. The
verdict is computed from the logs after the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadsim.analysis.criteria import Result, judge_each
from loadsim.analysis.score import weighted_average
from loadsim.cli.live_view import lag_limit_of
from loadsim.engine.latency_histogram import BOUNDS_MS
from loadsim.engine.snapshot import LiveSnapshot, Stretch
from loadsim.model.criteria import documents
from loadsim.model.records import FAILURES, GENERATOR
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_document import EMBEDDED
from loadsim.model.terms import LOGON, STRESS, WITHOUT_WINDOW
from loadsim.report.criterion_words import criteria_in_words
from loadsim.report.digits import duration
from loadsim.report.figure_words import named, of_task
from loadsim.timinglog.header_words import length

PERCENTS = {"p50_ms": 50.0, "p90_ms": 90.0, "p95_ms": 95.0, "p99_ms": 99.0, "p99_9_ms": 99.9}
"""The percentiles that a histogram can tell, by their names in `score.json`."""

KNOWN = {"failed_share", "logon_failed_share", "score_ms", *PERCENTS}
"""The last parts of the names of figures that live counts tell. Counts are not: they grow until the end."""

ENDED = ("ok", *FAILURES, GENERATOR)


PRECISION = 0.13
"""Percentiles of a histogram may be wrong by this share, and so may the score, their average (`about_ms`)."""


@dataclass(frozen=True, slots=True)
class CriterionSoFar:
    """A criterion as it would end now; `kept` is None if the figure is too near to the limit for its precision."""

    words: str
    found: str
    wanted: str
    kept: bool | None


@dataclass(frozen=True, slots=True)
class SoFar:
    """The part of the window that was seen, in seconds; criteria with a figure, the names of others, broken limits.

    `generator_counts`: a broken limit of the generator makes a run invalid; otherwise it is a warning.
    """

    seen_s: float
    criteria: Sequence[CriterionSoFar]
    unknown: Sequence[str]
    generator: Sequence[str]
    generator_counts: bool

    @property
    def summary(self) -> str:
        """The outcome in sentences. The first one says if the run may be invalid."""
        words = [f"If the window ended now, after {length(round(self.seen_s))}, {self._missed}"]
        if near := sum(one.kept is None for one in self.criteria):
            words.append(f"{near} {'is' if near == 1 else 'are'} too near to tell")
        if more := len(self.unknown):
            words.append(f"{more} more {'is' if more == 1 else 'are'} known only after the end")
        doubt = "The run may be invalid: the generator was beyond its limits, as listed below. "
        if not self.generator:
            doubt = ""
        elif not self.generator_counts:
            doubt = "The generator was beyond its limits, as listed below: it may be what slows this run. "
        return f"{doubt}{'; '.join(words)}. The window goes on, and the logs decide after the end."

    @property
    def _missed(self) -> str:
        missed, known = sum(one.kept is False for one in self.criteria), len(self.criteria)
        if all(one.kept is None for one in self.criteria):
            return "no criterion could be judged"
        if known == 1:
            return "this criterion would be missed" if missed else "no criterion would be missed"
        return f"{missed or 'none'} of these {known} criteria would be missed"


class WindowSoFar:
    """Collects what the snapshots of a run say about its window."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._criteria = documents(scenario.criteria)
        self._first: LiveSnapshot | None = None
        self._last: LiveSnapshot | None = None
        self._seconds = self._late = self._busy = 0

    def add(self, snapshot: LiveSnapshot) -> None:
        """Add a snapshot, unless it is from outside the window."""
        run = self._scenario.run
        if snapshot.at_s is None or not run.warm_up_s <= snapshot.at_s <= run.warm_up_s + run.window_s:
            return
        if self._first is None:
            self._first = snapshot
            return
        self._last = snapshot
        limit_ms, cpu_limit = self._lag_limit_ms(), self._scenario.limits.generator.cpu
        self._seconds += 1
        self._late += limit_ms is not None and snapshot.lag_p99_ms is not None and snapshot.lag_p99_ms > limit_ms
        self._busy += cpu_limit is not None and snapshot.cpu_share is not None and snapshot.cpu_share > cpu_limit

    @property
    def judged(self) -> SoFar | None:
        """The outcome if the window ended now; None before its second snapshot."""
        if self._first is None or self._last is None:
            return None
        stretch = Stretch(self._first, self._last)
        results = judge_each(self._criteria, live_figures(stretch, self._scenario))
        known = [one for one in results if one.figure is not None and one.name.rpartition(".")[2] in KNOWN]
        return SoFar(
            seen_s=stretch.seconds,
            criteria=_in_words(known),
            unknown=_unknown(results, known),
            generator=self._broken(),
            generator_counts=self._scenario.server != EMBEDDED and self._scenario.run.mode != STRESS,
        )

    def _broken(self) -> list[str]:
        limits, of = self._scenario.limits.generator, f"in {{}} of {self._seconds:,} s"
        lines = []
        if self._late:
            limit = duration(self._lag_limit_ms())
            lines.append(f"event loop: later than its limit, {limit}, {of.format(f'{self._late:,}')}")
        if self._busy:
            lines.append(f"busiest engine: more than {limits.cpu:.0%} of a core {of.format(f'{self._busy:,}')}")
        return lines

    def _lag_limit_ms(self) -> float | None:
        """Return the limit of the event loop's lag, for the scored task that is the fastest so far."""
        if self._first is None or self._last is None:
            return None
        return lag_limit_of(Stretch(self._first, self._last), self._scenario)


def _in_words(results: Sequence[Result]) -> list[CriterionSoFar]:
    """Return the criteria in words; those of which each end of the precision has another outcome are undecided."""
    least, middle, most = (
        criteria_in_words([_shifted(one, share) for one in results]) for share in (1 - PRECISION, 1.0, 1 + PRECISION)
    )
    return [
        CriterionSoFar(one.words, one.found, one.wanted, one.passed if low.passed == high.passed else None)
        for low, one, high in zip(least, middle, most, strict=True)
    ]


def _shifted(result: Result, share: float) -> Result:
    """Return the result with its figure, if it is a time, multiplied by a share; by 1, with the two digits known."""
    if result.figure is None or not result.name.endswith("_ms"):
        return result
    if result.figure >= BOUNDS_MS[-1] and share > 1:
        return replace(result, figure=math.inf)  # of the last bucket, only the lower bound is known
    return replace(result, figure=float(f"{result.figure:.2g}") if share == 1 else result.figure * share)


def _unknown(results: Sequence[Result], known: Sequence[Result]) -> list[str]:
    """Return the words of the criteria without a figure; tasks with the same criterion share one name."""
    unknown = [result for result in results if result not in known]
    names = [f"{of_task(one.name.rpartition('.')[2])} of each task" if one.each else named(one.name) for one in unknown]
    return list(dict.fromkeys(names))


def live_figures(stretch: Stretch, scenario: Scenario) -> dict[str, Any]:
    """Return the figures of `score.json` that live counts tell, with its names; others are missing.

    Tasks count where they end, not where they were due. Snapshots do not tell drivers apart: with several, there are
    only figures of all tasks together. Figures from the plan, of response times and of deliveries are missing.
    """
    drivers = {group.module for group in scenario.topology}
    stress = scenario.run.mode == STRESS
    weights: Mapping[str, float] = {} if stress else scenario.weights
    rows = [
        _task(stretch, task, float(weights.get(task, 0))) for task in stretch.after.tasks if task not in WITHOUT_WINDOW
    ]
    log_ons = stretch.after.tasks.get(LOGON, {})
    figures: dict[str, Any] = {
        "throughput": stress,
        "failed_share": _share(sum(row["failed"] for row in rows), sum(row["planned"] for row in rows)),
        "logon_failed_share": _share(
            sum(log_ons.get(outcome, 0) for outcome in FAILURES), sum(log_ons.get(outcome, 0) for outcome in ENDED)
        ),
        "by_protocol": {},
    }
    if len(drivers) > 1:
        return figures
    scored = [(row["weight"], row["p95_ms"]) for row in rows if row["weight"] > 0]
    beyond = any(p95_ms is not None and p95_ms >= BOUNDS_MS[-1] for _, p95_ms in scored)
    score_ms = None if beyond else weighted_average(scored)
    return figures | {"score_ms": score_ms, "tasks": rows, "by_protocol": {drivers.pop(): {"tasks": rows}}}


def _task(stretch: Stretch, task: str, weight: float) -> dict[str, Any]:
    """Return the row of a task: the tasks that ended stand for those that were due."""
    before, after = stretch.before.tasks.get(task, {}), stretch.after.tasks[task]
    counts = {outcome: after.get(outcome, 0) - before.get(outcome, 0) for outcome in ENDED}
    failed, ended = sum(counts[outcome] for outcome in FAILURES), sum(counts.values())
    percentiles = {name: stretch.about_ms(task, percent) for name, percent in PERCENTS.items()}
    return {
        "task": task,
        "weight": weight,
        "planned": ended,
        "failed": failed,
        "failed_share": _share(failed, ended),
        **percentiles,
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None
