"""A comparison of two sets of runs as plain text: the runs, the table and the findings."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.compare import MOST_DETECTABLE, MOST_REPEATS, POWER, level
from loadsim.analysis.compare_runs import ComparedFigure, Comparison, ComparisonFigures, RunFigures
from loadsim.report.table import table

INTERVAL = "interval"
COLUMNS = ("Category", "Base", "New", "Difference", "Ratio", INTERVAL, "p", "Detectable", "50th")

FEW = 3
"""The fewest runs of a set whose spread is known well enough."""


def compare_text(comparison: Comparison) -> str:
    """Return the text that `loadsim compare` prints, with a final line break. Times are in milliseconds."""
    figures = comparison.figures
    begin_s, end_s = figures.window_s
    interval = f"{level(figures.looks) * 100:.4g} % interval"
    head = tuple(interval if column == INTERVAL else column for column in COLUMNS)
    rows = [head, *(_row(one) for one in figures.tasks), *(_row(one) for one in figures.scores)]
    lines = [
        *_runs("Base", figures.base),
        *_runs("New", figures.new),
        f"Scenario: {figures.name or 'unnamed'}, {figures.users} users, window of {end_s - begin_s:g} s",
        "",
        *table(rows),
        "Base and New: 95th percentiles in ms, the geometric mean of the runs. Ratio: New / Base. 50th: the medians'.",
    ]
    if figures.not_compared:
        lines.append(f"Without hits in some run, and not compared: {', '.join(figures.not_compared)}.")
    lines += ["", *_findings(figures), *_limit(figures)]
    lines += [f"Warning (--force): {complaint}" for complaint in figures.ignored]
    lines += [f"Warning: {warning}" for warning in figures.warnings]
    return "\n".join(lines) + "\n"


def finding(one: ComparedFigure) -> str:
    """Return a sentence on one figure, without its name."""
    times = f"{_ratio(one.difference.ratio)} times as long"
    if less := one.answered_less:
        of_what = "of its tasks"
        if shares := one.unanswered:
            of_what = f"({_percent(shares['base'])} unanswered in base, {_percent(shares['new'])} in new)"
        change = f"{one.change}, and " if one.change else ""
        return f"{change}less was answered in {less} {of_what}: of what was, {times}"
    if one.difference.p is None:
        return f"{times}, inconclusive with a single run on either side"
    result = one.change or ("shown by itself, not among so many" if one.by_itself else "no difference shown")
    return f"{result}: {times} ({_interval(one)}), p {_p(one.difference.p)}"


def limit_text(figures: ComparisonFigures) -> str:
    """Return a sentence on the result of `--max-regression`."""
    decision, limit = figures.decision, 1 + (figures.max_regression or 0)
    prefix = f"{decision}: "
    slower = any(one.difference.low is not None and one.difference.low > limit for one in figures.scores)
    for less, other in (("new", "base"), ("base", "new")):
        by_failures = decision == "undecided" or (decision == "failed" and not slower)
        if by_failures and less in {one.answered_less for one in figures.scores}:
            rest = ": its times are those of the rest" if decision == "undecided" else ""
            return prefix + f"less of what is scored was answered in {less} than in {other}{rest}"
    intervals = " and ".join(
        _ratio(one.difference.ratio) if one.difference.low is None else _interval(one) for one in figures.scores
    )
    if any(one.difference.low is None for one in figures.scores):
        return prefix + f"the score's ratio is {intervals} of single runs; it takes at least two of each, better five"
    if decision != "undecided":
        where = "below" if decision == "passed" else "above"
        return prefix + f"the interval of the score's ratio, {intervals}, lies {where} {limit:g}"
    more = figures.more_repeats
    repeats = f"more than {MOST_REPEATS}" if more is None else str(more)
    return prefix + (
        f"the interval of the score's ratio, {intervals}, holds {limit:g}; {repeats} more"
        f" {'repeat' if more == 1 else 'repeats'} of each would decide with a probability of {POWER * 100:.0f} %"
    )


def _runs(title: str, runs: Sequence[RunFigures]) -> list[str]:
    servers = ", ".join(sorted({run.server for run in runs if run.server})) or "unknown"
    lines = [f"{title}: {len(runs)} {'run' if len(runs) == 1 else 'runs'} on {servers}"]
    rows = [
        (
            f"  {run.path}",
            " / ".join(f"{score_ms:.1f}" for score_ms in run.scores_ms.values()) or "no score",
            f"{run.failed} of {run.done} tasks failed; {run.validity},"
            f" {'criteria met' if run.passed else 'criteria missed'}",
        )
        for run in runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [f"{path:<{widths[0]}}  score {score:>{widths[1]}}  {verdict}" for path, score, verdict in rows]
    return lines


def _row(one: ComparedFigure) -> Sequence[str]:
    known = one.difference.p is not None
    return (
        one.difference.name,
        f"{one.difference.base_ms:.1f}",
        f"{one.difference.new_ms:.1f}",
        f"{one.difference_ms:+.1f}",
        _ratio(one.difference.ratio),
        _interval(one) if known else "-",
        _p(one.difference.p),
        _ratio(one.difference.detectable) if known else "-",
        _ratio(one.p50_ratio) if one.p50_ratio is not None else "",
    )


def _findings(figures: ComparisonFigures) -> list[str]:
    runs = min(len(figures.base), len(figures.new))
    both = [*figures.tasks, *figures.scores]
    if runs < 2:
        return [
            *(f"{one.difference.name}: {finding(one)}" for one in both if one.answered_less),
            "Inconclusive: even runs of the same server vary; only repeated runs show by how much.",
            "No interval within a run shows it. Run each at least three times, better five, taking turns.",
        ]
    looks = figures.looks
    lines = [f"{one.difference.name}: {finding(one)}" for one in both if one.change or one.answered_less]
    if not lines:
        lines = ["No difference shown. This does not prove that there is none: see Detectable."]
    if by_itself := [one.difference.name for one in both if one.by_itself]:
        lines.append(f"By themselves, but not among so many, others would be differences: {', '.join(by_itself)}.")
    lines += [
        f"p is corrected for the {len(figures.tasks)} tasks (Holm); the score's stands alone."
        + (f" Both are corrected for {looks} looks, and so are intervals (Bonferroni)." if looks > 1 else ""),
        "Detectable: the ratio that runs which vary like these show with a probability of 80 %.",
    ]
    if runs < FEW:
        lines.append(
            f"With fewer than {FEW} runs of each, the variation between runs is hardly known: intervals are wide."
        )
    return lines


def _limit(figures: ComparisonFigures) -> list[str]:
    if figures.max_regression is None:
        return []
    return [f"Maximum regression {figures.max_regression * 100:g} %: {limit_text(figures)}"]


def _interval(one: ComparedFigure) -> str:
    return f"{_ratio(one.difference.low)} to {_ratio(one.difference.high)}"


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _ratio(ratio: float | None) -> str:
    """Format with three decimals; a ratio above a hundredfold, or unknown, as `> 100`."""
    if ratio is None or ratio > MOST_DETECTABLE:
        return f"> {MOST_DETECTABLE:g}"
    return f"{ratio:.3f}" if ratio >= 1 / MOST_DETECTABLE else f"< {1 / MOST_DETECTABLE:g}"


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"
