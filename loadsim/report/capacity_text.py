"""A capacity search as plain text: a line for each step, then the answer with its response-time curve."""

from __future__ import annotations

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.report.capacity_doubts import doubts
from loadsim.report.capacity_words import (
    MOST_REASONS,
    RESULTS,
    facts,
    limits,
    reasons_in_words,
    time_words,
    unmeasured,
    verdict,
)
from loadsim.report.plain_lines import LEAST_WIDTH, wrapped
from loadsim.report.table import table

BAR, LIMIT_AT = 20, 14
"""The columns of a bar of the curve, and the place of the limit in it."""


def step_text(step: MeasuredStep, width: int) -> str:
    """Return the line of a step that has ended; further lines have the reasons if it did not pass."""
    interval = step.score_interval_ms
    known = "" if step.validity == "invalid" or not interval else f" ({interval[0]:,.1f} to {interval[1]:,.1f} ms)"
    first = f"{step.users:,} users {RESULTS[step.result]}: score {time_words(step, step.score_ms)}{known}, {step.run}"
    reasons = [f"  - {reason}" for reason in reasons_in_words(step)[:MOST_REASONS]]
    more = len(step.reasons) - MOST_REASONS
    return "\n".join(wrapped([first, *reasons, *([f"  - {more} more"] if more > 0 else [])], max(width, LEAST_WIDTH)))


def capacity_text(capacity: Capacity, width: int) -> str:
    """Return the answer of a search that has ended, without a final line break."""
    width = max(width, LEAST_WIDTH)
    lines = [f"Capacity: {verdict(capacity)}", *(f"{name}: {text}" for name, text in facts(capacity))]
    below = [f"{limits(capacity)} The bars are the scores; | is the limit.".strip(), unmeasured(capacity)]
    return "\n".join(
        [
            *wrapped([*lines, *doubts(capacity)], width),
            "",
            *_curve(capacity),
            "",
            *wrapped(filter(None, below), width),
        ]
    )


def _curve(capacity: Capacity) -> list[str]:
    """Return a row for each step, by number of users, with bars whose limits are the criteria."""
    terms = capacity.terms
    rows = [["Users", "Result", "Tasks/s", "Score", "Limit".rjust(LIMIT_AT + 1).ljust(BAR), "Response"]]
    for step in sorted(capacity.steps, key=lambda one: one.users):
        bar = "" if step.validity == "invalid" else _bar(step.score_ms, terms.score_limit_ms)
        rows.append(
            [
                f"{step.users:,}",
                RESULTS[step.result],
                f"{step.tasks_per_s:,.1f}",
                time_words(step, step.score_ms),
                bar.ljust(BAR),
                time_words(step, step.response_score_ms),
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
