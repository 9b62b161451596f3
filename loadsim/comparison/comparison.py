"""The comparison of two sets of runs: their figures side by side, and the exit status."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.comparison.compared_run import BASE, NEW, SCORE, RunFigures, Sides, of_both, read_sides
from loadsim.comparison.decision import (
    MOST_MORE_MISSES,
    Decided,
    Missed,
    Terms,
    by_criteria,
    by_shares,
    by_times,
    missed_more,
    misses,
    more_repeats,
    shares,
    together,
)
from loadsim.comparison.failure_rates import Counts, FailureRates, Side, more_failures
from loadsim.comparison.obstacles import check_distinct, complaints, unequal_conditions, warnings_of
from loadsim.comparison.run_order import alternate, stretch
from loadsim.documents.json_values import INLINE, OPTIONAL, to_json
from loadsim.errors import ConfigError, ConfigErrors
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, Shared, finding, shared
from loadsim.findings.verdict import by_severity
from loadsim.model.figures import TaskFigures
from loadsim.model.terms import Window
from loadsim.statistics.comparison import ALPHA, Decision, Difference, Sampled, compare, enough_runs


class NotComparable(ConfigErrors):
    """Runs that must not be compared, with the findings that say why."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        texts = [f"compare: {finding.text}" for finding in findings]
        super().__init__("; ".join(texts), tuple(map(ConfigError, texts)))
        self.findings = tuple(findings)


UNDECIDED = 4
"""The exit status if there are too few valid runs to decide."""

Tasks = Mapping[str, Sequence[Mapping[str, TaskFigures]]]
"""The tasks of each run, by side."""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A task's or a score's figures in two sets of runs.

    `answered_less` is the side with more failures. `change` is that of `difference`; None if it favours that side. Only
    tasks have `unanswered`, the failure rates by side.
    """

    difference: Difference = field(metadata=INLINE)
    change: str | None
    answered_less: Side | None
    unanswered: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)

    @property
    def interval(self) -> tuple[float, float] | None:
        low, high = self.difference.low, self.difference.high
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class ComparisonFigures:
    """A comparison's figures.

    `missed_more` names the criteria that a larger share of new than of base missed. `unequal_conditions` are findings
    on possible causes of a difference other than the server: drivers, machines or time. `of_runs` has the single runs'
    warnings, base first. `decision` is the worst of `decisions`. Intervals are `stretch` times as wide as if the runs
    had taken turns.
    """

    base: Sequence[RunFigures]
    new: Sequence[RunFigures]
    name: str | None
    users: float
    window_s: Window
    tasks: Sequence[ComparedFigure]
    scores: Sequence[ComparedFigure]
    response_scores: Sequence[ComparedFigure]
    further: Sequence[ComparedFigure]
    missed_more: Sequence[str]
    not_compared: Sequence[str]
    looks: int
    stretch: float
    max_regression: float | None
    decision: Decision | None
    decisions: Sequence[Decided]
    more_repeats: int | None
    findings: Sequence[Finding]
    of_runs: Sequence[Shared]
    unequal_conditions: Sequence[Finding]

    @property
    def all_scores(self) -> Sequence[ComparedFigure]:
        """The times that count for the decision: the scores, the response scores, and the others."""
        return (*self.scores, *self.response_scores, *self.further)

    @property
    def all_figures(self) -> Sequence[ComparedFigure]:
        """The rows of the table: the tasks, then the scores."""
        return (*self.tasks, *self.all_scores)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two sets of runs; `runs` has each side's, without their records."""

    figures: ComparisonFigures
    runs: Mapping[str, Sequence[RecordedRun]] = field(default_factory=dict, repr=False)

    @property
    def document(self) -> dict[str, Any]:
        """The output of `loadsim compare --json`."""
        document: dict[str, Any] = to_json(self.figures)
        return document

    @property
    def exit_status(self) -> int:
        return {None: 0, "passed": 0, "failed": 1, "undecided": UNDECIDED}[self.figures.decision]


