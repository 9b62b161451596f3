"""A run's answer: the verdict and its findings, LsLog's table, what happened, and all other figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadsim.analysis.criteria import AUDIT
from loadsim.analysis.summary import Summary
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.formats import count, duration
from loadsim.findings.next_step import next_step
from loadsim.findings.severity import Severity
from loadsim.model.figures import Figures
from loadsim.report.answer_facts import brief_facts, further_facts
from loadsim.report.answer_tables import (
    clients_table,
    command_table,
    criteria_tables,
    due_table,
    facts_table,
    score_table,
    scores_of,
    stress_table,
)
from loadsim.report.document import Block, Document, Item, Listing, Section, item_of
from loadsim.report.resources import NO_PROOF, resource_table

NO_MEASUREMENT = "; on the embedded server: no measurement"
"""The end of the verdict on a run with the embedded server."""


def describe_answer(
    summary: Summary,
    begun: str = "",
    chart: tuple[Block, ...] = (),
    over_time: tuple[Section, ...] = (),
    of_log: tuple[Section, ...] = (),
) -> Document:
    """Return the answer. A report adds a `chart` at its top, and the sections that need the log."""
    figures, verdict = summary.figures, summary.verdict
    facts = brief_facts(figures, verdict.ended_early, invalid=is_invalid(summary), all_well=_all_mail_is_well(summary))
    commands = (command_table(figures.commands, figures.window_s),) if figures.commands else ()
    sections = (
        Section("", chart),
        Section("Findings", tuple(findings(verdict.findings)), brief=True),
        Section("Criteria", tuple(criteria_tables(summary.criteria, verdict.ended_early, not is_invalid(summary)))),
        Section("Tasks" if figures.stress else "Score", tuple(_score(summary)), brief=True),
        Section("Facts", (facts_table("What was run, and what happened", facts),), brief=True),
        *over_time,
        Section("Commands", commands, brief=True),
        Section("Further facts", (facts_table("What else is known", further_facts(figures)),)),
        Section("Resources", (resource_table(figures.resources), NO_PROOF) if figures.resources else ()),
        Section("Throughput", tuple(_due(summary))),
        Section("Client machines", (clients_table(figures.per_client),) if figures.per_client else ()),
    )
    return Document(
        title=f"{figures.name or 'A run'}: {headline(figures, verdict.validity)}",
        subtitle="; ".join(
            filter(None, (figures.run and f"Run {figures.run}", begun and f"begun {begun}", figures.server))
        ),
        verdict=verdict_line(summary),
        tone=summary.tone,
        sections=(*sections, *of_log),
    )


def _all_mail_is_well(summary: Summary) -> bool:
    """Return True if an audit judged all mail and found no faults."""
    results = [one for one in summary.criteria if one.name.startswith(AUDIT)]
    doubts = {Code.AUDIT_INCOMPLETE, Code.MAIL_FAULTS_ALLOWED, Code.MAIL_UNKNOWN}
    well = bool(results) and all(one.passed for one in results)
    return well and doubts.isdisjoint({one.code for one in summary.verdict.findings})


def _score(summary: Summary) -> Iterator[Block]:
    """Yield the tables of tasks, without the score of an invalid run."""
    figures = summary.figures
    if is_invalid(summary) and not figures.stress:
        yield "Do not quote these times: the run is invalid."
    for name, driver in figures.by_protocol.items():
        caption = f"Service times of {count(driver.users, 'user')} through the driver {name}"
        caption += " (not to be mixed with another's)" if len(figures.by_protocol) > 1 else ""
        if figures.stress:
            yield stress_table(caption, driver, figures.window_s)
        else:
            yield score_table(caption, driver.tasks, scores_of(driver, invalid=is_invalid(summary)))
    if not figures.by_protocol:
        yield "The logs hold no task."


def _due(summary: Summary) -> Iterator[Block]:
    """Yield the outcomes of due tasks, by driver; nothing for a closed loop."""
    if not summary.figures.stress:
        for name, driver in summary.figures.by_protocol.items():
            yield due_table(f"Due against done, driver {name}", driver.tasks)


# --- the verdict in words ---


def is_invalid(summary: Summary) -> bool:
    return summary.verdict.validity == "invalid"


def headline(figures: Figures, validity: str) -> str:
    """Return the users and scores, or no figures for an invalid run; provisional scores are marked."""
    users = count(figures.users, "user")
    if validity == "invalid":
        return f"{users}, no valid {'score' if figures.throughput is None else 'throughput'}"
    if figures.throughput is not None:
        return f"{users}, {figures.throughput.tasks_per_s:,.1f} tasks per second"
    scores = [
        f"{'provisional ' if driver.provisional else ''}score {duration(driver.score_ms)}"
        + (f" ({name})" if len(figures.by_protocol) > 1 else "")
        for name, driver in figures.by_protocol.items()
        if driver.score_ms is not None
    ]
    return ", ".join([users, *(scores or ["no score"])])


SHOWN_OTHERWISE = [(Severity.NOTE, Code.EMBEDDED), (Severity.NOTE, Code.ONE_RUN)]
"""Notes that the verdict or the next step already states."""


def findings(found: Sequence[Finding], further: Sequence[Item] = ()) -> Iterator[Block]:
    """Yield the findings by severity, with `further` warnings, and the next step."""
    invalid = any(one.severity is Severity.INVALID for one in found)
    for caption, severities in (
        ("Why it is not valid" if invalid else "Why it is degraded", (Severity.INVALID, Severity.DEGRADED)),
        ("Criteria missed", (Severity.MISSED,)),
        ("Warnings", (Severity.WARNING,)),
        ("Notes", (Severity.NOTE,)),
    ):
        own = (one for one in found if one.severity in severities)
        items = [item_of(one) for one in own if (one.severity, one.code) not in SHOWN_OTHERWISE]
        if items := [*items, *(further if Severity.WARNING in severities else ())]:
            yield Listing(caption, tuple(items))
    if step := next_step(found):
        yield f"Next: {step}."


def verdict_words(summary: Summary) -> str:
    codes = {one.code for one in summary.verdict.warnings} if not is_invalid(summary) else ()
    by_limits = " by relaxed limits" if Code.RELAXED in codes else ""
    allowing = ", some faults allowed" if Code.MAIL_FAULTS_ALLOWED in codes and summary.verdict.passed else ""
    return f"{summary.verdict.validity}{by_limits}, {passed_words(summary)}{allowing}"


def verdict_line(summary: Summary) -> str:
    """Return the verdict, and a note that a run on the embedded server is no measurement."""
    return verdict_words(summary) + (NO_MEASUREMENT if summary.figures.embedded else "")


def passed_words(summary: Summary) -> str:
    """Return the criteria's result. Misses that were not measured, or that an early end may explain, are not judged.

    An invalid run may miss criteria, but meets none.
    """
    codes = {one.code for one in summary.verdict.missed}
    if codes and codes <= {Code.CRITERION_NOT_JUDGED, Code.CRITERION_NOT_MEASURED}:
        return "criteria not judged in full"
    if codes:
        return "criteria missed"
    return "criteria not judged" if is_invalid(summary) else "criteria met"
