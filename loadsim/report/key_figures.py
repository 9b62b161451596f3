"""The key figures of a run: the first table of its report, below the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from loadsim.analysis.figures import DriverFigures, Figures
from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.answer_facts import how_addressed, tasks_per_s, with_mailboxes_of
from loadsim.report.criterion_words import NOT_SHOWN
from loadsim.report.digits import count, duration, known_decimals, percent, rounded
from loadsim.report.document import Cell, Column, Table


def key_figures(run: RecordedRun) -> Table:
    """Return the first figures of a run; an invalid one has no times, as they would be quoted."""
    figures, invalid = run.figures, run.summary.verdict.validity == "invalid"

    def time(time_ms: float | None) -> str:
        return NOT_SHOWN if invalid else duration(time_ms)

    rows: list[tuple[Cell, ...]] = [*_scores(run, invalid), ("Users", f"{figures.users:,}")]
    rows += [
        (f"READ, 95th percentile{of_module(run, name)}", time(one.read_p95_ms))
        for name, one in run.figures.by_protocol.items()
    ]
    rows.append(("Tasks", tasks_per_s(figures)))
    if load := figures.load:
        rows.append(("Tasks of the plan that were made", _of_all(load.made, load.planned, load.share)))
    # In a closed loop nothing is planned: the failures are those of all that was begun.
    rows.append(("Failed tasks", _of_all(figures.totals.failed, figures.totals.planned, figures.failed_share)))
    log_ons = [task for one in run.figures.by_protocol.values() for task in one.tasks if task.task == "LOGON"]
    failed_log_ons = sum(task.failed for task in log_ons)
    rows += [
        ("Failed log-ons", _of_all(failed_log_ons, figures.log_ons, figures.logon_failed_share)),
        ("Users' time without a session", "none" if figures.down_share is None else percent(figures.down_share)),
    ]
    if companions := figures.companions:
        share = companions.log_ons_failed / companions.log_ons if companions.log_ons else None
        down = companions.down_share
        rows += [
            ("Failed log-ons of companions", _of_all(companions.log_ons_failed, companions.log_ons, share)),
            ("New messages that companions listed", f"{companions.listed:,g}"),
            ("Companions' time without service", "none" if down is None else percent(down)),
        ]
    if not run.figures.stress:
        rows += [
            (
                f"Inbox worked through, 95th percentile from its due time{of_module(run, name)}",
                time(inbox.took.p95_ms),
            )
            for name, one in run.figures.by_protocol.items()
            if (inbox := one.inbox) is not None
        ]
    mail = figures.delivery
    not_delivered = how_addressed(mail.undelivered_at_end, mail.undelivered_at_end_by_list)
    not_awaited = (
        "; the run ended early and did not wait for its last mail"
        if run.summary.verdict.ended_early and mail.undelivered_at_end
        else ""
    )
    rows += [
        ("Mail not delivered", f"{mail.undelivered_at_end:,}{not_delivered}{not_awaited}"),
        ("Delivery time, 95th percentile", time(mail.took.p95_ms)),
    ]
    if not invalid and not figures.stress and figures.load_equivalent_users != figures.users:
        rows.append(("Same task rate as (no capacity)", with_mailboxes_of(figures)))
    return Table("Key figures", (Column("Figure"), Column("Found")), tuple(rows))


def _scores(run: RecordedRun, invalid: bool) -> list[tuple[Cell, ...]]:
    if run.figures.stress:
        return []
    return [
        (f"{what}{of_module(run, name)}", NOT_SHOWN if invalid else found)
        for name, one in run.figures.by_protocol.items()
        for what, found in (
            ("Score, from when tasks began", _score_found(one)),
            ("Score from due times (response score)", duration(one.response_score_ms)),
        )
    ]


def _score_found(module: DriverFigures) -> str:
    interval_ms = module.score_interval_ms
    sure = (
        f", 95 % interval {' to '.join(score_words(module, end_ms) for end_ms in interval_ms)}" if interval_ms else ""
    )
    return f"{score_words(module, module.score_ms)}{sure}" + ("; provisional: few hits" if module.provisional else "")


def score_words(module: DriverFigures, time_ms: float | None) -> str:
    """Return the score, or an end of its interval, with the digits that the interval supports, as an answer has it."""
    if module.score_ms is None or time_ms is None or module.score_interval_ms is None:
        return duration(time_ms)
    return f"{rounded(time_ms, known_decimals(module.score_ms, module.score_interval_ms))} ms"


def interval_words(bounds_ms: Sequence[float] | None) -> str | None:
    return None if bounds_ms is None else f"{duration(bounds_ms[0])} to {duration(bounds_ms[1])}"


def of_module(run: RecordedRun, module: str) -> str:
    """Return the name of a driver in brackets; "" if it is the only one."""
    return f" ({module})" if len(run.figures.by_protocol) > 1 else ""


def _of_all(number: float, of: float, share: float | None) -> str:
    return f"{number:,} of {of:,}" + ("" if share is None else f" ({percent(share)})")


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
