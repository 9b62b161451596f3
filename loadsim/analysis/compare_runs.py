"""The comparison of two sets of runs: which runs may be compared, their figures side by side, and the exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from loadsim.analysis.comparability import SAME, difference
from loadsim.analysis.compare import (
    ALPHA,
    FIRST_LOOK,
    LOOKS_WITH_REPEATS,
    MOST_LOOKED_AT,
    Decision,
    Difference,
    Sample,
    compare,
    decide,
    false_claims,
    repeats_needed,
)
from loadsim.analysis.failure_rates import Counts, FailureRates, Side, together
from loadsim.analysis.figures import Figures, TaskFigures
from loadsim.analysis.json_values import INLINE, OPTIONAL, to_json
from loadsim.analysis.recorded_run import RecordedRun, names_of, without_records
from loadsim.analysis.summary import summarise
from loadsim.analysis.unequal_machines import unequal_machines
from loadsim.analysis.verdict import Verdict
from loadsim.errors import ConfigError, ConfigErrors
from loadsim.model.terms import STRESS, Window
from loadsim.timinglog.header_words import differences
from loadsim.timinglog.merge import find_logs, merge, mode_of
from loadsim.timinglog.reader import read_log

UNDECIDED = 4
"""The exit status if valid runs are too few to decide."""

EXIT_STATUS: Mapping[Decision | None, int] = {None: 0, "passed": 0, "failed": 1, "undecided": UNDECIDED}

LOAD = {"scenario_digest": "load of the scenario", "plan_digest": "plan", "start_state_digest": "start state"}
"""Header keys that depend on the seed, in words: they must agree, or occur equally often on both sides."""

NOT_LOAD = ("name", "server", "accounts", "weights", "criteria", "limits", "probes")
"""Keys of a scenario that do not change its load."""

OF_WINDOW = ("run.warm_up", "run.window")
"""Keys of a scenario that state the window."""

OF_DURATION = ("run.duration", "run.days")
"""Keys of a scenario that state the duration."""

FOLLOW_FROM_DAY = {"window_s": "window", "duration_s": "duration", "scenario_digest": "load", "plan_digest": "plan"}
"""Header keys that may follow from the length of the day, in words."""

BOTH_SHOWN = "loadsim report RUN RUN shows both on one page"
"""Advice on runs that are not comparable."""

BASE, NEW = "base", "new"

SCORE = "Score"
"""The name of the score among the figures; with several drivers, the driver's name precedes it."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One of the compared runs; `began` is the wall-clock time (ISO 8601) at which its first engine began."""

    path: str
    run: str
    began: str | None
    server: str | None
    scores_ms: Mapping[str, float]
    done: float
    failed: float
    validity: str
    passed: bool | None


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A task or a score in two sets of runs.

    `answered_less` is the side with more failures. `change` is that of `difference`, but None if it favours this side.
    Only tasks have `p50_ratio`, and `unanswered`, the failure rates by side.
    """

    difference: Difference = field(metadata=INLINE)
    difference_ms: float
    change: str | None
    answered_less: Side | None
    p50_ratio: float | None = field(default=None, metadata=OPTIONAL)
    unanswered: Mapping[str, float] | None = field(default=None, metadata=OPTIONAL)

    @property
    def by_itself(self) -> bool:
        """True if the interval excludes 1, but the corrected p shows nothing."""
        low, high = self.difference.low, self.difference.high
        if self.change or self.answered_less or low is None or high is None:
            return False
        return not low <= 1 <= high


@dataclass(frozen=True, slots=True)
class ComparisonFigures:
    """The figures of a comparison. `ignored` has the reasons against it that `force` overruled."""

    base: Sequence[RunFigures]
    new: Sequence[RunFigures]
    name: str | None
    users: float
    window_s: Window
    tasks: Sequence[ComparedFigure]
    scores: Sequence[ComparedFigure]
    not_compared: Sequence[str]
    looks: int
    max_regression: float | None
    decision: Decision | None
    more_repeats: int | None
    ignored: Sequence[str]
    warnings: Sequence[str]


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
        """The exit status of `loadsim compare`."""
        return EXIT_STATUS[self.figures.decision]


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its entry in the comparison, what describes it, and the header of an engine's log.

    `name` stands for its path in a sentence on two runs.
    """

    entry: RunFigures
    recorded: RecordedRun
    header: Mapping[str, Any]
    name: str = ""

    @property
    def verdict(self) -> Verdict:
        return self.recorded.summary.verdict

    @property
    def figures(self) -> Figures:
        return self.recorded.figures

    @property
    def tasks(self) -> dict[str, TaskFigures]:
        """The tasks by name, with the driver if there are several."""
        modules = self.figures.by_protocol
        return {
            task.task if len(modules) == 1 else f"{module}: {task.task}": task
            for module, found in modules.items()
            for task in found.tasks
        }


