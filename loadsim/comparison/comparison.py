"""The comparison of two sets of runs: their figures side by side, and the exit status."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.comparison.compared_run import BASE, NEW, SCORE, RunFigures, Sides, of_both, read_sides
from loadsim.comparison.decision import (
    MOST_MORE_MISSES,
    Decided,
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
    """Runs that should not be compared, and the findings against it."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        texts = [f"compare: {one.text}" for one in findings]
        super().__init__("; ".join(texts), tuple(map(ConfigError, texts)))
        self.findings = tuple(findings)


UNDECIDED = 4
"""The exit status if valid runs are too few to decide."""

Tasks = Mapping[str, Sequence[Mapping[str, TaskFigures]]]
"""By side, the tasks of each run."""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A task or a score in two sets of runs.

    `answered_less` is the side with more failures. `change` is that of `difference`, but None if it favours this side.
    Only tasks have `unanswered`, the failure rates by side.
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
    """The figures of a comparison.

    `missed_more` names the criteria that a larger share of the new runs than of base missed. `unequal_conditions` are
    those of the findings that name another cause of a difference than the server: drivers, machines or the time.
    `of_runs` has the warnings of the single runs, those of base first. `decision` is the worst of `decisions`.
    Intervals are `stretch` times as wide as those of runs that take turns.
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
        """The times that decide: the scores, the response scores, and the others."""
        return (*self.scores, *self.response_scores, *self.further)

    @property
    def all_figures(self) -> Sequence[ComparedFigure]:
        """The rows of the table: the tasks, then the scores."""
        return (*self.tasks, *self.all_scores)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two sets of runs; `runs` has those of each side, without their records."""

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
    # 1. The runs.
    runs = read_sides(base, new, across_drivers)
    check_distinct(runs)
    if against := complaints(runs, across_drivers):
        raise NotComparable(against)
    began = [[run.entry.began for run in of_side] for of_side in runs.values()]
    wider = stretch(began)

    # 2. The times and failure rates that decide.
    tasks = {side: [run.tasks for run in of_side] for side, of_side in runs.items()}
    rates = _failure_rates(tasks)
    scores, response_scores, further = times = [
        _samples({side: [getattr(run.entry, key) for run in of_side] for side, of_side in runs.items()})
        for key in ("scores_ms", "response_scores_ms", "further_ms")
    ]
    weighted = {name for of_run in of_both(tasks) for name, task in of_run.items() if task.weight}
    scored = {name: one for name, one in rates.items() if name in weighted}
    failed_more = {
        one.name: more_failures(
            {name: of for name, of in scored.items() if name.startswith(one.name.removesuffix(SCORE))}
        )
        for one in scores
    }
    missed = misses(runs)

    # 3. The decisions.
    decision, decisions, repeats = None, [], None
    if max_regression is not None:
        if not scores:
            raise ConfigError(
                "compare: --max-regression: expected runs that all have a score, found some that have none"
            )
        terms = Terms(max_regression, looks, wider, alternate(began))
        all_times = [one for some in times for one in some]
        decisions = [*by_times(all_times, failed_more, terms), *by_shares(shares(runs, scored), terms)]
        decisions += _not_measured(runs, {one.name for one in decisions}, across_drivers)
        decisions.append(by_criteria(missed, terms))
        decision = together(decisions)
        repeats = more_repeats(decisions, all_times, terms) if decision == "undecided" else None

    # 4. All figures.
    found = compare(_samples(_times(tasks)), looks, wider)
    compared = {one.name for one in found}
    first = runs[BASE][0].figures
    conditions = unequal_conditions(runs, wider)
    conditions += [finding(Code.RUNS_ALTERNATE)] if alternate(began) else []
    failed = tuple(one.name for one in decisions if one.decision == "failed")
    figures = ComparisonFigures(
        base=[run.entry for run in runs[BASE]],
        new=[run.entry for run in runs[NEW]],
        name=first.name,
        users=first.users,
        window_s=first.window_s,
        tasks=[
            replace(
                _compared(one, rates[one.name].more),
                unanswered={BASE: rates[one.name].base_share, NEW: rates[one.name].new_share},
            )
            for one in found
        ],
        scores=[_compared(one, failed_more[one.name]) for one in compare(scores, looks, wider)],
        response_scores=[_compared(one, None) for one in compare(response_scores, looks, wider)],
        further=[_compared(one, None) for one in compare(further, looks, wider)],
        missed_more=missed_more(missed),
        not_compared=sorted({name for run in of_both(tasks) for name, task in run.items() if task.hits} - compared),
        looks=looks,
        stretch=wider,
        max_regression=max_regression,
        decision=decision,
        decisions=decisions,
        more_repeats=repeats,
        findings=by_severity(
            [
                *conditions,
                *warnings_of(runs),
                *(
                    finding(Code.FAILURE_RATES_DIFFER, name, base_share=one.base_share, new_share=one.new_share)
                    for name, one in rates.items()
                    if one.more and name not in compared
                ),
                *_too_few(runs, looks, decision, repeats),
                *([finding(Code.REGRESSION, figures=failed, limit_share=max_regression)] if failed else []),
            ]
        ),
        of_runs=shared([run.verdict.warnings for run in of_both(runs)]),
        unequal_conditions=conditions,
    )
    return Comparison(figures, {side: [run.recorded for run in of_side] for side, of_side in runs.items()})


