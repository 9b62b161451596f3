"""A comparison of two sets of runs as plain text: the verdict with its reasons, the runs, the table and the limit."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.compare import level
from loadsim.analysis.compare_runs import ComparedFigure, Comparison, ComparisonFigures
from loadsim.analysis.compared_run import BASE, NEW, RunFigures
from loadsim.errors import printable
from loadsim.report.answer_tables import fitting, ms
from loadsim.report.banner import verdict_words
from loadsim.report.compare_words import (
    FORCED,
    criteria_missed,
    delivery_words,
    finding,
    has_infinite,
    interval_words,
    invalid_runs,
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
from loadsim.report.digits import count
from loadsim.report.plain_lines import LEAST_WIDTH, coloured, listed, wrapped
from loadsim.report.table import table

INTERVAL, DETECTABLE = "interval", "Detectable"
COLUMNS = ("Category", "Base", "New", "Difference", "Ratio", INTERVAL, "p", DETECTABLE, "50th")

LEAST_NEEDED = (8, 3, 7, 6, 1, 2)
"""The columns that a narrow table lacks, the first ones first: 50th, Difference, Detectable, p, Base, New."""


def compare_text(comparison: Comparison, width: int | None = None, colours: bool = False) -> str:
    """Return the text that `loadsim compare` prints, with a final line break. Times are in milliseconds.

    Lines have at most `width` columns; columns of the table that do not fit are left out. Without it, lines are as long
    as they need to be. `colours`: the verdict is coloured by SGR (ECMA-48).
    """
    figures = comparison.figures
    width = None if width is None else max(width, LEAST_WIDTH)
    first = wrapped([f"Verdict: {verdict_line(figures)}"], width)
    rows = fitting(_table(figures), width, LEAST_NEEDED)
    return "\n".join(
        [
            *([coloured(line, tone(comparison)) for line in first] if colours else first),
            *wrapped([*_reasons(comparison), ""], width),
            *wrapped(
                [_scenario(comparison), *_runs("Base", BASE, comparison), *_runs("New", NEW, comparison), ""], width
            ),
            *rows,
            *wrapped([*_legend(figures, rows[0]), *_notes(comparison)], width),
            "",
        ]
    )


def _reasons(comparison: Comparison) -> list[str]:
    """Return the reasons that were overruled, the limit, what the runs show, and the warnings: each once."""
    figures = comparison.figures
    both = figures.all_figures
    shown = [f"{one.difference.name}: {finding(one)}" for one in both if one.change or one.answered_less]
    by_itself = [one.difference.name for one in both if one.by_itself]
    if by_itself:
        shown.append(f"By themselves, but not among so many, others would be differences: {', '.join(by_itself)}")
    limit = []
    if figures.max_regression is not None:
        limit = [f"Maximum regression {figures.max_regression * 100:g} %: {limit_text(figures)}"]
    return [
        *listed(FORCED, map(printable, figures.ignored)),
        *limit,
        *listed("Findings", shown),
        *listed("Criteria missed", map(printable, criteria_missed(comparison))),
        *listed("Warnings", map(printable, other_warnings(comparison))),
    ]


def _scenario(comparison: Comparison) -> str:
    return f"Scenario: {name_words(comparison) or 'unnamed'}, {users_words(comparison)}, {window_words(comparison)}"


def _runs(title: str, side: str, comparison: Comparison) -> list[str]:
    runs: Sequence[RunFigures] = getattr(comparison.figures, side)
    servers = ", ".join(sorted({run.server for run in runs if run.server})) or "unknown"
    rows = [
        (
            f"  {printable(run.path)}",
            "no score"
            if run.validity == "invalid"
            else f"score {' / '.join(map(ms, run.scores_ms.values())) or 'unknown'}",
            f"{run.failed:,} of {run.done:,} tasks failed",
        )
        for run in runs
    ]
    verdicts = [verdict_words(run.summary).lower() for run in comparison.runs[side]]
    lines = [f"{title}: {count(len(runs), 'run')} on {servers}"]
    return [*lines, *(f"{line}; {verdict}" for line, verdict in zip(table(rows), verdicts, strict=True))]


def _table(figures: ComparisonFigures) -> list[Sequence[str]]:
    interval = f"{level(figures.looks) * 100:.4g} % {INTERVAL}"
    head = tuple(interval if column == INTERVAL else column for column in COLUMNS)
    return [head, *(_row(one) for one in figures.all_figures)]


def _row(one: ComparedFigure) -> Sequence[str]:
    by_ms = one.difference.difference_ms
    by = "-" if has_infinite(one) else f"{'-' if by_ms < 0 else '+'}{ms(abs(by_ms))}"
    return (
        one.difference.name,
        ms(one.difference.base_ms),
        ms(one.difference.new_ms),
        by,
        "-" if has_infinite(one) else ratio_words(one.difference.ratio),
        interval_words(one),
        p_words(one.difference.p),
        ratio_words(one.difference.detectable) if one.difference.low is not None else "-",
        ratio_words(one.p50_ratio) if one.p50_ratio is not None else "",
    )


def _legend(figures: ComparisonFigures, head: str) -> list[str]:
    """Return the meaning of the columns that are shown."""
    lines = ["Base and New: 95th percentiles in ms, the geometric mean of the runs. Ratio: New / Base."]
    if "Base" not in head:
        lines = ["Ratio: New / Base, of the geometric means of the runs' 95th percentiles."]
    if "50th" in head:
        lines[0] += " 50th: the medians'."
    if "Difference" in head:
        lines[0] += " Difference and ratios are of unrounded figures."
    lines += delivery_words(figures)
    if figures.not_compared:
        lines.append(f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}.")
    if DETECTABLE in head and min(len(figures.base), len(figures.new)) > 1:
        lines.append("Detectable: the ratio that runs which vary like these show with a probability of 80 %.")
    return lines


def _notes(comparison: Comparison) -> list[str]:
    """Return how far the runs prove anything, and what to do next."""
    figures = comparison.figures
    lines = []
    if min(len(figures.base), len(figures.new)) > 1 and not invalid_runs(figures):
        looks = figures.looks
        lines += [
            f"p is corrected for the {len(figures.tasks)} tasks (Holm); those of the scores stand alone."
            + (f" All are corrected for {looks} looks, and so are intervals (Bonferroni)." if looks > 1 else ""),
        ]
        if not any(one.change or one.answered_less for one in figures.all_figures):
            lines.append("No difference shown. This does not prove that there is none: see Detectable.")
    return [*lines, f"Next: {next_step(comparison)}"]
