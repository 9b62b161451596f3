"""The report on a suite: its cells with their scores over the repeats, its comparisons, its runs, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadsim.analysis.compared_run import read_run
from loadsim.analysis.suite import ComparedCells, SuiteFigures
from loadsim.report.campaign_runs import Place, runs_blocks
from loadsim.report.capacity_curves import in_ms
from loadsim.report.compare_report import task_blocks
from loadsim.report.compare_words import limit_text, other_warnings, verdict_line
from loadsim.report.differences import Facts, differing, differing_table, facts_of, same_table
from loadsim.report.digits import count
from loadsim.report.document import (
    Axis,
    Block,
    Chart,
    Column,
    Document,
    Line,
    Listing,
    Panel,
    Section,
    drawable,
)
from loadsim.report.first_screen import EMBEDDED, YOUR_OWN
from loadsim.report.glossary import SCORE_IS, WORDS_OF_CELLS, glossary
from loadsim.report.many_runs import SAME
from loadsim.report.suite_text import (
    INTERVALS,
    STAND_ALONE,
    cells_table,
    comparison_text,
    headline,
    notes_of,
    tone,
    under_unequal_conditions,
    worse_without_limit,
)


def describe_suite(figures: SuiteFigures, place: Place = str) -> Document:
    """Return the report on a suite. Raises `ConfigError` for a run whose logs cannot be read any more."""
    runs = {run.run: read_run(figures.directory / run.run).recorded for run in figures.runs if run.measured}
    facts = facts_of(list(runs.values()), {}) if runs else {}
    cells = [run.cell for run in figures.runs if run.measured]
    verdict = headline(figures)
    return Document(
        title=f"Suite {figures.name}: {count(len(figures.cells), 'cell')}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs.values() if run.figures.server})),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(figures),
        sections=(
            Section("Summary", tuple(_summary(figures))),
            *(_comparison(one) for one in figures.comparisons or ()),
            Section("Runs", tuple(_runs(figures, place))),
            Section("What differs between the cells", tuple(_differences(facts, cells))),
            *([Section("Disclosure", (same_table(facts),))] if facts else []),
            glossary(bool(runs) and all(run.figures.stress for run in runs.values()), WORDS_OF_CELLS),
        ),
    )


def _summary(figures: SuiteFigures) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    terms = figures.terms
    order = "each repeat in a random order of its own" if terms.order == "random" else "every second repeat in reverse"
    seed = f" (seed {terms.seed})" if terms.order == "random" else ""
    drift = "" if figures.late else ": slow changes of the machine favour no cell"
    yield (
        f"{count(len(figures.cells), 'cell')} with {count(terms.repeats, 'repeat')} each, {order}{seed}{drift}. The"
        f" score is {SCORE_IS}."
    )
    if figures.terms.embedded:
        yield EMBEDDED
    if figures.ended_why:
        yield f"The suite ended early: {figures.ended_why}."
    yield cells_table(figures.cells)
    yield INTERVALS
    if notes := notes_of(figures):
        yield Listing("What limits these figures", tuple(notes))
    if figures.comparisons:
        yield Listing("Comparisons", tuple(map(comparison_text, figures.comparisons)))
        if len(figures.comparisons) > 1:
            yield STAND_ALONE
    yield f"What to do next: {_next(figures)}"


def _comparison(one: ComparedCells) -> Section:
    """Return the tasks of a comparison."""
    title = f"{one.new} against {one.base}"
    if one.comparison is None:
        return Section(title, (f"Not compared: {one.refused}.",))
    figures = one.comparison.figures
    words = verdict_line(figures)
    blocks: list[Block] = [f"{words[:1].upper()}{words[1:]}."]
    if figures.max_regression is not None:
        blocks.append(
            f"At most {figures.max_regression * 100:g} % more time is allowed. The result: {limit_text(figures)}."
        )
    if warnings := tuple(other_warnings(one.comparison)):
        blocks.append(Listing("Warnings", warnings))
    return Section(title, (*blocks, *task_blocks(figures)))


def _runs(figures: SuiteFigures, place: Place) -> Iterable[Block]:
    if chart := _scores(figures):
        yield chart
    yield from runs_blocks("The runs, in their order", figures.runs, place)


MOST_LINES = 8
"""The chart of the runs is left out for more cells: their lines could not be told apart."""


def _scores(figures: SuiteFigures) -> Chart | None:
    """Return the score of each measured run in the order of making, with a line for each cell: drift shows there."""
    made = {at: run for at, run in enumerate(figures.runs, 1) if run.measured}
    runs = list(made.values())
    if len(runs) < 2 or len(figures.cells) > MOST_LINES:
        return None
    numbers = tuple(run.number for run in runs)
    lines = tuple(
        Line(cell.name, tuple(in_ms(run.score_ms) if run.cell == cell.name else None for run in runs))
        for cell in figures.cells
    )
    axis = Axis("order of making, with retries", "order", tuple(map(float, made)), Column("Run", 0), numbers)
    return drawable(Chart("Score of each run, in their order", axis, (Panel("Score", "ms", lines, "log"),)))


def _differences(facts: Facts, cells: Sequence[str]) -> Iterable[Block]:
    """Yield what differs between runs, which have the names of their cells."""
    if different := differing(facts):
        table = differing_table(different, cells)
        yield replace(table, columns=(*table.columns[:2], Column("Cells")))
    else:
        yield SAME


def _next(figures: SuiteFigures) -> str:
    """Return the advice on the worst that there is to say about the suite."""
    cells, outcomes = figures.cells, figures.outcomes
    undecided = [
        one.comparison.figures for one in figures.comparisons or () if one.comparison and one.outcome == "undecided"
    ]
    fewer_answers = any(score.answered_less for one in undecided for score in one.scores)
    advice = (
        (not figures.complete, "mend what the last reasons name, and give the same command again: it resumes."),
        (any(cell.answered < cell.planned for cell in cells), "read the reasons; larger retries repeat these runs."),
        (any(cell.overloaded for cell in cells), "read the reasons of the overloaded runs, and take fewer users."),
        (
            any(run.validity is None or run.failed_after for run in figures.runs),
            "look at the runs that failed at first: what made them fail may have changed others.",
        ),
        (figures.terms.embedded, YOUR_OWN),
        (
            any(cell.verdict == "missed" for cell in cells),
            "read in the reports on single runs which criteria they missed.",
        ),
        (outcomes["failed"], "look for the slowest tasks in the sections on the failed comparisons."),
        (outcomes["refused"], "read why cells were not compared, and run the suite without these reasons."),
        (fewer_answers, "find out in the reports on single runs why tasks failed: their times cannot be compared."),
        (outcomes["undecided"], "run the suite with more repeats, in a new directory: these are too few to decide."),
        (under_unequal_conditions(figures), "read the warnings of the comparisons under unequal conditions."),
        (worse_without_limit(figures), "read the comparisons that are worse: without a max_regression, none can fail."),
        (any(cell.degraded for cell in cells), "read the reasons of the degraded runs before you quote their scores."),
    )
    kept = "keep the directory: its runs are the base of later comparisons (loadsim compare)."
    return next((words for holds, words in advice if holds), kept)
