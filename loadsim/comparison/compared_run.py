"""One of the runs that are compared: its entry in the comparison, and what describes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from loadsim.analysis.criteria import Limits, judge_each
from loadsim.analysis.recorded_run import RecordedRun, names_of, without_records
from loadsim.analysis.summary import Summary, summary_of
from loadsim.errors import ConfigError
from loadsim.findings.formats import unit_of
from loadsim.findings.verdict import Verdict
from loadsim.model.figures import Figures, TaskFigures
from loadsim.model.terms import STRESS
from loadsim.scenario.criteria import PROBES, SCORES
from loadsim.timinglog.header import LogHeader
from loadsim.timinglog.merge import read_logs

Criteria = Mapping[str, Limits | None]
"""Limits by the name of the figure; None is off."""

BASE, NEW = "base", "new"

SCORE = "Score"
"""The name of the score among the figures; with several drivers, the driver's name precedes it."""

RESPONSE_SCORE = "Response score"
"""The name of the response score, as that of the score."""

DELIVERY = "Delivery"
"""The name of the 95th percentile of the delivery times."""

LEAST_DELIVERY_MS = 100.0
"""Compared delivery times are at least this: users do not notice less, and clocks or lag may cause it."""

_OF_MACHINES = (PROBES, "generator.", "lateness_p95_ms.generator", "delivery.clock_error_ms")
"""The beginnings of names of figures of machines, which may change without harm to a user."""


def kind_of(criterion: str) -> Literal["time", "share", "missed"]:
    """Return how a comparison decides on the figure of a criterion: by ratio, by difference, or only by who misses it.

    Rates and sizes follow from the load, which is the same.
    """
    if criterion.startswith(_OF_MACHINES):
        return "missed"
    kinds: Mapping[str, Literal["time", "share"]] = {"ms": "time", "%": "share", "": "share"}
    return kinds.get(unit_of(criterion), "missed")


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One of the compared runs; `began` is the wall-clock time (ISO 8601) at which its first engine began.

    `further_ms` has the other times that decide: that of delivery, and those that have a criterion.
    """

    path: str
    run: str
    began: str | None
    server: str | None
    scores_ms: Mapping[str, float]
    response_scores_ms: Mapping[str, float]
    further_ms: dict[str, float]
    done: float
    failed: float
    validity: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run: its entry in the comparison, what describes it, and the header of its log.

    `criteria` are those by which it is judged. `name` stands for its path in a sentence on two runs.
    """

    entry: RunFigures
    recorded: RecordedRun
    header: LogHeader
    criteria: Criteria
    name: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.recorded.summary.verdict

    @property
    def figures(self) -> Figures:
        return self.recorded.figures

    @property
    def state_checked(self) -> bool:
        """True if the server was held against its earlier responses (`client.check_state`)."""
        checks = (source.facts.state_checks for source in self.recorded.log.sources)
        return any(each.users for each in checks if each)

    @property
    def tasks(self) -> dict[str, TaskFigures]:
        """The tasks by name, with the driver if there are several."""
        modules = self.figures.by_protocol
        return {
            task.task if len(modules) == 1 else f"{module}: {task.task}": task
            for module, found in modules.items()
            for task in found.tasks
        }


Sides = Mapping[str, Sequence[ComparedRun]]
"""The runs of base and new."""


def of_both(sides: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yield what the sides have, those of base first."""
    return chain(*sides.values())


def read_sides(
    base: Sequence[Path | str], new: Sequence[Path | str], across_drivers: bool = False
) -> dict[str, list[ComparedRun]]:
    """Read the runs, judge all of them by the same criteria, and give them names that are short and differ.

    The criteria are those of base. Those that only new states hold also for runs of base that have their figures. With
    `across_drivers`, delivery does not decide: by SMTP it begins with the acceptance into a queue, by MAPI later.
    Raises as `read_run`.
    """
    sides = {BASE: [*map(read_run, base)], NEW: [*map(read_run, new)]}
    of_base, of_new = (_stated(runs) for runs in sides.values())
    further = of_new.keys() - of_base.keys()

    def judged(run: ComparedRun, side: str) -> ComparedRun:
        results = judge_each({name: of_new[name] for name in further}, run.figures)
        unknown = {one.name for one in results if one.figure is None} if side == BASE else set()
        criteria = {name: limits for name, limits in (of_new | of_base).items() if name not in unknown}
        return run if run.criteria == criteria else read_run(run.entry.path, criteria)

    names = iter(names_of([run.recorded for run in of_both(sides)]))
    found = {side: [replace(judged(run, side), name=next(names)) for run in runs] for side, runs in sides.items()}
    for run in of_both(found) if across_drivers else ():
        run.entry.further_ms.pop(DELIVERY, None)
    return found


def _stated(runs: Iterable[ComparedRun]) -> dict[str, Limits | None]:
    """Return the criteria of the runs; limits that differ are those of the first run that does not switch them off."""
    found: dict[str, Limits | None] = {}
    for run in runs:
        found |= {name: limits for name, limits in run.criteria.items() if found.get(name) is None}
    return found


def read_run(argument: Path | str, criteria: Criteria | None = None) -> ComparedRun:
    """Read the run that an argument names, and judge it by its own criteria or by others.

    Raises `LogError`, and `ConfigError` for a run without a score.
    """
    log = read_logs([argument])
    if log.header.mode == STRESS:
        raise ConfigError(f"{argument}: mode: expected a canonical run, found a stress run: it has no score")
    summary = summary_of(log, criteria=criteria)
    drivers, totals = summary.figures.by_protocol, summary.figures.totals
    began = (source.wall_clock_start for source in log.sources if not source.is_monitor)
    entry = RunFigures(
        path=str(argument),
        run=log.sources[0].run,
        began=min(filter(None, began), default=None),
        server=summary.figures.server,
        scores_ms=_by_driver(SCORE, {driver: found.score_ms for driver, found in drivers.items()}),
        response_scores_ms=_by_driver(
            RESPONSE_SCORE, {driver: found.response_score_ms for driver, found in drivers.items()}
        ),
        further_ms=_further(summary),
        done=totals.done,
        failed=totals.failed,
        validity=summary.verdict.validity,
        passed=summary.verdict.passed,
    )
    recorded = without_records(str(argument), log, summary)
    return ComparedRun(entry, recorded, log.header, criteria or log.header.criteria)


def _by_driver(name: str, figures: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name if len(figures) == 1 else f"{driver}: {name}": found
        for driver, found in figures.items()
        if found is not None
    }


def _further(summary: Summary) -> dict[str, float]:
    """Return the time of delivery, if there was mail, and those with a criterion of their own, by name."""
    delivery_ms = summary.figures.delivery.took.p95_ms
    found = {DELIVERY: None if delivery_ms is None else max(delivery_ms, LEAST_DELIVERY_MS)} | {
        one.name: one.figure
        for one in summary.criteria
        if kind_of(one.name) == "time" and not one.each and one.name.rpartition(".")[2] not in SCORES
    }
    found.pop("delivery.p95_ms", None)
    return {name: time_ms for name, time_ms in found.items() if time_ms is not None}
