"""The report's section on mail: messages, copies, and delivery times."""

from __future__ import annotations

from collections.abc import Iterator

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.mail import mail_series
from loadsim.analysis.series.tasks import Bins
from loadsim.model.terms import SENDING
from loadsim.report import run_charts
from loadsim.report.answer_tables import FURTHER, TIMES
from loadsim.report.document import Block, Cell, Column, Table, drawable


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
    """Yield the counts of messages by their due time, and of copies, one for each recipient, by their acceptance."""
    mail = run.figures.delivery
    tasks = [task for module in run.figures.by_protocol.values() for task in module.tasks if task.task in SENDING]
    if not run.figures.stress:
        yield "Messages due", sum(task.planned for task in tasks)
    yield "Messages sent", sum(task.hits for task in tasks)
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
