"""The answer of a run as plain text: the verdict and its reasons, what was run, LsLog's table, and what happened."""

from __future__ import annotations

from loadsim.analysis.criteria import Result
from loadsim.analysis.figures import Figures
from loadsim.analysis.summary import Summary
from loadsim.report.answer_facts import facts, head
from loadsim.report.answer_tables import (
    BEYOND_LEGEND,
    beyond_table,
    breakdown_text,
    certainty_of,
    clients_text,
    command_table,
    covers,
    fitting,
    legend,
    of_whole_run,
    score_rows,
    stress_table,
)
from loadsim.report.criterion_words import found_words, judged, missed_in_words, wanted
from loadsim.report.digits import count
from loadsim.report.plain_lines import LEAST_WIDTH, coloured, listed, wrapped
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.table import table, text_table

NO_MEASUREMENT = "; on the embedded server: no measurement"
"""Follows the verdict of a run on the embedded server."""

DO_NOT_QUOTE = "The run is invalid: its score is not shown. Do not quote its times."

NOT_JUDGED = "Criteria not judged, as the run ended early and did not wait for its last mail"
"""The heading of misses that may come from the early end alone."""


def full_answer(summary: Summary) -> str:
    """Return all figures, with a final line break. Lines are as long as they need to be. Times are in milliseconds."""
    return _answer(summary, None)


def short_answer(summary: Summary, width: int, colours: bool = False) -> str:
    """Return the answer in lines of at most `width` columns, with a final line break.

    It lacks the tables of further percentiles and of criteria that were met. Columns that do not fit are left out.
    Verbatim names that are longer than a line are not broken. `colours`: the verdict is coloured by SGR (ECMA-48).
    """
    return _answer(summary, max(width, LEAST_WIDTH), colours)


def _answer(summary: Summary, width: int | None, colours: bool = False) -> str:
    figures, all_figures = summary.figures, width is None
    invalid = is_invalid(summary)
    first, *reasons = _verdict(summary)
    lines = [coloured(first, summary.tone) if colours else first, *wrapped(reasons, width), ""]
    plan = [f"Plan: {figures.plan_digest or 'unknown'}"] if all_figures else []
    lines += [*wrapped(head(figures), width), *plan, ""]
    for name, module in figures.by_protocol.items():
        lines += wrapped(_driver(figures, name), width)
        if figures.throughput:
            lines += [*text_table(stress_table(module, figures.window_s)), *of_whole_run(module), ""]
            continue
        rows = score_rows(module, invalid=invalid)
        notes = [*legend(rows), *of_whole_run(module), *([DO_NOT_QUOTE] if invalid else [])]
        notes += [*covers(module.covers), *certainty(summary, name)]
        lines += [*fitting(rows, width), *wrapped(notes, width), ""]
        if all_figures:
            lines += [*text_table(beyond_table(module)), *BEYOND_LEGEND, ""]
    lines += _asked_for(figures, invalid=invalid)
    lines += wrapped(facts(figures, summary.verdict.ended_early), width)
    lines += wrapped(clients_text(figures.per_client, width), width)
    lines += [*_resources(figures), *_criteria(summary)] if all_figures else []
    return "\n".join(lines) + "\n"


def certainty(summary: Summary, driver: str) -> list[str]:
    """Return how exact the score of a driver is; nothing for an invalid run, whose score is not shown."""
    if is_invalid(summary):
        return []
    return certainty_of(summary.figures.by_protocol[driver])


def is_invalid(summary: Summary) -> bool:
    return summary.verdict.validity == "invalid"


def _driver(figures: Figures, name: str) -> list[str]:
    """Return the heading of a driver's table, if there are several."""
    if len(figures.by_protocol) == 1:
        return []
    users = count(figures.by_protocol[name].users, "user")
    return [f"Driver {name}, {users} (not to be mixed with another's score)"]


def _asked_for(figures: Figures, *, invalid: bool) -> list[str]:
    """Return the tables that were asked for: by a property of tasks, and of commands."""
    lines = breakdown_text(figures.by, invalid=invalid) if figures.by else []
    return [*lines, *text_table(command_table(figures.commands)), ""] if figures.commands else lines


def _resources(figures: Figures) -> list[str]:
    """Return the table of resources after a blank line; nothing without the probe `host`."""
    return ["", *text_table(resource_table(figures.resources)), NO_PROOF] if figures.resources else []


# --- verdict and criteria ---


def _verdict(summary: Summary) -> list[str]:
    """Return the verdict, and lists of its reasons, of missed criteria, and of warnings."""
    verdict = summary.verdict
    lines = [verdict_line(summary)]
    lines += listed(f"Why it is {'not valid' if verdict.validity == 'invalid' else verdict.validity}", verdict.defects)
    lines += listed("What may help", verdict.advice)
    missed, unjudged = missed_and_unjudged(summary)
    lines += listed("Criteria missed", missed_in_words(missed))
    lines += listed(NOT_JUDGED, missed_in_words(unjudged))
    return [*lines, *listed("Warnings", verdict.warnings)]


def verdict_line(summary: Summary) -> str:
    """Return the first line of an answer."""
    return (
        f"Verdict: {summary.verdict.validity}, {passed_words(summary)}"
        f"{NO_MEASUREMENT if summary.figures.embedded else ''}"
    )


def passed_words(summary: Summary) -> str:
    """Return the result of the criteria; misses that may come from an early end alone are none.

    An invalid run misses criteria, but meets none.
    """
    passed = summary.verdict.passed
    if passed is None:
        return "criteria not judged by a slice"
    missed, unjudged = missed_and_unjudged(summary)
    if unjudged and not missed:
        return "criteria not judged in full"
    if not passed:
        return "criteria missed"
    return "criteria not judged" if summary.verdict.validity == "invalid" else "criteria met"


def missed_and_unjudged(summary: Summary) -> tuple[list[Result], list[Result]]:
    """Return the missed criteria, and those that were not judged because the run ended early."""
    missed: list[Result] = []
    unjudged: list[Result] = []
    for one in summary.criteria:
        if not one.passed:
            (missed if judged(one, summary.verdict.ended_early) else unjudged).append(one)
    return missed, unjudged


def _criteria(summary: Summary) -> list[str]:
    """Return the criteria, met or missed, after a blank line. Those of single tasks are listed only if missed.

    What an invalid run does not miss is not judged.
    """
    results, early, invalid = summary.criteria, summary.verdict.ended_early, is_invalid(summary)
    kept = "not judged" if invalid else "met"
    if not results:
        return []
    listed = [one for one in results if not (one.each and one.passed)]
    rows = [
        (
            one.name,
            found_words(one, valid=not invalid),
            wanted(one),
            kept if one.passed else "missed" if judged(one, early) else "not judged",
        )
        for one in listed
    ]
    each = sum(one.each for one in results)
    met = len(results) - len(listed)
    counted = f"{each - met} of {each} missed" if invalid else f"{'all' if met == each else f'{met} of'} {each} met"
    of_tasks = f"Criteria of single tasks: {counted}."
    found = table([("Criterion", "Found", "Wanted", ""), *rows]) if rows else []
    return ["", *found, *([of_tasks] if each else [])]
