"""The report on a suite: its cells with their scores, its comparisons, its runs, and the differences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.campaign.tables import Place, of_runs, results_of, runs_table
from loadsim.comparison import document as compare_report
from loadsim.comparison.compared_run import read_run
from loadsim.comparison.differences import facts_of, same_table, what_differs
from loadsim.comparison.document import findings_of, task_blocks, verdict_line
from loadsim.findings.formats import count
from loadsim.findings.verdict import Tone
from loadsim.report.answer import NO_MEASUREMENT
from loadsim.report.answer_tables import interval_words
from loadsim.report.document import Block, Document, Listing, Section, Table, item_of, table_of
from loadsim.suite.suite import CellFigures, ComparedCells, SuiteFigures

CELL_VERDICTS = {"met": "criteria met", "missed": "criteria missed", "incomplete": "incomplete"}


def measured_runs(figures: SuiteFigures) -> list[RecordedRun]:
    """Return the measured runs. Raises `ConfigError` if the logs of one can no longer be read."""
    return [read_run(figures.directory / run.run).recorded for run in figures.runs if run.measured]


def describe_suite(figures: SuiteFigures, runs: Sequence[RecordedRun], place: Place = str) -> Document:
    """Return the report on a suite; `runs` are all measured runs, or none."""
    cells = [run.cell for run in figures.runs if run.measured]
    facts = facts_of(runs) if runs else {}
    return Document(
        title=f"Suite {figures.terms.name}: {count(len(figures.cells), 'cell')}",
        subtitle="; ".join(sorted({str(run.figures.server) for run in runs if run.figures.server})),
        verdict=headline(figures),
        tone=tone(figures),
        sections=(
            Section("Summary", tuple(_summary(figures)), brief=True),
            *(_comparison(cells) for cells in figures.comparisons or ()),
            Section("Runs", (runs_table("The runs, in order", figures.runs, place),)),
            *results_of(figures.runs),
            *([Section("What differs between the cells", (what_differs(facts, cells, "Cell"),))] if facts else []),
            *([Section("Disclosure", (same_table(facts),))] if facts else []),
        ),
        label=f"Suite {figures.terms.name}",
    )


def _summary(figures: SuiteFigures) -> Iterable[Block]:
    """Yield the essentials, for readers who read nothing else."""
    terms = figures.terms
    cells, repeats = count(len(figures.cells), "cell"), count(terms.repeats, "repeat")
    yield f"{cells} with {repeats} each, in random order (seed {terms.seed})."
    yield cells_table(figures.cells)
    measured = [run for run in figures.runs if run.measured]
    if limits := (*map(item_of, figures.findings), *of_runs(measured)):
        yield Listing("What limits these figures", limits)
    if figures.comparisons:
        yield Listing("Comparisons", tuple(f"{_names(pair)}: {_outcome(pair)}" for pair in figures.comparisons))
    for pair in figures.comparisons or ():
        for block in findings_of(pair.comparison) if pair.comparison else ():
            if isinstance(block, Listing):
                yield replace(block, caption=f"{_names(pair)}: {block.caption.lower()}")
    if figures.next_step:
        yield f"Next: {figures.next_step}."


def _comparison(pair: ComparedCells) -> Section:
    words = _outcome(pair)
    tasks = task_blocks(pair.comparison.figures) if pair.comparison else ()
    return Section(_names(pair), (f"{words[:1].upper()}{words[1:]}.", *tasks))


def headline(figures: SuiteFigures) -> str:
    planned = sum(cell.planned for cell in figures.cells)
    measured = sum(cell.measured for cell in figures.cells)
    answered = sum(cell.answered for cell in figures.cells)
    doubts = ", ".join(f"{number} {words}" for words, number in _doubts(figures).items())
    compared = f"; comparisons: {doubts}" if doubts else ""
    nothing = NO_MEASUREMENT if figures.terms.embedded else ""
    of_cells = f"{measured} of {count(planned, 'run')} measured, in {count(len(figures.cells), 'cell')}"
    missed = sum(cell.verdict == "missed" for cell in figures.cells)
    degraded = sum(cell.degraded for cell in figures.cells)
    if figures.ended:
        return f"ended early: {figures.ended.words}; {of_cells}{nothing}"
    if not figures.complete:
        return f"not complete, {count(figures.left, 'run')} left; {of_cells}{nothing}"
    if answered < planned:
        return f"complete with gaps; {of_cells}{compared}{nothing}"
    criteria = f"criteria missed in {missed} of them" if missed else "criteria met in all"
    of_runs = f"; {degraded} of the runs degraded" if degraded else ""
    return f"complete; {of_cells}; {criteria}{compared}{of_runs}{nothing}"


def _doubts(figures: SuiteFigures) -> dict[str, int]:
    """Count the comparisons that are not passes, by description."""
    compared = [pair.comparison for pair in figures.comparisons or () if pair.comparison]
    worse = sum(result.figures.decision is None and compare_report.tone(result) == "bad" for result in compared)
    unequal = sum(bool(result.figures.unequal_conditions) for result in compared)
    numbers: dict[str, int] = {outcome: number for outcome, number in figures.outcomes.items() if outcome != "passed"}
    numbers |= {"worse (without a limit)": worse, "under unequal conditions": unequal}
    return {words: number for words, number in numbers.items() if number}


def tone(figures: SuiteFigures) -> Tone:
    """Return the rating of a suite, never good if it measured nothing, is doubtful, or shows a regression."""
    if figures.exit_status in (1, 3):
        return "bad"
    degraded = any(cell.degraded for cell in figures.cells)
    doubtful = figures.terms.embedded or degraded or _doubts(figures)
    return "good" if figures.exit_status == 0 and not doubtful else "doubtful"


def cells_table(cells: Sequence[CellFigures]) -> Table:
    return table_of(
        "The cells; score: geometric mean of the measured runs",
        cells,
        ("Cell", None, lambda cell: cell.name),
        ("Runs", None, lambda cell: f"{cell.measured}/{cell.planned}"),
        ("Score", "time", lambda cell: None if cell.score_ms is None else cell.score_ms.mean),
        ("95 % interval", None, _interval),
        ("Verdict", None, cell_verdict),
        ("Tasks/s", 1, lambda cell: cell.tasks_per_s),
    )


def _interval(cell: CellFigures) -> str | None:
    score = cell.score_ms
    return None if score is None or score.low is None or score.high is None else interval_words((score.low, score.high))


def cell_verdict(cell: CellFigures) -> str:
    """Describe the verdict on a cell; add `degraded` if any runs are."""
    words = CELL_VERDICTS[cell.verdict]
    return f"{words}, degraded" if cell.degraded else words


def _names(pair: ComparedCells) -> str:
    return f"{pair.new} against {pair.base}"


def _outcome(pair: ComparedCells) -> str:
    """Return a comparison's verdict, or the reason why there is none."""
    if pair.comparison is None:
        return f"not compared: {'; '.join(finding.text for finding in pair.refused)}"
    return verdict_line(pair.comparison.figures)
