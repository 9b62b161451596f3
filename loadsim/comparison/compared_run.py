"""A run in a comparison: its entry there, and its description."""

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
"""Limits by the figure's name; None if switched off."""

BASE, NEW = "base", "new"

SCORE = "Score"
"""The score's name among the figures; with several drivers, preceded by the driver's name."""

RESPONSE_SCORE = "Response score"
"""The response score's name; with several drivers as above."""

DELIVERY = "Delivery"
"""The name of the delivery times' 95th percentile."""

LEAST_DELIVERY_MS = 100.0
"""Shorter delivery times count as this long: users do not notice them, and clocks or lag may cause them."""

_OF_MACHINES = (PROBES, "generator.", "lateness_p95_ms.generator", "delivery.clock_error_ms")
"""Name prefixes of machine figures, which may change without harm to users."""


def kind_of(criterion: str) -> Literal["time", "share", "missed"]:
    """Return how to judge a criterion's figure: by ratio, by difference, or only by the runs that miss the criterion.

    Rates and sizes follow from the load, which is the same in all runs.
    """
    if criterion.startswith(_OF_MACHINES):
        return "missed"
    kinds: Mapping[str, Literal["time", "share"]] = {"ms": "time", "%": "share", "": "share"}
    return kinds.get(unit_of(criterion), "missed")


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of a compared run; `began` is the wall-clock time (ISO 8601) at which its first engine began.

    `further_ms` has the other times that count for the decision: the delivery time, and those with a criterion.
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
    """A run: its entry in the comparison, its description, and the header of its log.

    It is judged by `criteria`. `name` stands for its path in sentences about two runs.
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
        """True if the server's responses were checked against earlier ones (`client.check_state`)."""
        checks = (source.facts.state_checks for source in self.recorded.log.sources)
        return any(check.users for check in checks if check)

    @property
    def tasks(self) -> dict[str, TaskFigures]:
        """The tasks by name, preceded by the driver if there are several."""
        drivers = self.figures.by_protocol
        return {
            task.task if len(drivers) == 1 else f"{driver}: {task.task}": task
            for driver, figures in drivers.items()
            for task in figures.tasks
        }


Sides = Mapping[str, Sequence[ComparedRun]]
"""The runs of base and new."""


def of_both(sides: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """Yield the items of both sides, base first."""
    return chain(*sides.values())


def read_sides(
    base: Sequence[Path | str], new: Sequence[Path | str], across_drivers: bool = False
) -> dict[str, list[ComparedRun]]:
    """Read the runs, judge all of them by the same criteria, and give them short, distinct names.

    The criteria are those of base. Criteria that only new states also apply to base's runs that have the figures. With
    `across_drivers`, delivery does not count: by SMTP, it begins when a queue accepts the message, by MAPI later.
    Raises what `read_run` raises.
    """
    sides = {BASE: [*map(read_run, base)], NEW: [*map(read_run, new)]}
    of_base, of_new = (_stated(runs) for runs in sides.values())
    further = of_new.keys() - of_base.keys()

    def judged(run: ComparedRun, side: str) -> ComparedRun:
        results = judge_each({name: of_new[name] for name in further}, run.figures)
        unknown = {result.name for result in results if result.figure is None} if side == BASE else set()
        criteria = {name: limits for name, limits in (of_new | of_base).items() if name not in unknown}
        return run if run.criteria == criteria else read_run(run.entry.path, criteria)

    names = iter(names_of([run.recorded for run in of_both(sides)]))
    named = {side: [replace(judged(run, side), name=next(names)) for run in runs] for side, runs in sides.items()}
    for run in of_both(named) if across_drivers else ():
        run.entry.further_ms.pop(DELIVERY, None)
    return named


def _stated(runs: Iterable[ComparedRun]) -> dict[str, Limits | None]:
    """Return the runs' criteria; where limits differ, the first run's that does not switch the criterion off."""
    stated: dict[str, Limits | None] = {}
    for run in runs:
        stated |= {name: limits for name, limits in run.criteria.items() if stated.get(name) is None}
    return stated


def read_run(argument: Path | str, criteria: Criteria | None = None) -> ComparedRun:
    """Read the run that an argument names, and judge it by these criteria (None: its own).

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
        scores_ms=_by_driver(SCORE, {driver: figures.score_ms for driver, figures in drivers.items()}),
        response_scores_ms=_by_driver(
            RESPONSE_SCORE, {driver: figures.response_score_ms for driver, figures in drivers.items()}
        ),
        further_ms=_further(summary),
        done=totals.done,
        failed=totals.failed,
        validity=summary.verdict.validity,
        passed=summary.verdict.passed,
    )
    recorded = without_records(str(argument), log, summary)
    return ComparedRun(entry, recorded, log.header, criteria or log.header.criteria)


def _by_driver(name: str, times_ms: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name if len(times_ms) == 1 else f"{driver}: {name}": time_ms
        for driver, time_ms in times_ms.items()
        if time_ms is not None
    }


def _further(summary: Summary) -> dict[str, float]:
    """Return, by name, the delivery time (if there was mail) and the times with a criterion of their own."""
    delivery_ms = summary.figures.delivery.took.p95_ms
    times_ms = {DELIVERY: None if delivery_ms is None else max(delivery_ms, LEAST_DELIVERY_MS)} | {
        result.name: result.figure
        for result in summary.criteria
        if kind_of(result.name) == "time" and not result.each and result.name.rpartition(".")[2] not in SCORES
    }
    times_ms.pop("delivery.p95_ms", None)
    return {name: time_ms for name, time_ms in times_ms.items() if time_ms is not None}
