"""The answer of a run: the verdict and its reasons, what was run, LsLog's table, and what happened."""

from __future__ import annotations

from collections.abc import Iterator

from loadsim.analysis.figures import Figures
from loadsim.analysis.summary import Summary
from loadsim.findings.catalogue import Code
from loadsim.findings.formats import count
from loadsim.findings.next_step import next_step
from loadsim.report.answer_facts import Fact, facts, head
from loadsim.report.answer_tables import (
    certainty,
    clients_table,
    command_table,
    covers,
    due_table,
    of_whole_run,
    parts_tables,
    score_table,
    score_words,
    scores_of,
    stress_table,
)
from loadsim.report.criteria import criteria_table
from loadsim.report.document import Block, Column, Listing, Table
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.text import to_text

NO_MEASUREMENT = "; on the embedded server: no measurement"
"""Follows the verdict of a run on the embedded server."""

DO_NOT_QUOTE = "The run is invalid: its score is not shown. Do not quote its times."


def full_answer(summary: Summary) -> str:
    """Return all figures, with a final line break. Lines are as long as they need to be. Times are in milliseconds."""
    return to_text(verdict_line(summary), summary.tone, _answer(summary, wide=True), None)


def short_answer(summary: Summary, width: int, colours: bool = False) -> str:
    """Return the answer in lines of at most `width` columns, with a final line break; see `to_text`.

    It lacks the tables of due tasks, of resources and of criteria.
    """
    return to_text(verdict_line(summary), summary.tone, _answer(summary), width, colours)


def _answer(summary: Summary, *, wide: bool = False) -> Iterator[Block]:
    """Yield what stands below the verdict; all tables if `wide`."""
    figures = summary.figures
    yield from findings(summary)
    yield facts_table("What was run", [*head(figures), *([("Plan", figures.plan_digest or "unknown")] if wide else [])])
    for name, module in figures.by_protocol.items():
        yield from score_blocks(summary, name)
        if wide and not figures.stress:
            yield due_table("Due against done", module.tasks)
    yield from _asked_for(figures, invalid=is_invalid(summary))
    yield facts_table("What happened", facts(figures, summary.verdict.ended_early))
    if figures.per_client:
        yield clients_table(figures.per_client)
    if wide and figures.resources:
        yield resource_table(figures.resources)
        yield NO_PROOF
    if wide and summary.criteria:
        yield criteria_of(summary)


def facts_table(caption: str, found: list[Fact]) -> Table:
    return Table(caption, (Column("Fact"), Column("Value")), tuple(found))


def score_blocks(summary: Summary, driver: str) -> Iterator[Block]:
    """Yield the table of a driver's tasks, and what limits its meaning; the score of an invalid run is not shown."""
    figures, invalid = summary.figures, is_invalid(summary)
    module = figures.by_protocol[driver]
    caption = f"Service times of {count(module.users, 'user')} through the driver {driver}"
    caption += " (not to be mixed with another's)" if len(figures.by_protocol) > 1 else ""
    if figures.stress:
        yield stress_table(caption, module, figures.window_s)
        yield from of_whole_run(module)
        return
    yield score_table(caption, module.tasks, scores_of(module, invalid=invalid))
    yield (
        "Times are in milliseconds, those with s in seconds. Due: from the instant at which a task was due, when its"
        " user may still be busy; never: too many tasks failed or were not done."
    )
    yield from of_whole_run(module)
    if invalid:
        yield DO_NOT_QUOTE
    yield covers(module.covers)
    if not invalid:
        yield from certainty(module)


def is_invalid(summary: Summary) -> bool:
    return summary.verdict.validity == "invalid"


def _asked_for(figures: Figures, *, invalid: bool) -> Iterator[Table]:
    """Yield the tables that were asked for: by a property of tasks, and of commands."""
    if figures.by:
        yield from parts_tables(figures.by, invalid=invalid)
    if figures.commands:
        yield command_table(figures.commands, figures.window_s)


# --- verdict and criteria ---


def headline(figures: Figures, validity: str) -> str:
    """Return the users and the scores; figures of an invalid run are not quoted, and provisional ones are called so."""
    users = count(figures.users, "user")
    if validity == "invalid":
        return f"{users}, no valid {'score' if figures.throughput is None else 'throughput'}"
    if figures.throughput is not None:
        return f"{users}, {figures.throughput.tasks_per_s:,.1f} tasks per second"
    scores = [
        f"{'provisional ' if module.provisional else ''}score {score_words(module, module.score_ms)}"
        + (f" ({name})" if len(figures.by_protocol) > 1 else "")
        for name, module in figures.by_protocol.items()
        if module.score_ms is not None
    ]
    return ", ".join([users, *(scores or ["no score"])])


def findings(summary: Summary) -> Iterator[Block]:
    """Yield the findings by severity, and the next step."""
    verdict = summary.verdict
    for caption, found in (
        (f"Why it is {'not valid' if is_invalid(summary) else 'degraded'}", verdict.defects),
        ("Criteria missed", verdict.missed),
        ("Warnings", verdict.warnings),
    ):
        if found:
            yield Listing(caption, tuple(one.text for one in found))
    if step := next_step(summary.verdict.findings):
        yield f"Next: {step}."


def verdict_line(summary: Summary) -> str:
    """Return the first line of an answer."""
    return f"Verdict: {summary.verdict.validity}, {passed_words(summary)}{_embedded(summary)}"


def verdict_words(summary: Summary) -> str:
    return f"{summary.verdict.validity.capitalize()}, {passed_words(summary)}"


def banner(summary: Summary) -> str:
    """Return the first line of a report."""
    return f"{verdict_words(summary)}{_embedded(summary)}"


def _embedded(summary: Summary) -> str:
    return NO_MEASUREMENT if summary.figures.embedded else ""


def passed_words(summary: Summary) -> str:
    """Return the result of the criteria; misses that may come from an early end alone are none.

    An invalid run misses criteria, but meets none.
    """
    codes = {one.code for one in summary.verdict.missed}
    if codes == {Code.CRITERION_NOT_JUDGED}:
        return "criteria not judged in full"
    if codes:
        return "criteria missed"
    return "criteria not judged" if is_invalid(summary) else "criteria met"


def criteria_of(summary: Summary) -> Table:
    return criteria_table(summary.criteria, summary.verdict.ended_early, valid=not is_invalid(summary))
