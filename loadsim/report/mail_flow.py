"""The report's section on mail: messages and copies against the plan, and how long delivery took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadsim.analysis.planned_mail import PlannedMail, planned_mail
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report import run_charts
from loadsim.report.document import Block, Cell, Column, Table, drawable
from loadsim.report.mail_series import SENDING, MailSeries, mail_series
from loadsim.report.summary_text import who_is_unwatched
from loadsim.report.time_series import Bins

NEW_MAIL, ANSWERS = ("SEND",), SENDING[1:]
"""The tasks that send new mail, and those that follow from mail that was read."""

TIMES = (
    ("p50_ms", "50th"),
    ("p90_ms", "90th"),
    ("p95_ms", "95th"),
    ("p99_ms", "99th"),
    ("max_ms", "Max"),
    ("mean_ms", "Mean"),
    ("stddev_ms", "Std. Dev."),
)

DELIVERED = (
    "Delivery takes from the server's acceptance of a message until its recipient has it in sight: announced to the"
    " session, or found after a new log-on or by a look at the end. Messages that never arrived count as infinite"
    " (inf); a triangle at the upper edge of the chart is such a percentile."
)


def mail_blocks(run: RecordedRun, bins: Bins) -> tuple[Block, ...]:
    """Tables, texts and charts."""
    series = mail_series(run.log, bins, run.window_s)
    planned = planned_mail(run)
    times = tuple((title, run.score["delivery"].get(key)) for key, title in TIMES)
    took = Table("Time to delivery", (Column("Statistic"), Column("Time (ms)", 1)), times)
    charts = [drawable(chart) for chart in run_charts.mail(run, bins, series, planned)]
    return (
        _flow(run, series, planned),
        _about(run, planned),
        took,
        DELIVERED,
        *(chart for chart in charts if chart is not None),
    )


def _flow(run: RecordedRun, series: MailSeries, planned: PlannedMail | None) -> Table:
    """What was planned, due, sent, accepted and delivered: new mail, what followed from it, and both."""
    mail = run.score["delivery"]
    new, answers = _messages(run, NEW_MAIL), _messages(run, ANSWERS)
    by_plan = planned.within(run.window_s) if planned is not None else None
    rows: list[tuple[Cell, ...]] = []
    if by_plan is not None:
        rows.append(("Messages in the plan", by_plan[0], None, None))
    for title, key in (
        ("Messages due", "planned"),
        ("Messages sent", "hits"),
        ("Messages that failed", "failed"),
        ("Messages that users did not come to send", "left"),
    ):
        if not (run.stress and key in ("planned", "left")):
            rows.append((title, new[key], answers[key], new[key] + answers[key]))
    if by_plan is not None:
        rows.append(("Copies in the plan, one for each recipient", by_plan[1], None, None))
    for title, of_new, of_answers in (
        ("Copies accepted, one for each recipient", series.new.accepted, series.answers.accepted),
        ("Copies delivered", series.new.delivered, series.answers.delivered),
        ("... announced to a session that waited", series.new.announced, series.answers.announced),
    ):
        rows.append((title, of_new, of_answers, of_new + of_answers))
    rows += [
        ("Copies that came again after the first", None, None, mail["duplicates"]),
        ("Copies not delivered", None, None, mail["undelivered"]),
        (f"Copies to users of {who_is_unwatched(run.score)}", None, None, mail["unwatched"]),
        ("Not delivered at the end of the run, of all copies", None, None, mail["undelivered_at_end"]),
    ]
    columns = (Column("What"), Column("New mail", 0), Column("Replies and forwards", 0), Column("Together", 0))
    return Table("Mail flow in the window" + ("" if run.stress else ", against the plan"), columns, tuple(rows))


def _messages(run: RecordedRun, names: tuple[str, ...]) -> Mapping[str, int]:
    """How the tasks of these names ended, of all client modules together."""
    tasks: list[Mapping[str, Any]] = [
        task for module in run.modules.values() for task in module["tasks"] if task["task"] in names
    ]
    return {
        **{key: sum(task[key] for task in tasks) for key in ("planned", "hits", "failed")},
        "left": sum(task["unfinished"] + task["skipped"] + task["generator_failed"] for task in tasks),
    }


def _about(run: RecordedRun, planned: PlannedMail | None) -> str:
    read = sum(task["hits"] for module in run.modules.values() for task in module["tasks"] if task["task"] == "READ")
    texts = ["Messages belong to the window by when they were due, copies by when the server accepted them."]
    if not run.stress:
        texts.append(f"Replies and forwards are in no plan: they follow from what was read, {read} messages here.")
        if planned is None:
            texts.append(
                "To how many users messages were to go is told where the run directory has the scenario of this run."
            )
    return " ".join(texts)
