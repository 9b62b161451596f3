"""The report on several runs: their table, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import isfinite

from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.comparison.differences import facts_of, same_table, what_differs
from loadsim.findings.finding import Finding, shared
from loadsim.findings.next_step import next_step
from loadsim.findings.verdict import server_failed
from loadsim.model.figures import DriverFigures
from loadsim.report.answer import NO_MEASUREMENT, verdict_words
from loadsim.report.document import Block, Cell, ColumnOf, Document, Item, Listing, Section, Table, table_of


def describe_runs(runs: Sequence[RecordedRun]) -> Document:
    """Return the report, with the runs ordered by number of users."""
    runs = sorted(runs, key=lambda run: (run.figures.users, run.figures.run or "", run.place))
    names = names_of(runs)
    tones = [run.summary.tone for run in runs]
    bad = tones.count("bad")
    facts = facts_of(runs)
    scenarios = ", ".join(sorted({str(run.figures.name or "unnamed") for run in runs}))
    return Document(
        title=f"{len(runs)} runs: {scenarios}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=_verdict(runs, len(runs) - bad),
        tone="bad" if bad == len(runs) else "good" if set(tones) == {"good"} else "doubtful",
        sections=(
            Section(
                "Runs",
                (runs_table(runs, names, ("Users", 0, lambda one: one[0].figures.users)), *_reasons(runs, names)),
            ),
            Section("What differs between the runs", (what_differs(facts, names),)),
            Section("Disclosure", (same_table(facts),)),
        ),
    )


def runs_table(runs: Sequence[RecordedRun], names: Sequence[str], second: ColumnOf[tuple[RecordedRun, str]]) -> Table:
    return table_of(
        "The runs",
        list(zip(runs, names, strict=True)),
        ("Run", None, lambda one: one[1]),
        second,
        ("Score (ms)", 1, lambda one: _of_drivers(one[0], lambda driver: driver.score_ms)),
        ("Failed (%)", 2, lambda one: _percent(one[0].figures.totals.failed_share)),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Response score (ms)", 1, lambda one: _of_drivers(one[0], lambda driver: driver.response_score_ms)),
        ("Delivery, 95th (ms)", 1, lambda one: _time(one[0], one[0].figures.delivery.took.p95_ms)),
        ("Load made (%)", 1, lambda one: _percent(load.share) if (load := one[0].figures.load) else None),
        ("Achieved (tasks/s)", 1, lambda one: one[0].figures.tasks_per_s),
        ("Begun", None, lambda one: one[0].begun),
    )


def _verdict(runs: Sequence[RecordedRun], met: int) -> str:
    verdicts = [run.summary.verdict for run in runs]
    refused = sum(server_failed(verdict.causes) for verdict in verdicts)
    invalid = sum(verdict.validity == "invalid" for verdict in verdicts) - refused
    degraded = sum(verdict.validity == "degraded" for verdict in verdicts)
    embedded = sum(run.figures.embedded for run in runs)
    judged = len(runs) - invalid
    words = [
        f"{met} of {judged} runs met their criteria" if judged else f"no run can be judged: all {invalid} are invalid"
    ]
    words += [f"in {refused} of them, the server did not take the load"] if refused else []
    words += [f"{degraded} of them degraded"] if degraded else []
    words += [f"{invalid} more invalid and not counted"] if invalid and judged else []
    words += [f"{embedded} {NO_MEASUREMENT.removeprefix('; ')}"] if embedded else []
    return "; ".join(words)


def _of_drivers(run: RecordedRun, time_ms: Callable[[DriverFigures], float | None]) -> Cell:
    """Return the only driver's time; times of several drivers are listed, as they must not be mixed."""
    times = [*map(time_ms, run.figures.by_protocol.values())]
    listed = ", ".join("-" if time is None else f"{time:.1f}" for time in times) or None
    return _time(run, times[0] if len(times) == 1 else listed)


def _time(run: RecordedRun, time: Cell) -> Cell:
    """Return a time, unless the run is invalid: its times are not shown."""
    return "not shown" if run.summary.verdict.validity == "invalid" else time


def _percent(share: float | None) -> float | None:
    return None if share is None or not isfinite(share) else 100 * share


def _reasons(runs: Sequence[RecordedRun], names: Sequence[str]) -> Iterator[Block]:
    verdicts = [run.summary.verdict for run in runs]
    invalid = any(verdict.validity == "invalid" for verdict in verdicts)
    defects = [verdict.defects for verdict in verdicts]
    yield from _listing(f"Why runs are {'not valid' if invalid else 'degraded'}", defects, names)
    yield from _listing("Warnings", [verdict.warnings for verdict in verdicts], names)
    if step := next_step(chain.from_iterable((*one.defects, *one.missed, *one.warnings) for one in verdicts)):
        yield f"Next: {step}."


def _listing(caption: str, of_runs: Sequence[Sequence[Finding]], names: Sequence[str]) -> Iterator[Listing]:
    """Yield the findings of all runs: each kind once, with its run or the number of its runs."""
    items = []
    for one in shared(of_runs):
        which = names[one.runs[0]] if len(one.runs) == 1 else f"{len(one.runs)} of {len(names)} runs"
        items.append(Item(f"{which}: {one.words}", one.code))
    if items:
        yield Listing(caption, tuple(items))