def compare_runs(
    base: Sequence[Path | str],
    new: Sequence[Path | str],
    *,
    max_regression: float | None = None,
    looks: int = 1,
    across_drivers: bool = False,
) -> Comparison:
    """Compare the runs of two sets as `api.compare` does; each argument (run directory, log or pattern) is one run."""
    runs = read_sides(base, new, across_drivers)
    check_distinct(runs)
    if against := complaints(runs, across_drivers):
        raise NotComparable(against)
    measured = _measured(runs)
    began = [[run.entry.began for run in of_side] for of_side in runs.values()]
    terms = Terms(max_regression or 0.0, looks, stretch(began), alternate(began))
    decisions = [] if max_regression is None else _decisions(runs, measured, terms, across_drivers)
    figures = _figures(runs, measured, terms, max_regression, decisions)
    return Comparison(figures, {side: [run.recorded for run in of_side] for side, of_side in runs.items()})


class _Measured(NamedTuple):
    """The figures to decide on: times by their field of `ComparisonFigures`, failure rates of tasks, missed criteria.

    `scored` has the rates of tasks with a weight, `failed_more` the side with more failures for each score.
    """

    tasks: Tasks
    times: Mapping[str, Sequence[Sampled]]
    rates: Mapping[str, FailureRates]
    scored: Mapping[str, FailureRates]
    failed_more: Mapping[str, Side | None]
    missed: Missed

    @property
    def all_times(self) -> list[Sampled]:
        return list(chain(*self.times.values()))


def _measured(runs: Sides) -> _Measured:
    tasks = {side: [run.tasks for run in of_side] for side, of_side in runs.items()}
    rates = _failure_rates(tasks)
    times = {
        key: _samples({side: [getattr(run.entry, f"{key}_ms") for run in of_side] for side, of_side in runs.items()})
        for key in ("scores", "response_scores", "further")
    }
    weighted = {name for of_run in of_both(tasks) for name, task in of_run.items() if task.weight}
    scored = {name: rate for name, rate in rates.items() if name in weighted}
    failed_more = {
        score.name: more_failures(
            rate for name, rate in scored.items() if name.startswith(score.name.removesuffix(SCORE))
        )
        for score in times["scores"]
    }
    return _Measured(tasks, times, rates, scored, failed_more, misses(runs))


def _decisions(runs: Sides, measured: _Measured, terms: Terms, across_drivers: bool) -> list[Decided]:
    """Decide on all figures. Raises `ConfigError` for runs without a score."""
    if not measured.times["scores"]:
        raise ConfigError("compare: --max-regression: expected runs that all have a score, found some that have none")
    decisions = by_times(measured.all_times, measured.failed_more, terms)
    decisions += by_shares(shares(runs, measured.scored), terms)
    decisions += _not_measured(runs, {decided.name for decided in decisions}, across_drivers)
    return [*decisions, by_criteria(measured.missed, terms)]


