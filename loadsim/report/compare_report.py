"""The report on a comparison, and its text: the verdict in a sentence, what differs, and each task and run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from loadsim.analysis.compare import level
from loadsim.analysis.compare_runs import ComparedFigure, Comparison, ComparisonFigures
from loadsim.analysis.compared_run import BASE, NEW
from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.report.answer import EMBEDDED, verdict_words
from loadsim.report.compare_words import (
    FORCED,
    criteria_missed,
    delivery_words,
    has_infinite,
    interval_words,
    is_embedded,
    limit_text,
    name_words,
    next_step,
    other_warnings,
    p_words,
    ratio_words,
    tone,
    users_words,
    verdict_line,
    window_words,
)
from loadsim.report.criterion_words import NOT_SHOWN
from loadsim.report.differences import OF_LISTS, between, facts_of, same_table
from loadsim.report.digits import count
from loadsim.report.document import Block, Cell, Column, Document, Listing, Section, Table, table_of
from loadsim.report.glossary import GLOSSARY
from loadsim.report.interval_chart import interval_chart
from loadsim.report.text import to_text


def compare_text(comparison: Comparison, width: int | None = None, colours: bool = False) -> str:
    """Return the text that `loadsim compare` prints; see `to_text`. Times are in milliseconds."""
    summary, tasks, runs, *_ = describe_comparison(comparison).sections
    blocks = (*summary.blocks, *tasks.blocks, *runs.blocks)
    return to_text(f"Verdict: {verdict_line(comparison.figures)}", tone(comparison), blocks, width, colours)


def describe_comparison(comparison: Comparison) -> Document:
    """Return the report on a comparison."""
    figures = comparison.figures
    runs = [*comparison.runs[BASE], *comparison.runs[NEW]]
    sides = ["Base"] * len(comparison.runs[BASE]) + ["New"] * len(comparison.runs[NEW])
    names = names_of(runs)
    verdict = verdict_line(figures)
    return Document(
        title=f"{name_words(comparison) or 'Runs'}, {users_words(comparison)}: new against base",
        subtitle="; ".join(
            f"{side}: {count(len(of_side), 'run')} on {_servers(of_side)}"
            for side, of_side in (("Base", comparison.runs[BASE]), ("New", comparison.runs[NEW]))
        ),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(comparison),
        sections=(
            Section("Summary", tuple(_summary(comparison))),
            Section("Tasks", tuple(task_blocks(figures))),
            Section("Runs", (_runs(runs, names, sides),)),
            Section("Disclosure", (same_table(facts_of(runs, {})),)),
            GLOSSARY,
        ),
    )


def _servers(runs: Sequence[RecordedRun]) -> str:
    return ", ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})) or "an unknown server"


def _summary(comparison: Comparison) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    figures = comparison.figures
    base, new = comparison.runs[BASE], comparison.runs[NEW]
    yield f"{count(len(base), 'run')} of the base and {len(new)} of the new: {_load(comparison)}."
    if is_embedded(comparison):
        yield EMBEDDED
    if figures.max_regression is not None:
        yield f"At most {figures.max_regression * 100:g} % more time is allowed. The result: {limit_text(figures)}."
    for caption, items in (
        (FORCED, figures.ignored),
        ("Criteria missed", criteria_missed(comparison)),
        ("Warnings", other_warnings(comparison)),
    ):
        if items:
            yield Listing(caption, tuple(items))
    if step := next_step(comparison):
        yield f"What to do next: {step}"
    yield from _what_differs(base, new)


def _load(comparison: Comparison) -> str:
    return f"{name_words(comparison) or 'unnamed'}, {users_words(comparison)}, {window_words(comparison)}"


def _what_differs(base: Sequence[RecordedRun], new: Sequence[RecordedRun]) -> Iterable[Block]:
    rows = between(facts_of([*base, *new], {}), len(base))
    if not rows:
        yield (
            "Base and new have the same server, settings, machines and versions, as far as loadsim knows. It does not"
            " see what was changed within the server, or which other programs ran."
        )
        return
    columns = (Column("Fact"), Column("Base"), Column("New"))
    yield Table(f"What differs between base and new, as far as loadsim knows{OF_LISTS}", columns, tuple(rows))


def task_blocks(figures: ComparisonFigures) -> Iterable[Block]:
    """Yield the chart of the ratios, and the table of the tasks."""
    base_invalid, new_invalid = (
        any(run.validity == "invalid" for run in of_side) for of_side in (figures.base, figures.new)
    )
    if figures.tasks:
        yield interval_chart(figures)
    yield table_of(
        "95th percentiles of the tasks, and the scores: geometric means of the runs",
        figures.all_figures,
        ("Task", None, lambda one: one.difference.name),
        ("Base", "time", lambda one: NOT_SHOWN if base_invalid else one.difference.base_ms),
        ("New", "time", lambda one: NOT_SHOWN if new_invalid else one.difference.new_ms),
        ("New / Base", 3, lambda one: None if has_infinite(one) else one.difference.ratio),
        (f"{level(figures.looks) * 100:.4g} % CI", 3, _interval),
        ("p", 4, lambda one: None if one.difference.p is None else p_words(one.difference.p)),
        ("Result", None, _result),
        ("Detectable", 3, _detectable),
        ("Failure rate, base (%)", 2, lambda one: _rate(one, BASE)),
        ("Failure rate, new (%)", 2, lambda one: _rate(one, NEW)),
        ("Medians, new / base", 3, lambda one: one.p50_ratio),
    )
    if figures.not_compared:
        yield f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}."
    yield from delivery_words(figures)
    if figures.looks > 1:
        yield f"p and intervals are corrected for {figures.looks} looks at growing sets (Bonferroni)."


def _interval(one: ComparedFigure) -> Cell:
    return None if one.difference.low is None else interval_words(one)


def _result(one: ComparedFigure) -> Cell:
    if one.answered_less:
        return f"higher failure rate in {one.answered_less}"
    if one.difference.p is None:
        return "infinite in some runs" if has_infinite(one) else "inconclusive"
    return one.change or ("by itself" if one.by_itself else "none shown")


def _rate(one: ComparedFigure, side: str) -> Cell:
    return None if one.unanswered is None else 100 * one.unanswered[side]


def _detectable(one: ComparedFigure) -> Cell:
    return None if one.difference.low is None else ratio_words(one.difference.detectable)


def _runs(runs: Sequence[RecordedRun], names: Sequence[str], sides: Sequence[str]) -> Table:
    return table_of(
        "The runs, in the order in which they were given",
        list(zip(runs, names, sides, strict=True)),
        ("Run", None, lambda one: one[1]),
        ("Set", None, lambda one: one[2]),
        ("Score (ms)", 1, lambda one: _scores(one[0], "score_ms")),
        ("Failed (%)", 2, lambda one: _hundredfold(one[0].figures.failed_share)),
        ("Verdict", None, lambda one: verdict_words(one[0].summary)),
        ("Response score (ms)", 1, lambda one: _scores(one[0], "response_score_ms")),
        ("Load made (%)", 1, lambda one: _hundredfold(_load_share(one[0]))),
        ("Tasks/s", 1, lambda one: one[0].figures.achieved_per_s),
        ("Cores busy (%)", None, lambda one: _busy(one[0])),
        ("Begun", None, lambda one: one[0].begun),
    )


def _scores(run: RecordedRun, name: str) -> Cell:
    if run.summary.verdict.validity == "invalid":
        return "not shown"
    found = [getattr(module, name) for module in run.figures.by_protocol.values()]
    return found[0] if len(found) == 1 else ", ".join("-" if one is None else f"{one:.1f}" for one in found) or None


def _busy(run: RecordedRun) -> Cell:
    """Return the busy share of the cores of each machine, by all programs."""
    shares = [machine.cpu_share for machine in run.figures.machines if machine.cpu_share is not None]
    return ", ".join(f"{100 * share:.0f}" for share in shares) or None


def _load_share(run: RecordedRun) -> float | None:
    return None if run.figures.load is None else run.figures.load.share


def _hundredfold(share: float | None) -> float | None:
    return None if share is None or not math.isfinite(share) else 100 * share