Tasks = Mapping[str, Sequence[Mapping[str, TaskFigures]]]
"""By side, the tasks of each run."""


def compare_runs(
    base: Sequence[Path | str],
    new: Sequence[Path | str],
    *,
    max_regression: float | None = None,
    looks: int = 1,
    force: bool = False,
) -> Comparison:
    """Compare the runs of two sets; each argument (a run directory, a log, or a pattern) is one run.

    `max_regression` is a share: 0.05 allows a score 5 % worse. `looks` is the planned number of comparisons of the
    growing sets; intervals and p are corrected for it. `force` compares runs that should not be compared, and reports
    the reasons against it. Raises `ConfigError` for runs that cannot be read or compared.
    """
    runs = _named({BASE: [read_run(each) for each in base], NEW: [read_run(each) for each in new]})
    _check_distinct(runs)
    ignored = _complaints(runs)
    if ignored and not force:
        raise _refusal(ignored, valid=all(run.verdict.validity != "invalid" for run in _all(runs)))
    tasks = {side: [run.tasks for run in of_side] for side, of_side in runs.items()}
    rates = _failure_rates(tasks)
    scores = _samples({side: [run.entry.scores_ms for run in of_side] for side, of_side in runs.items()})
    with_failures = {sample.name: _failed_more(sample.name, tasks, rates, looks) for sample in scores}
    if max_regression is not None and not scores:
        raise ConfigError("compare: --max-regression: expected runs that all have a score, found some that have none")
    decisions = (
        []
        if max_regression is None
        else [_decision(sample, max_regression, looks, *with_failures[sample.name]) for sample in scores]
    )
    decision = _together(found for found, _ in decisions)
    found = compare(_samples(_of_each(tasks, "p95_ms")), looks)
    medians = {one.name: one.ratio for one in compare(_samples(_of_each(tasks, "p50_ms")))}
    compared = {one.name for one in found}
    first = runs[BASE][0].figures
    figures = ComparisonFigures(
        base=[run.entry for run in runs[BASE]],
        new=[run.entry for run in runs[NEW]],
        name=first.name,
        users=first.users,
        window_s=first.window_s,
        tasks=[
            replace(
                _compared(one, rates[one.name].more),
                p50_ratio=medians[one.name],
                unanswered={BASE: rates[one.name].base_share, NEW: rates[one.name].new_share},
            )
            for one in found
        ],
        scores=[_compared(one, with_failures[one.name][0]) for one in compare(scores, looks)],
        not_compared=sorted({name for run in _all(tasks) for name, task in run.items() if task.hits} - compared),
        looks=looks,
        max_regression=max_regression,
        decision=decision,
        more_repeats=_most(more for one, more in decisions if one == decision) if decision == "undecided" else None,
        ignored=ignored,
        warnings=[
            *_warnings(runs),
            *(_failure_rate_warning(name, one) for name, one in rates.items() if one.more and name not in compared),
        ],
    )
    return Comparison(
        replace(figures, warnings=[*figures.warnings, *_one_look(figures)]),
        {side: [run.recorded for run in of_side] for side, of_side in runs.items()},
    )


def read_run(argument: Path | str) -> Run:
    """Read the run that an argument names. Raises `LogError`, and `ConfigError` for the logs of several runs."""
    logs = [read_log(path) for path in find_logs([argument])]
    sources = [source for log in logs if not log.monitor for source in log.sources if not source.is_monitor]
    names = sorted({source.run for source in sources})
    if len(names) > 1:
        raise ConfigError(f"{argument}: expected the logs of one run, found those of {', '.join(names)}")
    for log in logs:
        if mode_of(log) == STRESS:
            raise ConfigError(f"{argument}: mode: expected a canonical run, found a stress run: it has no score")
    simulating = next((log for log in logs if any(source.simulates for source in log.sources)), logs[0])
    summary = summarise(logs)
    if part := summary.figures.slice:
        raise ConfigError(f"{argument}: expected a whole run, found slice {part} of one: merge all slices first")
    modules, totals = summary.figures.by_protocol, summary.figures.totals
    entry = RunFigures(
        path=str(argument),
        run=names[0],
        began=min((source.wall_clock_start for source in sources if source.wall_clock_start), default=None),
        server=summary.figures.server,
        scores_ms={
            SCORE if len(modules) == 1 else f"{module}: {SCORE}": found.score_ms
            for module, found in modules.items()
            if found.score_ms is not None
        },
        done=totals.done,
        failed=totals.failed,
        validity=summary.verdict.validity,
        passed=summary.verdict.passed,
    )
    return Run(entry, without_records(str(argument), merge(logs), summary), simulating.header)


