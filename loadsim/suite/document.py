"""The report on a suite: its cells with their scores, its comparisons, its runs, and what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.summary import Tone
from loadsim.campaign.tables import Place, results_of, runs_table
from loadsim.comparison import document as compare_report
from loadsim.comparison.compared_run import read_run
from loadsim.comparison.differences import Facts, facts_of, same_table, what_differs
from loadsim.comparison.document import findings_of, task_blocks, verdict_line
from loadsim.findings.formats import count
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.answer_tables import interval_words
from loadsim.report.document import Block, Document, Listing, Section, Table, table_of
from loadsim.report.glossary import GLOSSARY
from loadsim.suite.suite import CellFigures, ComparedCells, Outcome, SuiteFigures

CELL_VERDICTS = {"met": "criteria met", "missed": "criteria missed", "incomplete": "incomplete"}

DOUBTFUL: tuple[Outcome, ...] = ("failed", "undecided", "refused")
"""The outcomes of comparisons that the headline counts: with any of them, the exit status is not 0."""


def measured_runs(figures: SuiteFigures) -> list[RecordedRun]:
    """Return the measured runs. Raises `ConfigError` for one whose logs cannot be read any more."""
    return [read_run(figures.directory / run.run).recorded for run in figures.runs if run.measured]


def describe_suite(figures: SuiteFigures, runs: Sequence[RecordedRun], place: Place = str) -> Document:
    """Return the report on a suite; `runs` are all measured ones, or none."""
    cells = [run.cell for run in figures.runs if run.measured]
    facts = facts_of(runs, {}) if runs else {}
    return Document(
        title=f"Suite {figures.name}: {count(len(figures.cells), 'cell')}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=headline(figures),
        tone=tone(figures),
        sections=(
            Section("Summary", tuple(_summary(figures)), brief=True),
            *(_comparison(one) for one in figures.comparisons or ()),
            Section("Runs", (runs_table("The runs, in their order", figures.runs, place),)),
            *results_of(figures.runs),
            *_differences(facts, cells),
            GLOSSARY,
        ),
        label=f"Suite {figures.name}",
    )


def _differences(facts: Facts, cells: Sequence[str]) -> Iterator[Section]:
    if facts:
        yield Section("What differs between the cells", (what_differs(facts, cells, "Cell"),))
        yield Section("Disclosure", (same_table(facts),))


def _summary(figures: SuiteFigures) -> Iterable[Block]:
    """Yield what a reader needs who reads nothing else."""
    terms = figures.terms
    seed = f" (seed {terms.seed})" if terms.order == "random" else ""
    cells, repeats = count(len(figures.cells), "cell"), count(terms.repeats, "repeat")
    yield f"{cells} with {repeats} each, in {terms.order} order{seed}."
    yield cells_table(figures.cells)
    if figures.findings:
        yield Listing("What limits these figures", tuple(one.text for one in figures.findings))
    if figures.comparisons:
        yield Listing("Comparisons", tuple(map(comparison_text, figures.comparisons)))
    for one in figures.comparisons or ():
        for block in findings_of(one.comparison) if one.comparison else ():
            if isinstance(block, Listing):
                yield replace(block, caption=f"{one.new} against {one.base}: {block.caption.lower()}")
    if figures.next_step:
        yield f"Next: {figures.next_step}."


def _comparison(one: ComparedCells) -> Section:
    """Return the tasks of a comparison."""
    title = f"{one.new} against {one.base}"
    if one.comparison is None:
        return Section(title, (f"Not compared: {'; '.join(each.text for each in one.refused)}.",))
    figures = one.comparison.figures
    words = verdict_line(figures)
    return Section(title, (f"{words[:1].upper()}{words[1:]}.", *task_blocks(figures)))


# --- words and tables -------------------------------------------------------------------------------------------------


def headline(figures: SuiteFigures) -> str:
    """Return the state of a suite in a sentence."""
    planned = sum(cell.planned for cell in figures.cells)
    measured = sum(cell.measured for cell in figures.cells)
    answered = sum(cell.answered for cell in figures.cells)
    nothing = NO_MEASUREMENT if figures.terms.embedded else ""
    of_cells = f"{measured} of {count(planned, 'run')} measured, in {count(len(figures.cells), 'cell')}"
    missed = sum(cell.verdict == "missed" for cell in figures.cells)
    degraded = sum(cell.degraded for cell in figures.cells)
    if figures.ended:
        return f"ended early: {figures.ended.words}; {of_cells}{nothing}"
    if not figures.complete:
        return f"not complete, {count(figures.left, 'run')} left; {of_cells}{nothing}"
    if answered < planned:
        return f"complete with gaps; {of_cells}{_doubtful(figures)}{nothing}"
    criteria = f"criteria missed in {missed} of them" if missed else "criteria met in all"
    of_runs = f"; {degraded} of the runs degraded" if degraded else ""
    return f"complete; {of_cells}; {criteria}{_doubtful(figures)}{of_runs}{nothing}"


def _doubtful(figures: SuiteFigures) -> str:
    """Return the number of comparisons that failed, are undecided, were refused, or are worse; "" if none is."""
    found = [f"{number} {outcome}" for outcome in DOUBTFUL if (number := figures.outcomes[outcome])]
    found += [f"{worse} worse (without a limit)"] if (worse := worse_without_limit(figures)) else []
    found += [f"{number} under unequal conditions"] if (number := under_unequal_conditions(figures)) else []
    return f"; comparisons: {', '.join(found)}" if found else ""


def worse_without_limit(figures: SuiteFigures) -> int:
    """Return the number of comparisons that found the new cell worse, and that no `max_regression` decides."""
    compared = (one.comparison for one in figures.comparisons or () if one.comparison)
    return sum(one.figures.decision is None and compare_report.tone(one) == "bad" for one in compared)


def under_unequal_conditions(figures: SuiteFigures) -> int:
    """Return the number of comparisons in which more than the server may differ, as a warning says."""
    return sum(bool(one.comparison.figures.unequal_conditions) for one in figures.comparisons or () if one.comparison)


def tone(figures: SuiteFigures) -> Tone:
    """Return the rating of a suite. What is no measurement, in doubt, or became worse, is never good."""
    if figures.exit_status in (1, 3):
        return "bad"
    degraded = any(cell.degraded for cell in figures.cells)
    doubtful = figures.terms.embedded or degraded or worse_without_limit(figures) or under_unequal_conditions(figures)
    return "good" if figures.exit_status == 0 and not doubtful else "doubtful"


def cells_table(cells: Sequence[CellFigures]) -> Table:
    return table_of(
        "The cells; score: geometric mean of the measured runs",
        cells,
        ("Cell", None, lambda one: one.name),
        ("Runs", None, lambda one: f"{one.measured}/{one.planned}"),
        ("Score", "time", lambda one: None if one.score is None else one.score.mean),
        ("95 % interval", None, _interval),
        ("Verdict", None, cell_verdict),
        ("Tasks/s", 1, lambda one: one.tasks_per_s),
    )


def _interval(cell: CellFigures) -> str | None:
    score = cell.score
    return None if score is None or score.low is None or score.high is None else interval_words((score.low, score.high))


def cell_verdict(cell: CellFigures) -> str:
    """Return the verdict of a cell in words; its validity precedes if runs are degraded."""
    words = CELL_VERDICTS[cell.verdict]
    return f"{words}, degraded" if cell.degraded else words


def comparison_text(one: ComparedCells) -> str:
    """Return a comparison in a sentence."""
    names = f"{one.new} against {one.base}"
    if one.comparison is None:
        return f"{names}: not compared: {'; '.join(each.text for each in one.refused)}"
    return f"{names}: {verdict_line(one.comparison.figures)}"
