"""The report on a suite: its cells with their scores over the repeats, its comparisons, its runs, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.compare_runs import ComparedFigure
from loadsim.analysis.compared_run import read_run
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.suite import FAILED, MEASURED, CellFigures, ComparedCells, SuiteFigures, SuiteRun
from loadsim.report.compare_report import task_blocks
from loadsim.report.compare_words import interval_words as ratio_interval_words
from loadsim.report.compare_words import limit_text, other_warnings, ratio_words, verdict_line
from loadsim.report.differences import OF_LISTS, Facts, differing, differing_table, facts_of, same_table
from loadsim.report.digits import count
from loadsim.report.document import (
    MET,
    MISSED,
    Axis,
    Block,
    Cell,
    Chart,
    Column,
    Document,
    Line,
    Listing,
    Panel,
    Section,
    Table,
    drawable,
    table_of,
)
from loadsim.report.first_screen import EMBEDDED, YOUR_OWN
from loadsim.report.glossary import SCORE_IS, WORDS_OF_CELLS, glossary
from loadsim.report.suite_text import (
    INTERVALS,
    STAND_ALONE,
    headline,
    interval_words,
    notes_of,
    result_words,
    time_words,
    tone,
    under_unequal_conditions,
    worse_without_limit,
)

OUTCOMES: Mapping[str, str] = {"met": MET, "missed": MISSED, "incomplete": "incomplete"}
"""The verdicts of cells, with the signs of criteria."""


def describe_suite(figures: SuiteFigures) -> Document:
    """Return the report on a suite. Raises `ConfigError` for a run whose logs cannot be read any more."""
    runs = {run.run: read_run(figures.directory / run.run).recorded for run in figures.runs if run.result == MEASURED}
    facts = _facts(figures, runs)
    verdict = headline(figures)
    return Document(
        title=f"Suite {figures.name}: {count(len(figures.cells), 'cell')}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs.values() if run.figures.server})),
        verdict=f"{verdict[:1].upper()}{verdict[1:]}",
        tone=tone(figures),
        sections=(
            Section("Summary", tuple(_summary(figures))),
            *(_comparison(one) for one in figures.comparisons or ()),
            Section("Runs", tuple(_runs(figures))),
            Section("What differs between the cells", tuple(_differences(figures, facts))),
            *([Section("Disclosure", (same_table(facts),))] if facts else []),
            glossary(bool(runs) and all(run.figures.stress for run in runs.values()), WORDS_OF_CELLS),
        ),
    )


def _summary(figures: SuiteFigures) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    terms = figures.terms
    order = (
        "each repeat in a random order of its own" if terms["order"] == "random" else "every second repeat in reverse"
    )
    seed = f" (seed {terms['seed']})" if terms["order"] == "random" else ""
    drift = "" if figures.late else ": slow changes of the machine favour no cell"
    yield (
        f"{count(len(figures.cells), 'cell')} with {count(terms['repeats'], 'repeat')} each, {order}{seed}{drift}. The"
        f" score is {SCORE_IS}."
    )
    if figures.embedded:
        yield EMBEDDED
    if figures.ended_why:
        yield f"The suite ended early: {figures.ended_why}."
    yield _cells(figures.cells)
    yield INTERVALS
    if notes := notes_of(figures):
        yield Listing("What limits these figures", tuple(notes))
    if figures.comparisons:
        yield _comparisons(figures.comparisons)
        if figures.compared > 1:
            yield STAND_ALONE
    yield f"What to do next: {_next(figures)}"


def _cells(cells: Sequence[CellFigures]) -> Table:
    return table_of(
        "The cells",
        cells,
        ("Cell", None, lambda one: one.name),
        ("Runs measured", None, lambda one: f"{one.measured} of {one.planned}"),
        ("Score", "time", lambda one: None if one.score is None else one.score.mean),
        ("95 % interval", None, interval_words),
        ("Standard deviation", "time", lambda one: None if one.score is None else one.score.stddev),
        ("Tasks/s", 1, lambda one: one.tasks_per_s),
        ("Degraded", 0, lambda one: one.degraded),
        ("Overloaded", 0, lambda one: one.overloaded),
        ("Invalid or failed", 0, lambda one: one.invalid + one.failed),
        ("Criteria", None, lambda one: OUTCOMES[one.verdict]),
    )


def _comparisons(found: Sequence[ComparedCells]) -> Table:
    rows: list[tuple[ComparedCells, ComparedFigure | None]] = [
        (one, score) for one in found for score in (one.comparison.figures.scores if one.comparison else ()) or (None,)
    ]
    return table_of(
        "Comparisons",
        rows,
        ("Comparison", None, lambda row: f"{row[0].new} against {row[0].base}"),
        ("New / Base", None, lambda row: None if row[1] is None else ratio_words(row[1].difference.ratio)),
        ("95 % CI", None, lambda row: _interval(row[1])),
        ("Result", None, lambda row: _result(row[0])),
    )


def _interval(score: ComparedFigure | None) -> Cell:
    return None if score is None or score.difference.low is None else ratio_interval_words(score)


def _result(one: ComparedCells) -> Cell:
    return f"not compared: {one.refused}" if one.comparison is None else verdict_line(one.comparison.figures)


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


def _runs(figures: SuiteFigures) -> Iterable[Block]:
    if chart := _scores(figures):
        yield chart
    yield table_of(
        "The runs, in their order",
        figures.runs,
        ("Run", None, lambda run: run.run.rpartition("/")[2]),
        ("Cell", None, lambda run: run.cell),
        ("Repeat", 0, lambda run: run.repeat),
        ("Begun", None, lambda run: None if run.began is None else run.began[:19].replace("T", " ")),
        ("Took", None, lambda run: None if run.took_s is None else time_words(run.took_s)),
        ("Result", None, result_words),
        ("Tasks/s", 1, lambda run: run.tasks_per_s),
    )
    if reasons := tuple(f"{_place(run)}: {'; '.join(run.reasons)}" for run in figures.runs if run.reasons):
        yield Listing("Reasons", reasons)
    if failures := tuple(f"{_place(run)}: {failure}" for run in figures.runs for failure in run.failed_after):
        yield Listing("Commands that failed after a run", failures)


MOST_LINES = 8
"""The chart of the runs is left out for more cells: their lines could not be told apart."""


def _scores(figures: SuiteFigures) -> Chart | None:
    """Return the score of each measured run in the order of making, with a line for each cell: drift shows there."""
    made = {at: run for at, run in enumerate(figures.runs, 1) if run.result == MEASURED}
    runs = list(made.values())
    if len(runs) < 2 or len(figures.cells) > MOST_LINES:
        return None
    numbers = tuple(run.number for run in runs)
    lines = tuple(
        Line(cell.name, tuple(_time_ms(run) if run.cell == cell.name else None for run in runs))
        for cell in figures.cells
    )
    axis = Axis("order of making, with retries", "order", tuple(map(float, made)), Column("Run", 0), numbers)
    return drawable(Chart("Score of each run, in their order", axis, (Panel("Score", "ms", lines, "log"),)))


def _time_ms(run: SuiteRun) -> float | None:
    return None if run.score_ms is None else float(run.score_ms)


def _place(run: SuiteRun) -> str:
    return run.run.rpartition("/")[2]


def _facts(figures: SuiteFigures, runs: Mapping[str, RecordedRun]) -> Facts:
    """Return the facts of each cell that has runs; different values of its repeats are in one text."""
    named = [(cell, [runs[run] for run in cell.runs]) for cell in figures.cells if cell.runs]
    all_facts = facts_of([run for _, of_cell in named for run in of_cell], {}) if named else {}
    found: dict[str, list[str]] = {}
    for name, values in all_facts.items():
        at = 0
        for _, of_cell in named:
            found.setdefault(name, []).append(" / ".join(dict.fromkeys(values[at : at + len(of_cell)])))
            at += len(of_cell)
    return found


def _differences(figures: SuiteFigures, facts: Facts) -> Iterable[Block]:
    names = [cell.name for cell in figures.cells if cell.runs]
    if len(names) < 2:
        yield "Fewer than two cells have runs."
    elif different := differing(facts):
        table = differing_table(different, names)
        yield replace(
            table, caption=f"Not the same in all cells{OF_LISTS}", columns=(*table.columns[:2], Column("Cells"))
        )
    else:
        yield "The cells have the same server, settings, machines and versions, as far as loadsim knows."


def _next(figures: SuiteFigures) -> str:
    if figures.ended_why or not figures.complete:
        return "mend what the reasons of the last runs name, and give the same command again: it resumes the suite."
    if any(cell.answered < cell.planned for cell in figures.cells):
        return (
            "read the reasons of the runs that are invalid or failed. With a larger number of retries in the file, the"
            " same command repeats them."
        )
    if any(cell.overloaded for cell in figures.cells):
        return "read the reasons of the overloaded runs, and take fewer users: the server did not take this load."
    if any(run.result == FAILED or run.failed_after for run in figures.runs):
        return "look at the runs that failed at first: what made them fail may have changed others."
    if figures.embedded:
        return YOUR_OWN
    if any(cell.verdict == "missed" for cell in figures.cells):
        return (
            "read in the reports on single runs (loadsim report) which criteria they missed. Take fewer users or change"
            " the server, and run the suite in a new directory."
        )
    if figures.outcomes["failed"]:
        return (
            "look for the slowest tasks, and for those that failed, in the sections on the failed comparisons; and for"
            " their commands in the reports on single runs (loadsim report)."
        )
    if figures.outcomes["refused"]:
        return (
            "read why cells were not compared: nothing is known about their difference. Remove the reasons, and run the"
            " suite in a new directory."
        )
    if figures.outcomes["undecided"]:
        return _deciding(figures)
    if under_unequal_conditions(figures):
        return "read the warnings of the comparisons under unequal conditions: more than the server may differ there."
    if worse_without_limit(figures):
        return "read the comparisons that are worse: without a max_regression in the file, none of them can fail."
    if any(cell.degraded for cell in figures.cells):
        return "read the reasons of the degraded runs before you quote their scores."
    return "keep the directory: its runs are the base of later comparisons (loadsim compare)."


def _deciding(figures: SuiteFigures) -> str:
    """Return what may decide the undecided comparisons. More repeats do not, if tasks failed on one side."""
    undecided = [one.comparison.figures for one in figures.comparisons or () if one.comparison]
    scores = [score for one in undecided if one.decision == "undecided" for score in one.scores]
    if any(score.answered_less for score in scores):
        return "find out in the reports on single runs why tasks failed. Times can be compared once as many succeed."
    return "run the suite with more repeats, in a new directory: these are too few to decide."
