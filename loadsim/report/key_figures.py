"""The key figures of a run: what stands first in its report, below the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.report.document import Cell, Column, Table
from loadsim.report.summary_text import tasks_per_s


def key_figures(run: RecordedRun) -> Table:
    """Scores, users, sessions, failures and delivery, each in words."""
    score = run.score
    rows: list[tuple[Cell, ...]] = [*_scores(run), ("Users", str(score["users"]))]
    rows += [
        (f"READ, 95th percentile{of_module(run, name)}", _ms(read_p95_ms(one))) for name, one in run.modules.items()
    ]
    rows.append(("Tasks", tasks_per_s(score)))
    if load := score["load"]:
        rows.append(("Tasks of the plan that were asked for", _of_all(load["made"], load["planned"], load["share"])))
    # In a closed loop nothing is planned: the failures are those of all that was begun.
    rows.append(("Failed tasks", _of_all(score["failed"], score["planned"], score["failed_share"])))
    log_ons = [task for one in run.modules.values() for task in one["tasks"] if task["task"] == "LOGON"]
    failed_log_ons = sum(task["failed"] for task in log_ons)
    rows += [
        ("Failed log-ons", _of_all(failed_log_ons, score["log_ons"], score["logon_failed_share"])),
        ("Users' time without a session", "none" if score["down_share"] is None else _percent(score["down_share"])),
    ]
    if not run.stress:
        rows += [
            (f"Inbox worked through, 95th percentile from when it was due{of_module(run, name)}", _ms(inbox["p95_ms"]))
            for name, one in run.modules.items()
            if (inbox := one["inbox"]) is not None
        ]
    rows += [
        ("Mail not delivered", str(score["delivery"]["undelivered_at_end"])),
        ("Delivery time, 95th percentile", _ms(score["delivery"]["p95_ms"])),
    ]
    if not run.stress and score["load_equivalent_users"] != score["users"]:
        rows.append(("Load-equivalent, in tasks only", f"{score['load_equivalent_users']} users with a day of 8 h"))
    return Table("Key figures", (Column("Figure"), Column("Found")), tuple(rows))


def _scores(run: RecordedRun) -> list[tuple[Cell, ...]]:
    if run.stress:
        return []
    return [
        (f"{what}{of_module(run, name)}", found)
        for name, one in run.modules.items()
        for what, found in (
            ("Score, from when tasks began", _score_found(one)),
            ("Response score, from when they were due", _ms(one["response_score_ms"])),
        )
    ]


def _score_found(module: Mapping[str, Any]) -> str:
    """The score, where it is likely to lie, and whether it is made of too few hits to be quoted without saying so."""
    interval = interval_words(module.get("score_interval_ms"))
    sure = f", in {interval} ms (95 % sure)" if interval else ""
    return f"{_ms(module['score_ms'])}{sure}" + ("; provisional: few hits" if module.get("provisional") else "")


def read_p95_ms(module: Mapping[str, Any]) -> float | None:
    """The 95th percentile of a client module's READ; None without a hit."""
    return next((task["p95_ms"] for task in module["tasks"] if task["task"] == "READ"), None)


def interval_words(bounds_ms: Sequence[float] | None) -> str | None:
    """The ends of an interval; None where there is none."""
    return None if bounds_ms is None else f"{bounds_ms[0]:.1f} to {bounds_ms[1]:.1f}"


def of_module(run: RecordedRun, module: str) -> str:
    """Which client module is meant, where there is more than one."""
    return f" ({module})" if len(run.modules) > 1 else ""


def _of_all(number: int, of: int, share: float | None) -> str:
    return f"{number} of {of}" + ("" if share is None else f" ({_percent(share)})")


def _percent(share: float) -> str:
    return f"{100 * share:.3f} %"


def _ms(time_ms: float | str | None) -> str:
    if time_ms is None:
        return "none"
    return "infinite" if isinstance(time_ms, str) else f"{time_ms:.1f} ms"