def _times(tasks: Tasks) -> dict[str, list[dict[str, float]]]:
    """Return the 95th percentiles of the tasks with hits, by side and run."""

    def times(of_run: Mapping[str, TaskFigures]) -> dict[str, float]:
        return {name: p95_ms for name, task in of_run.items() if (p95_ms := task.service.p95_ms) is not None}

    return {side: [times(of_run) for of_run in of_side] for side, of_side in tasks.items()}


def _samples(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Sampled]:
    """Return a sample of each figure that all runs have, in the order of the first run."""
    return [
        Sampled(name, [of_run[name] for of_run in found[BASE]], [of_run[name] for of_run in found[NEW]])
        for name in found[BASE][0]
        if all(name in of_run for of_run in of_both(found))
    ]


def _failure_rates(tasks: Tasks) -> dict[str, FailureRates]:
    def counts(name: str, side: str) -> list[Counts]:
        found = [of_run[name] for of_run in tasks[side] if name in of_run]
        return [Counts(task.planned, task.planned - task.hits) for task in found]

    names = sorted({name for of_run in of_both(tasks) for name in of_run})
    return {name: FailureRates(counts(name, BASE), counts(name, NEW)) for name in names}


def _not_measured(runs: Sides, known: Collection[str], across_drivers: bool) -> list[Decided]:
    """Return an undecided one for each time and criterion that some or all runs have not measured.

    State checks, which not all drivers have, are one if only one side has made some.
    """
    names: dict[str, None] = {}
    for run in of_both(runs):
        names |= dict.fromkeys((*run.entry.scores_ms, *run.entry.response_scores_ms, *run.entry.further_ms))
        names |= {one.name: None for one in run.recorded.summary.criteria if one.figure is None}
    if not across_drivers and len({any(run.state_checked for run in of_side) for of_side in runs.values()}) > 1:
        names["state checks"] = None
    return [Decided(name, "unmeasured", "undecided") for name in names if name not in known]


def _too_few(runs: Sides, looks: int, decision: Decision | None, more: int | None) -> list[Finding]:
    least, enough = min(map(len, runs.values())), enough_runs(MOST_MORE_MISSES, ALPHA / looks)
    if least < enough:
        return [finding(Code.FEW_RUNS, runs=least, enough=enough)]
    return [finding(Code.UNDECIDED, more=more)] if decision == "undecided" else []


def _compared(found: Difference, more_failures: Side | None) -> ComparedFigure:
    won = (found.change, more_failures) in (("faster", NEW), ("slower", BASE))
    return ComparedFigure(found, None if won else found.change, more_failures)