def _figures(
    runs: Sides, measured: _Measured, terms: Terms, max_regression: float | None, decisions: Sequence[Decided]
) -> ComparisonFigures:
    looks, wider, rates = terms.looks, terms.stretch, measured.rates

    def compared(key: str) -> list[ComparedFigure]:
        times = compare(measured.times[key], looks, wider)
        return [_compared(time, measured.failed_more.get(time.name)) for time in times]

    decision = together(decisions) if decisions else None
    repeats = more_repeats(decisions, measured.all_times, terms) if decision == "undecided" else None
    tasks = [
        replace(
            _compared(task, rates[task.name].more),
            unanswered={BASE: rates[task.name].base_share, NEW: rates[task.name].new_share},
        )
        for task in compare(_samples(_times(measured.tasks)), looks, wider)
    ]
    names = {task.difference.name for task in tasks}
    first = runs[BASE][0].figures
    conditions = unequal_conditions(runs, wider) + ([finding(Code.RUNS_ALTERNATE)] if terms.alternate else [])
    findings = [*conditions, *warnings_of(runs)]
    findings += [
        finding(Code.FAILURE_RATES_DIFFER, name, base_share=rate.base_share, new_share=rate.new_share)
        for name, rate in rates.items()
        if rate.more and name not in names
    ]
    findings += _too_few(runs, looks, decision, repeats)
    if failed := tuple(decided.name for decided in decisions if decided.decision == "failed"):
        findings.append(finding(Code.REGRESSION, figures=failed, limit_share=max_regression))
    with_hits = {name for run in of_both(measured.tasks) for name, task in run.items() if task.hits}
    return ComparisonFigures(
        base=[run.entry for run in runs[BASE]],
        new=[run.entry for run in runs[NEW]],
        name=first.name,
        users=first.users,
        window_s=first.window_s,
        tasks=tasks,
        scores=compared("scores"),
        response_scores=compared("response_scores"),
        further=compared("further"),
        missed_more=missed_more(measured.missed),
        not_compared=sorted(with_hits - names),
        looks=looks,
        stretch=wider,
        max_regression=max_regression,
        decision=decision,
        decisions=decisions,
        more_repeats=repeats,
        findings=by_severity(findings),
        of_runs=shared([run.verdict.warnings for run in of_both(runs)]),
        unequal_conditions=conditions,
    )


def _times(tasks: Tasks) -> dict[str, list[dict[str, float]]]:
    """Return the 95th percentiles of the tasks with hits, by side and run."""
    return {
        side: [
            {name: p95_ms for name, task in of_run.items() if (p95_ms := task.service.p95_ms) is not None}
            for of_run in of_side
        ]
        for side, of_side in tasks.items()
    }


def _samples(times: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Sampled]:
    """Return a sample of each time that all runs have, in the first run's order."""
    return [
        Sampled(name, [of_run[name] for of_run in times[BASE]], [of_run[name] for of_run in times[NEW]])
        for name in times[BASE][0]
        if all(name in of_run for of_run in of_both(times))
    ]


def _failure_rates(tasks: Tasks) -> dict[str, FailureRates]:
    def counts(name: str, side: str) -> list[Counts]:
        of_side = [of_run[name] for of_run in tasks[side] if name in of_run]
        return [Counts(task.planned, task.planned - task.hits) for task in of_side]

    names = sorted({name for of_run in of_both(tasks) for name in of_run})
    return {name: FailureRates(counts(name, BASE), counts(name, NEW)) for name in names}


def _not_measured(runs: Sides, known: Collection[str], across_drivers: bool) -> list[Decided]:
    """Return an undecided decision for each time and criterion that some run has not measured.

    These include state checks, which not all drivers make, if only one side made any.
    """
    names: dict[str, None] = {}
    for run in of_both(runs):
        names |= dict.fromkeys((*run.entry.scores_ms, *run.entry.response_scores_ms, *run.entry.further_ms))
        names |= {result.name: None for result in run.recorded.summary.criteria if result.figure is None}
    if not across_drivers and len({any(run.state_checked for run in of_side) for of_side in runs.values()}) > 1:
        names["state checks"] = None
    return [Decided(name, "unmeasured", "undecided") for name in names if name not in known]


def _too_few(runs: Sides, looks: int, decision: Decision | None, more: int | None) -> list[Finding]:
    least, enough = min(map(len, runs.values())), enough_runs(MOST_MORE_MISSES, ALPHA / looks)
    if least < enough:
        return [finding(Code.FEW_RUNS, runs=least, enough=enough)]
    return [finding(Code.UNDECIDED, more=more)] if decision == "undecided" else []


def _compared(difference: Difference, more_failures: Side | None) -> ComparedFigure:
    favoured = (difference.change, more_failures) in (("faster", NEW), ("slower", BASE))
    return ComparedFigure(difference, None if favoured else difference.change, more_failures)