# --- obstacles and warnings -------------------------------------------------------------------------------------


def _all(sides: Mapping[str, Sequence[Any]]) -> chain[Any]:
    return chain(*sides.values())


def _named(runs: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    names = iter(names_of([run.recorded for run in _all(runs)]))
    return {side: [replace(run, name=next(names)) for run in of_side] for side, of_side in runs.items()}


def _check_distinct(runs: Mapping[str, Sequence[Run]]) -> None:
    """Raise `ConfigError` if a run occurs twice, even with `force`."""
    seen: dict[str, tuple[str, Run]] = {}
    for side, of_side in runs.items():
        for run in of_side:
            name = run.entry.run or str(Path(run.entry.path).resolve())
            if name in seen:
                other, first = seen[name]
                where = f"twice in {side}" if side == other else "in base and in new"
                paths = " and ".join(dict.fromkeys((first.entry.path, run.entry.path)))
                raise ConfigError(f"compare: expected each run once, found {name} {where} ({paths})")
            seen[name] = side, run


def _refusal(complaints: Sequence[str], valid: bool) -> ConfigError:
    """Return an error with a line for each complaint; a single one has the advice in its line."""
    advice = [BOTH_SHOWN] if valid else []
    if len(complaints) == 1:
        return ConfigError("; ".join([f"compare: {complaints[0]}", *advice]))
    lines = [f"compare: {len(complaints)} reasons against it:"]
    lines += [f"({number}) {complaint}" for number, complaint in enumerate(complaints, 1)]
    return ConfigErrors(
        "; ".join([*lines, *advice]).replace(":; ", ": ", 1), tuple(map(ConfigError, [*lines, *advice]))
    )


def _complaints(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the reasons against a comparison; those that follow from the length of the day are one with it."""
    follow = _following(runs)
    differing = {key: found for key in SAME if key not in follow and (found := _difference(runs, key))}
    if follow and "day_s" in differing:
        *others, last = (FOLLOW_FROM_DAY[key] for key in follow)
        named = f"{', '.join(others)} and {last} follow" if others else f"the {last} follows"
        differing["day_s"] += f" ({named} from it)"
    return [
        *(
            f"{run.entry.path}: expected a valid run, found an invalid one: {'; '.join(run.verdict.defects)}"
            for run in _all(runs)
            if run.verdict.validity == "invalid"
        ),
        *differing.values(),
        *_differing(runs, "drivers", lambda run: ", ".join(run.figures.by_protocol)),
        *_differing(runs, "tasks in the score", _scored),
        *_differing_loads(runs, follow),
    ]


def _following(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Return the header keys that differ, as far as is known, only because `run.day_length` does.

    A window follows that is the same part of the day or has no key of its own that differs; a duration likewise. Load
    and plan follow if no other key of the scenarios differs that changes the load.
    """
    scenarios = [run.recorded.scenario for run in _all(runs)]
    if not all(scenarios):
        return []
    keys = {name for other in scenarios for name in _keys_of_load(scenarios[0], other)}
    if "run.day_length" not in keys:
        return []
    parts = {tuple(round(end_s / run.figures.day_s, 9) for end_s in run.figures.window_s) for run in _all(runs)}
    window = len(parts) == 1 or keys.isdisjoint((*OF_WINDOW, *OF_DURATION))
    load = keys <= {"run.day_length", *OF_WINDOW} and window
    follows = {
        "window_s": window,
        "duration_s": keys.isdisjoint(OF_DURATION),
        "scenario_digest": load,
        "plan_digest": load,
    }
    headers = [run.header for run in _all(runs)]
    return [
        key
        for key in FOLLOW_FROM_DAY
        if follows[key] and any(header.get(key) != headers[0].get(key) for header in headers)
    ]


def _keys_of_load(one: Mapping[str, Any], another: Mapping[str, Any]) -> list[str]:
    """Return the keys that change the load and differ between two scenarios."""
    first, second = ({**scenario, "run": scenario.get("run") or {}} for scenario in (one, another))
    return [
        name for name, *_ in differences(first, second, sorted({*one, *another, "run"}.difference(NOT_LOAD), key=str))
    ]


def _header(key: str) -> Callable[[Run], Any]:
    return lambda run: run.header.get(key)


def _scored(run: Run) -> str:
    return "; ".join(", ".join(found.covers.scored) for found in run.figures.by_protocol.values())


def _difference(runs: Mapping[str, Sequence[Run]], key: str) -> str | None:
    """Return the difference between the first run and one that has another value of a header key, in words."""
    first = runs[BASE][0]
    found = (difference(key, first.header, run.header, (first.name, run.name)) for run in _all(runs))
    return next(filter(None, found), None)


def _differing(runs: Mapping[str, Sequence[Run]], key: str, of: Callable[[Run], Any]) -> list[str]:
    first = runs[BASE][0]
    other = next((run for run in _all(runs) if of(run) != of(first)), None)
    if other is None:
        return []
    found = f"{of(first)} in {first.name} and {of(other)} in {other.name}"
    return [f"{key}: expected the same in all runs, found {found}"]


def _differing_loads(runs: Mapping[str, Sequence[Run]], follow: Collection[str]) -> list[str]:
    """Return the differing keys without those that `follow`, unless each load occurs equally often on both sides."""
    loads = {
        side: Counter(tuple(run.header.get(key) for key in LOAD) for run in of_side) for side, of_side in runs.items()
    }
    if loads[BASE] == loads[NEW]:
        return []
    first = runs[BASE][0]
    differing: dict[tuple[str, str], list[str]] = {}
    for key in LOAD:
        other = next((run for run in _all(runs) if run.header.get(key) != first.header.get(key)), None)
        if key not in follow and other is not None:
            differing.setdefault(_between(first, other), []).append(key)
    return [
        f"{' and '.join(f'the {LOAD[key]}' for key in keys)} {'differ' if len(keys) > 1 else 'differs'} between"
        f" {between[0]} ({', '.join(keys)}): expected the same in all runs, or each equally often in base and in"
        f" new{between[1]}"
        for between, keys in differing.items()
    ]


def _between(first: Run, other: Run) -> tuple[str, str]:
    """Return the places of two runs, and the keys in which their scenarios differ, "" if unknown."""
    one, another = (run.recorded.scenario for run in (first, other))
    keys = _keys_of_load(one, another) if one and another else []
    because = f"; the scenarios differ in {', '.join(keys)}" if keys else ""
    return f"{first.name} and {other.name}", because


def _warnings(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    warnings = []
    if any(run.figures.embedded for run in _all(runs)):
        warnings.append("the embedded server shares the machine with the generator: this compares no mail servers")
    for run in _all(runs):
        verdict = run.verdict
        if verdict.validity == "degraded":  # the defects of an invalid run forbid the comparison
            warnings.append(f"{run.entry.path}: degraded: {'; '.join(verdict.defects)}")
        warnings += missed_warning(run.entry.path, verdict)
    if any(run.header.get("start_state_digest") is None for run in _all(runs)):
        warnings.append("not all runs say in which state the mailboxes were at their start (initialise: never)")
    should_agree: dict[str, Callable[[Run], Any]] = {
        "software": _header("software"),
        "engines": lambda run: run.figures.engines,
        "client machines": lambda run: run.figures.clients,
    }
    for what, of in should_agree.items():
        if len(found := {str(of(run)) for run in _all(runs)}) > 1:
            warnings.append(f"{what}: not the same in all runs: {', '.join(sorted(found))}")
    warnings += unequal_machines({side: [run.figures for run in of_side] for side, of_side in runs.items()})
    began = {side: [run.entry.began or "" for run in of_side] for side, of_side in runs.items()}
    if all(_all(began)) and min(map(len, began.values())) > 1:
        (first, earlier), (second, later) = sorted(began.items(), key=lambda one: min(one[1]))
        if max(earlier) < min(later):
            warnings.append(
                f"all runs of {first} were made before all of {second}: what changed on the machines in between looks"
                " like a difference of the servers; take turns where you can"
            )
    return warnings


def missed_warning(path: str, verdict: Verdict) -> list[str]:
    """Return the warning of a run that misses criteria, if it does; `path` is that of its entry."""
    missed = (*verdict.missed, *verdict.missed_runs)
    return [f"{path}: criteria missed: {'; '.join(missed)}"] if missed else []


# --- figures ----------------------------------------------------------------------------------------------------


def _of_each(tasks: Tasks, key: str) -> dict[str, list[dict[str, float]]]:
    return {
        side: [{name: getattr(task.service, key) for name, task in of_run.items() if task.hits} for of_run in of_side]
        for side, of_side in tasks.items()
    }


def _samples(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[Sample]:
    """Return a sample of each figure that all runs have, in the order of the first run."""
    return [
        Sample(name, [of_run[name] for of_run in found[BASE]], [of_run[name] for of_run in found[NEW]])
        for name in found[BASE][0]
        if all(name in of_run for of_run in _all(found))
    ]


def _failure_rates(tasks: Tasks) -> dict[str, FailureRates]:
    """Return the failure rates of every task of any run, by name."""

    def counts(name: str, side: str) -> list[Counts]:
        found = [of_run[name] for of_run in tasks[side] if name in of_run]
        return [Counts(task.planned, task.planned - task.hits) for task in found]

    names = sorted({name for of_run in _all(tasks) for name in of_run})
    return {name: FailureRates(counts(name, BASE), counts(name, NEW)) for name in names}


def _failed_more(score: str, tasks: Tasks, rates: Mapping[str, FailureRates], looks: int) -> tuple[Side | None, bool]:
    """Return the side with more failures of a scored task, and True if that is significant."""
    module = score.removesuffix(SCORE)
    scored = {name for of_run in _all(tasks) for name, task in of_run.items() if task.weight}
    of_score = (one for name, one in rates.items() if name in scored and name.startswith(module))
    return together(of_score, looks)


def _failure_rate_warning(name: str, one: FailureRates) -> str:
    return f"{name}: not answered were {one.base_share * 100:.3g} % in base, {one.new_share * 100:.3g} % in new"


def _compared(found: Difference, more_failures: Side | None) -> ComparedFigure:
    won = (found.change, more_failures) in (("faster", NEW), ("slower", BASE))
    return ComparedFigure(found, found.difference_ms, None if won else found.change, more_failures)


def _one_look(figures: ComparisonFigures) -> list[str]:
    """Warn of the false differences that a look after each run finds, if one look found a difference."""
    runs = min(len(figures.base), len(figures.new), MOST_LOOKED_AT)
    found = figures.decision in ("passed", "failed") or any(one.change for one in (*figures.tasks, *figures.scores))
    if figures.looks > 1 or runs <= FIRST_LOOK or not found:
        return []
    return [
        f"p, intervals and decision hold for one look: with one after each run from {FIRST_LOOK} to {runs}, until"
        f" something is shown, a figure of equal servers differs in {100 * false_claims(runs):.0f} % of comparisons,"
        f" not {100 * ALPHA:.0f} %; see --looks"
    ]


def _decision(
    sample: Sample, max_regression: float, looks: int, more_failures: Side | None, significant: bool
) -> tuple[Decision, int | None]:
    """Decide by the interval. New runs with more failures do not pass, and fail if these are significant.

    Times of base without its slow, failed tasks do not prove that new is slower: then new has not failed yet.
    """
    (difference,) = compare([sample], looks)
    decision = decide(difference, max_regression)
    if more_failures == NEW and decision != "failed":
        return "failed" if significant else "undecided", None
    if more_failures == BASE and decision == "failed":
        return "undecided", None
    if decision != "undecided":
        return decision, None
    return decision, repeats_needed(sample, max_regression, max(looks, LOOKS_WITH_REPEATS))


def _together(decisions: Iterable[Decision]) -> Decision | None:
    """Return the decision on several drivers: failed if one has, passed if all have."""
    worst_first: tuple[Decision, ...] = ("failed", "undecided", "passed")
    found = set(decisions)
    return next((decision for decision in worst_first if decision in found), None)


def _most(repeats: Iterable[int | None]) -> int | None:
    """Return the largest number; None, if present, is larger than any."""
    found = list(repeats)
    return None if None in found else max(one for one in found if one is not None)
