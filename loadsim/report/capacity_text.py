"""A capacity search as plain text: a line for each step, then the answer with its response-time curve."""

from __future__ import annotations

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.errors import printable
from loadsim.report.capacity_words import MOST_REASONS, RESULTS, doubts, facts, limits, verdict
from loadsim.report.digits import duration
from loadsim.report.plain_lines import LEAST_WIDTH, wrapped
from loadsim.report.resources import NOT_SAMPLED
from loadsim.report.table import table

BAR, LIMIT_AT = 20, 14
"""The columns of a bar of the curve, and the place of the limit in it."""


def step_text(step: MeasuredStep, width: int) -> str:
    """Return the line of a step that has ended; further lines have the reasons if it did not pass."""
    interval = step.score_interval_ms
    known = f" ({interval[0]:,.1f} to {interval[1]:,.1f} ms)" if interval else ""
    first = f"{step.users:,} users {RESULTS[step.result]}: score {_time(step.score_ms)}{known}, {step.run}"
    reasons = [f"  - {printable(reason)}" for reason in step.reasons[:MOST_REASONS]]
    more = len(step.reasons) - MOST_REASONS
    return "\n".join(wrapped([first, *reasons, *([f"  - {more} more"] if more > 0 else [])], max(width, LEAST_WIDTH)))


def capacity_text(capacity: Capacity, width: int, server_here: bool = False) -> str:
    """Return the answer of a search that has ended, without a final line break.

    `server_here`: the server is on this machine, so that a probe of the runs can sample it.
    """
    width = max(width, LEAST_WIDTH)
    lines = [f"Capacity: {verdict(capacity)}", *(f"{name}: {text}" for name, text in facts(capacity))]
    if server_here and not any(step.resources for step in capacity.steps):
        lines.append(NOT_SAMPLED)
    legend = f"{limits(capacity)} The bars are the scores; | is the limit.".strip()
    return "\n".join(
        [*wrapped([*lines, *doubts(capacity)], width), "", *_curve(capacity), "", *wrapped([legend], width)]
    )


def _curve(capacity: Capacity) -> list[str]:
    """Return a row for each step, by number of users, with bars whose limits are the criteria."""
    terms = capacity.terms
    rows = [["Users", "Result", "Tasks/s", "Score", "Limit".rjust(LIMIT_AT + 1).ljust(BAR), "Response"]]
    for step in sorted(capacity.steps, key=lambda one: one.users):
        bar = _bar(step.score_ms, terms.score_limit_ms)
        rows.append(
            [
                f"{step.users:,}",
                RESULTS[step.result],
                f"{step.tasks_per_s:,.1f}",
                _time(step.score_ms),
                bar.ljust(BAR),
                _time(step.response_score_ms),
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


def _time(time_ms: float | str | None) -> str:
    return duration(None if time_ms is None else float(time_ms))
