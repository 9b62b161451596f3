"""A capacity search as plain text: the answer with its response-time curve."""

from __future__ import annotations

from loadsim.analysis.capacity import Capacity
from loadsim.report.campaign_runs import RESULTS, time_words
from loadsim.report.capacity_words import doubts, facts, limits, verdict
from loadsim.report.plain_lines import LEAST_WIDTH, wrapped
from loadsim.report.table import table

BAR, LIMIT_AT = 20, 14
"""The columns of a bar of the curve, and the place of the limit in it."""


def capacity_text(capacity: Capacity, width: int) -> str:
    """Return the answer of a search that has ended, without a final line break."""
    width = max(width, LEAST_WIDTH)
    lines = [f"Capacity: {verdict(capacity)}", *(f"{name}: {text}" for name, text in facts(capacity))]
    below = f"{limits(capacity)} The bars are the scores; | is the limit.".strip()
    return "\n".join(
        [*wrapped([*lines, *doubts(capacity)], width), "", *_curve(capacity), "", *wrapped([below], width)]
    )


def _curve(capacity: Capacity) -> list[str]:
    """Return a row for each run, by number of users, with bars whose limits are the criteria."""
    terms = capacity.terms
    rows = [["Users", "Result", "Tasks/s", "Score", "Limit".rjust(LIMIT_AT + 1).ljust(BAR), "Response"]]
    for run in sorted(capacity.runs, key=lambda one: one.users):
        bar = "" if run.validity == "invalid" else _bar(run.score_ms, terms.score_limit_ms)
        rows.append(
            [
                f"{run.users:,}",
                RESULTS[run.result],
                f"{run.tasks_per_s or 0:,.1f}",
                time_words(run, run.score_ms),
                bar.ljust(BAR),
                time_words(run, run.response_score_ms),
            ]
        )
    return table(rows)


def _bar(score_ms: float | str | None, limit_ms: float | None) -> str:
    """Return a bar whose limit is at `LIMIT_AT`; an arrow ends one that is longer than its place."""
    if score_ms is None or not limit_ms:
        return ""
    length = float(score_ms) / limit_ms * LIMIT_AT
    columns = max(1, round(min(length, 2 * BAR)))
    room, beyond = BAR - LIMIT_AT - 1, max(0, columns - LIMIT_AT)
    above = "#" * beyond if beyond <= room else "#" * (room - 1) + ">"
    return f"{('#' * min(columns, LIMIT_AT)).ljust(LIMIT_AT)}|{above}"
