"""The report on a single run: its answer, charts, mail, probes and test environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from loadsim.analysis.failures import failures
from loadsim.analysis.probes.statistics import probe_facts
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.health import probe_series
from loadsim.analysis.series.mail import mail_series
from loadsim.analysis.series.tasks import Bins, bins_of
from loadsim.model.terms import SENDING
from loadsim.report import run_charts
from loadsim.report.answer import describe_answer
from loadsim.report.answer_tables import FURTHER, TIMES
from loadsim.report.audit import audit_blocks
from loadsim.report.disclosure import disclosure_table, scenario_table
from loadsim.report.document import Block, Cell, Chart, Column, Document, Section, Table, drawable, table_of


def describe_run(run: RecordedRun) -> Document:
    bins = bins_of(run.log)
    probes, scenario = probe_series(run.log, bins), (scenario_table(run.scenario),) if run.scenario else ()
    charts = [run_charts.server_and_generator(run, bins, probes), run_charts.further_probes(run, bins, probes)]
    return describe_answer(
        run.summary,
        run.begun,
        _charts([run_charts.at_a_glance(run, bins)]),
        (
            Section("Server and generator", _charts(charts)),
            Section(
                "Service times over time",
                _charts(
                    [run_charts.times_over_time(run, bins)],
                    f"Each point covers {bins.width_s:g} s; with fewer than 20 samples, its 95th percentile is the"
                    " maximum.",
                    "No task has a hit: there is no time to show.",
                ),
            ),
        ),
        (
            Section("Delivery of mail", mail_blocks(run, bins)),
            Section("Audit of the mail", audit_blocks(run.log.audit)),
            Section("Errors", _errors(run)),
            Section("Disclosure", (disclosure_table(run), *probe_tables(run), *scenario)),
        ),
    )


def _charts(charts: Sequence[Chart], text: str = "", instead: str = "The logs hold no task.") -> tuple[Block, ...]:
    """Return the non-empty charts, above a text; `instead` if all are empty."""
    shown = [chart for chart in map(drawable, charts) if chart is not None]
    return (*shown, *([text] if text else [])) if shown else (instead,)


def _errors(run: RecordedRun) -> tuple[Block, ...]:
    table = table_of(
        "Failures over the whole run, the most frequent first (see events.jsonl)",
        failures(run),
        ("Kind", None, lambda one: one.kind or None),
        ("Task", None, lambda one: one.task),
        ("Outcome", None, lambda one: one.outcome),
        ("Times", 0, lambda one: one.times),
        ("In the window", 0, lambda one: one.in_window),
        ("First at (s)", 1, lambda one: one.first_s),
        ("First line from the server", None, lambda one: one.line or None),
    )
    return (table,) if table.rows else ("Nothing failed.",)


def mail_blocks(run: RecordedRun, bins: Bins) -> tuple[Block, ...]:
    took = run.figures.delivery.took
    times = tuple((title, getattr(took, name)) for title, name in (*TIMES, *FURTHER))
    charts = [drawable(chart) for chart in run_charts.mail(run, bins, mail_series(run.log, bins))]
    return (
        Table("Mail flow in the window", (Column("Count of"), Column("Number", 0)), tuple(_flow(run))),
        Table("Time to delivery", (Column("Statistic"), Column("Time", "time")), times),
        *(chart for chart in charts if chart is not None),
    )


def _flow(run: RecordedRun) -> Iterator[tuple[Cell, ...]]:
    """Yield the counts of messages (by due time) and of copies (one per recipient, by acceptance)."""
    mail = run.figures.delivery
    tasks = [task for driver in run.figures.by_protocol.values() for task in driver.tasks if task.task in SENDING]
    if not run.figures.stress:
        yield "Messages due", sum(task.planned for task in tasks)
    outside = run.figures.outside
    refused = ", or refused to unknown recipients" if outside and outside.unknown_refused else ""
    yield f"Messages sent{refused}", sum(task.hits for task in tasks)
    yield "Messages that failed", sum(task.failed for task in tasks)
    if not run.figures.stress:
        left = sum(task.unfinished + task.skipped + task.generator_failed for task in tasks)
        yield "Messages that users did not send in time", left
    yield "Copies accepted", mail.accepted
    yield "Copies delivered", mail.delivered
    yield "... announced to a waiting session", mail.delivered - mail.found
    yield "Copies that arrived again after the first", mail.duplicates
    yield "Copies not delivered", mail.undelivered
    yield "Copies to users of engines that were lost", mail.unwatched
    yield "Not delivered at the end of the run, of all copies", mail.undelivered_at_end


def probe_tables(run: RecordedRun) -> tuple[Table, ...]:
    """Return the figures of probes in the window, and their sources; () without probes."""
    facts = probe_facts(run.log)
    figures = [
        (f"{probe}: {name}", one) for probe, own in (run.figures.probes or {}).items() for name, one in own.items()
    ]
    if not facts and not figures:
        return ()
    all_figures = table_of(
        "Probes: figures in the window, which are in no score",
        figures,
        ("Figure", None, lambda row: row[0]),
        ("Samples", 0, lambda row: row[1].samples),
        ("Mean", 2, lambda row: row[1].mean),
        ("95th percentile", 2, lambda row: row[1].p95),
        ("Least", 2, lambda row: row[1].min),
        ("Most", 2, lambda row: row[1].max),
    )
    return (
        replace(all_figures, folded=True),
        *_monitors(run),
        table_of(
            "Sources of the probes",
            facts.items(),
            ("Probe", None, lambda row: row[0]),
            ("Package", None, lambda row: row[1].package),
            ("Samples taken", 0, lambda row: row[1].samples),
            ("Failed samples", 0, lambda row: row[1].failures),
            ("Last failure", None, lambda row: row[1].last_failure),
        ),
    )


def _monitors(run: RecordedRun) -> tuple[Table, ...]:
    """Return the monitors' files and their clocks' errors; () without any."""
    table = table_of(
        "Files of loadsim monitor",
        [(source, source.monitor) for source in run.log.sources if source.monitor],
        ("Monitor", None, lambda row: row[0].client),
        ("From (s)", 1, lambda row: row[1].span_s and row[1].span_s[0]),
        ("To (s)", 1, lambda row: row[1].span_s and row[1].span_s[1]),
        ("Has an end", None, lambda row: "yes" if row[0].ended else "no"),
        ("Error of its clock", "time", lambda row: row[1].error_ms),
    )
    return (table,) if table.rows else ()
