"""The report's section on mail: messages, copies, and delivery times."""

from __future__ import annotations

from collections.abc import Mapping

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.analysis.series.mail import MailSeries, mail_series
from loadsim.analysis.series.tasks import Bins
from loadsim.model.terms import SENDING
from loadsim.report import run_charts
from loadsim.report.document import Block, Cell, Column, Table, drawable

NEW_MAIL = frozenset(("SEND",))
ANSWERS = SENDING - NEW_MAIL
"""The tasks that send new mail, and those that answer mail."""

BELONG = (
    "Messages belong to the window by their due time, copies by the time of their acceptance. Replies and forwards are"
    " not planned: they follow from the messages that were read."
)

TIMES = (
    ("p50_ms", "Median"),
    ("p90_ms", "90th percentile"),
    ("p95_ms", "95th percentile"),
    ("p99_ms", "99th percentile"),
    ("max_ms", "Maximum"),
    ("mean_ms", "Mean"),
    ("stddev_ms", "Standard deviation"),
)


def mail_blocks(run: RecordedRun, bins: Bins) -> tuple[Block, ...]:
    series = mail_series(run.log, bins, run.figures.window_s)
    times = tuple((title, getattr(run.figures.delivery.took, key)) for key, title in TIMES)
    took = Table("Time to delivery", (Column("Statistic"), Column("Time", "time")), times)
    charts = [drawable(chart) for chart in run_charts.mail(run, bins, series)]
    return (
        _flow(run, series),
        BELONG,
        took,
        *(chart for chart in charts if chart is not None),
    )


def _flow(run: RecordedRun, series: MailSeries) -> Table:
    """Return the counts of due, sent, accepted and delivered mail: new mail, answers, and both."""
    mail = run.figures.delivery
    new, answers = _messages(run, NEW_MAIL), _messages(run, ANSWERS)
    rows: list[tuple[Cell, ...]] = []
    for title, key in (
        ("Messages due", "planned"),
        ("Messages sent", "hits"),
        ("Messages that failed", "failed"),
        ("Messages that users did not send in time", "left"),
    ):
        if not (run.figures.stress and key in ("planned", "left")):
            rows.append((title, new[key], answers[key], new[key] + answers[key]))
    for title, of_new, of_answers in (
        ("Copies accepted, one for each recipient", series.new.accepted, series.answers.accepted),
        ("Copies delivered", series.new.delivered, series.answers.delivered),
        ("... announced to a waiting session", series.new.announced, series.answers.announced),
    ):
        rows.append((title, of_new, of_answers, of_new + of_answers))
    rows += [
        ("Copies that arrived again after the first", None, None, mail.duplicates),
        ("Copies not delivered", None, None, mail.undelivered),
        *_addressed(mail.undelivered, mail.undelivered_by_list),
        ("Copies to users of engines that were lost", None, None, mail.unwatched),
        ("Not delivered at the end of the run, of all copies", None, None, mail.undelivered_at_end),
        *_addressed(mail.undelivered_at_end, mail.undelivered_at_end_by_list),
    ]
    columns = (Column("Count of"), Column("New mail", 0), Column("Replies and forwards", 0), Column("Together", 0))
    return Table("Mail flow in the window", columns, tuple(rows))


def _addressed(copies: float, by_list: float) -> tuple[tuple[Cell, ...], ...]:
    """Return the rows that divide a count by the way of addressing; none without copies, or if it is unknown."""
    if not copies:
        return ()
    return (
        ("... addressed as individuals", None, None, round(copies - by_list, 1)),
        ("... addressed through a list only", None, None, by_list),
    )


def _messages(run: RecordedRun, names: frozenset[str]) -> Mapping[str, float]:
    """Return how the tasks of these names ended, in all drivers together."""
    tasks = [task for module in run.figures.by_protocol.values() for task in module.tasks if task.task in names]
    return {
        "planned": sum(task.planned for task in tasks),
        "hits": sum(task.hits for task in tasks),
        "failed": sum(task.failed for task in tasks),
        "left": sum(task.unfinished + task.skipped + task.generator_failed for task in tasks),
    }
