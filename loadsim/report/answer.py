"""The answer of a run as plain text: the verdict and its reasons, what was run, LsLog's table, and what happened."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.criteria import Result
from loadsim.analysis.figures import Figures
from loadsim.analysis.per_run import in_tenths
from loadsim.analysis.score import MERGED
from loadsim.analysis.summary import Summary
from loadsim.analysis.verdict import Verdict
from loadsim.report.answer_facts import count, facts, head
from loadsim.report.answer_tables import (
    beyond_legend,
    beyond_table,
    breakdown_text,
    certainty,
    clients_text,
    command_table,
    covers,
    fitting,
    legend,
    ordinal,
    score_rows,
    stress_table,
)
from loadsim.report.criterion_words import missed_in_words
from loadsim.report.plain_lines import LEAST_WIDTH, coloured, listed, wrapped
from loadsim.report.table import table, text_table


def full_answer(summary: Summary) -> str:
    """Return all figures, with a final line break. Lines are as long as they need to be. Times are in milliseconds."""
    figures = _shown(summary)
    percentile = ordinal(figures.percentile)
    lines = [*_verdict(summary), ""]
    lines += [*head(figures), f"Plan: {figures.plan_digest or 'unknown'}", ""]
    for name, module in figures.by_protocol.items():
        lines += _driver(figures, name)
        if figures.throughput:
            lines += [*text_table(stress_table(module, figures.window_s, percentile)), ""]
        else:
            rows = score_rows(module, percentile)
            lines += [*table(rows), *legend(rows), *covers(module.covers), *_certainty(summary, name), ""]
            lines += [*text_table(beyond_table(module, percentile)), *beyond_legend(percentile), ""]
    lines += _asked_for(figures)
    return "\n".join([*lines, *facts(figures), *clients_text(figures.per_client), *_criteria(summary.criteria)]) + "\n"


def short_answer(summary: Summary, width: int, colours: bool = False) -> str:
    """Return the answer in lines of at most `width` columns, with a final line break.

    It lacks the tables of further percentiles and of criteria that were met. Columns that do not fit are left out.
    Verbatim names that are longer than a line are not broken. `colours`: the verdict is coloured by SGR (ECMA-48).
    """
    figures, width = _shown(summary), max(width, LEAST_WIDTH)
    percentile = ordinal(figures.percentile)
    first, *reasons = _verdict(summary)
    lines = [coloured(first, summary.tone) if colours else first, *wrapped(reasons, width), ""]
    lines += [*wrapped(head(figures), width), ""]
    for name, module in figures.by_protocol.items():
        lines += wrapped(_driver(figures, name), width)
        if figures.throughput:
            lines += [*text_table(stress_table(module, figures.window_s, percentile)), ""]
        else:
            rows = score_rows(module, percentile)
            notes = [*legend(rows), *covers(module.covers), *_certainty(summary, name)]
            lines += [*fitting(rows, width), *wrapped(notes, width), ""]
    lines += _asked_for(figures)
    lines += [*wrapped(facts(figures), width), *wrapped(clients_text(figures.per_client, width), width)]
    return "\n".join(lines) + "\n"


def _shown(summary: Summary) -> Figures:
    return in_tenths(summary.figures) if summary.figures.runs > 1 else summary.figures


def _certainty(summary: Summary, driver: str) -> list[str]:
    return certainty(summary.figures.by_protocol[driver], summary.figures.runs)


def _driver(figures: Figures, name: str) -> list[str]:
    """Return the heading of a driver's table, if there are several."""
    if len(figures.by_protocol) == 1:
        return []
    users = count(figures.by_protocol[name].users, "user")
    return [f"Driver {name}, {users} (not to be mixed with another's score)"]


def _asked_for(figures: Figures) -> list[str]:
    """Return the tables that were asked for: by a property of tasks, and of commands."""
    lines = breakdown_text(figures.by, ordinal(figures.percentile)) if figures.by else []
    return [*lines, *text_table(command_table(figures.commands)), ""] if figures.commands else lines


# --- verdict and criteria ---


def _verdict(summary: Summary) -> list[str]:
    """Return the verdict, and lists of its reasons, of missed criteria, and of warnings."""
    verdict, figures = summary.verdict, summary.figures
    lines = [f"Verdict: {verdict.validity}, {passed_words(verdict)}"]
    if (figures.percentile, figures.method) != (95, MERGED) and verdict.passed is not None:
        lines.append("Criteria and verdict: by the 95th percentiles of all records, not by those shown")
    lines += listed(f"Why it is {'not valid' if verdict.validity == 'invalid' else verdict.validity}", verdict.defects)
    lines += listed("What may help", filter(None, (verdict.advice,)))
    lines += listed("Criteria missed", (*missed_in_words(summary.criteria), *verdict.missed_runs))
    return [*lines, *listed("Warnings", verdict.warnings)]


def passed_words(verdict: Verdict) -> str:
    passed = verdict.passed
    return "criteria not judged by a slice" if passed is None else "criteria met" if passed else "criteria missed"


def _criteria(results: Sequence[Result]) -> list[str]:
    """Return the criteria, met or missed, after a blank line. Those of single tasks are listed only if missed."""
    if not results:
        return []
    listed = [one for one in results if not (one.each and one.passed)]
    rows = [(one.name, one.found, one.wanted, "met" if one.passed else "missed") for one in listed]
    each = sum(one.each for one in results)
    met = len(results) - len(listed)
    of_tasks = f"Criteria of single tasks: {'all' if met == each else f'{met} of'} {each} met."
    found = table([("Criterion", "Found", "Wanted", ""), *rows]) if rows else []
    return ["", *found, *([of_tasks] if each else [])]
