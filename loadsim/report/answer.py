"""The answer of a run: the verdict and its reasons, what was run, LsLog's table, and what happened."""

from __future__ import annotations

from collections.abc import Iterator

from loadsim.analysis.criteria import Result, missed_texts
from loadsim.analysis.figures import Figures
from loadsim.analysis.summary import Summary
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
from loadsim.report.criteria import criteria_table, judged
from loadsim.report.digits import count
from loadsim.report.document import Block, Column, Listing, Table
from loadsim.report.resources import NO_PROOF, resource_table
from loadsim.report.text import to_text

NO_MEASUREMENT = "; on the embedded server: no measurement"
"""Follows the verdict of a run on the embedded server."""

EMBEDDED = "The embedded server shares the machine with the generator: this is no measurement of a server."

YOUR_OWN = "run it on a mail server of your own (loadsim new)."
"""The next step after runs on the embedded server."""

DO_NOT_QUOTE = "The run is invalid: its score is not shown. Do not quote its times."

NOT_JUDGED = "Criteria not judged, as the run ended early and did not wait for its last mail"
"""The heading of misses that may come from the early end alone."""


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
    yield from reasons(summary)
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


def reasons(summary: Summary) -> Iterator[Block]:
    """Yield the reasons of the verdict, what may help, the missed criteria, and the warnings."""
    verdict = summary.verdict
    missed, unjudged = missed_and_unjudged(summary)
    for caption, items in (
        (f"Why it is {'not valid' if verdict.validity == 'invalid' else verdict.validity}", verdict.defects),
        ("What may help", verdict.advice),
        ("Criteria missed", missed_texts(missed)),
        (NOT_JUDGED, missed_texts(unjudged)),
        ("Warnings", verdict.warnings),
    ):
        if items:
            yield Listing(caption, tuple(items))


def next_step(summary: Summary) -> str:
    """Return what to do after a run that needs no other advice than the reasons of its verdict; "" otherwise."""
    if summary.figures.embedded:
        return YOUR_OWN
    return "make three such runs or more before you quote a score." if summary.tone == "good" else ""


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
    missed, unjudged = missed_and_unjudged(summary)
    if unjudged and not missed:
        return "criteria not judged in full"
    if not summary.verdict.passed:
        return "criteria missed"
    return "criteria not judged" if is_invalid(summary) else "criteria met"


def missed_and_unjudged(summary: Summary) -> tuple[list[Result], list[Result]]:
    """Return the missed criteria, and those that were not judged because the run ended early."""
    missed: list[Result] = []
    unjudged: list[Result] = []
    for one in summary.criteria:
        if not one.passed:
            (missed if judged(one, summary.verdict.ended_early) else unjudged).append(one)
    return missed, unjudged


def criteria_of(summary: Summary) -> Table:
    return criteria_table(summary.criteria, summary.verdict.ended_early, valid=not is_invalid(summary))
