"""The report on a comparison, and its text: the verdict in a sentence, what differs, and each task and run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadsim.analysis.compare import level
from loadsim.analysis.compare_runs import ComparedFigure, Comparison, ComparisonFigures
from loadsim.analysis.compared_run import BASE, NEW
from loadsim.analysis.recorded_run import RecordedRun, names_of
from loadsim.report.answer import EMBEDDED
from loadsim.report.compare_words import (
    FORCED,
    decisions_table,
    delivery_words,
    has_infinite,
    interval_words,
    is_embedded,
    next_step,
    p_words,
    ratio_words,
    tone,
    verdict_line,
)
from loadsim.report.criteria import NOT_SHOWN
from loadsim.report.differences import facts_of, same_table, what_differs
from loadsim.report.digits import count
from loadsim.report.document import Block, Cell, Document, Listing, Section, table_of
from loadsim.report.glossary import GLOSSARY
from loadsim.report.many_runs import runs_table
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
    side = dict(zip(names := names_of(runs), _sides(comparison), strict=True))
    verdict = verdict_line(figures)
    return Document(
        title=f"{figures.name or 'Runs'}, {count(figures.users, 'user')}: new against base",
        subtitle="; ".join(
            f"{which}: {count(len(of_side), 'run')} on {_servers(of_side)}"
            for which, of_side in (("Base", comparison.runs[BASE]), ("New", comparison.runs[NEW]))
        ),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(comparison),
        sections=(
            Section("Summary", tuple(_summary(comparison))),
            Section("Tasks", tuple(task_blocks(figures))),
            Section("Runs", (runs_table(runs, names, ("Set", None, lambda one: side[one[1]])),)),
            Section("Disclosure", (same_table(facts_of(runs, {})),)),
            GLOSSARY,
        ),
    )


def _sides(comparison: Comparison) -> list[str]:
    return ["Base"] * len(comparison.runs[BASE]) + ["New"] * len(comparison.runs[NEW])


def _servers(runs: Sequence[RecordedRun]) -> str:
    return ", ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})) or "an unknown server"


def _summary(comparison: Comparison) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    figures = comparison.figures
    base, new = comparison.runs[BASE], comparison.runs[NEW]
    load = f"{figures.name or 'unnamed'}, {count(figures.users, 'user')}, window of {figures.window_s.length_s:g} s"
    yield f"{count(len(base), 'run')} of the base and {len(new)} of the new: {load}."
    if is_embedded(comparison):
        yield EMBEDDED
    for caption, items in ((FORCED, figures.ignored), ("Warnings", figures.warnings)):
        if items:
            yield Listing(caption, tuple(items))
    if step := next_step(comparison):
        yield f"What to do next: {step}"
    yield what_differs(facts_of([*base, *new], {}), _sides(comparison), "Set")


def task_blocks(figures: ComparisonFigures) -> Iterable[Block]:
    """Yield the table of the tasks, and the decisions if a regression is limited."""
    base_invalid, new_invalid = (
        any(run.validity == "invalid" for run in of_side) for of_side in (figures.base, figures.new)
    )
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
    if figures.max_regression is not None:
        yield decisions_table(figures, figures.max_regression)
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
