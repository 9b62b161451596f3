"""A capacity search as plain text: a line for each step, then the answer with its response-time curve."""

from __future__ import annotations

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import FAILED
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.errors import printable
from loadsim.report.digits import duration
from loadsim.report.plain_lines import LEAST_WIDTH, wrapped
from loadsim.report.table import table

RESULTS = {"pass": "passed", "fail": "failed", "undecided": "undecided", "generator": "generator", "void": "void"}

BAR, LIMIT_AT = 20, 14
"""The columns of a bar of the curve, and the place of the limit in it."""

MOST_REASONS = 3
"""The most reasons that a step's line has; its run directory has all."""


def step_text(step: MeasuredStep, width: int) -> str:
    """Return the line of a step that has ended; further lines have the reasons if it did not pass."""
    interval = step.score_interval_ms
    known = f" ({interval[0]:,.1f} to {interval[1]:,.1f} ms)" if interval else ""
    first = f"{step.users:,} users {RESULTS[step.result]}: score {_time(step.score_ms)}{known}, {step.run}"
    reasons = [f"  - {printable(reason)}" for reason in step.reasons[:MOST_REASONS]]
    more = len(step.reasons) - MOST_REASONS
    return "\n".join(wrapped([first, *reasons, *([f"  - {more} more"] if more > 0 else [])], max(width, LEAST_WIDTH)))


def capacity_text(capacity: Capacity, width: int) -> str:
    """Return the answer of a search that has ended, without a final line break."""
    width = max(width, LEAST_WIDTH)
    lines = [_verdict(capacity), *_facts(capacity), *_doubts(capacity)]
    return "\n".join([*wrapped(lines, width), "", *_curve(capacity), "", *wrapped([_legend(capacity)], width)])


def _verdict(capacity: Capacity) -> str:
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    low = None if found.low is None else f"{found.low:,} users"
    if found.stopped_by == "noise":
        return f"Capacity: not decided, from {low or 'none'}{f' to {found.high:,} users' if found.high else ' up'}"
    if found.stopped_by == "criteria":
        return f"Capacity: {low}" if low else f"Capacity: none, {found.high:,} users miss the criteria"
    why = {
        "generator": "the load generator was too slow for more",
        "limit": f"{settings.most:,} are the most of this search",
    }
    return f"Capacity: {f'at least {low}' if low else 'not found'}; {why[found.stopped_by]}"


def _facts(capacity: Capacity) -> list[str]:
    """Return the interval, what the users are, and what the next larger number missed."""
    found, terms = capacity.found, capacity.terms
    assert found is not None
    lines = []
    if found.low is not None and found.high is not None:
        share = (found.high - found.low) / (found.high + found.low)
        lines.append(
            f"Interval: {found.low:,} users passed twice, {found.high:,} failed twice (+-{share:.1%} of the middle)"
        )
    elif found.low is not None:
        lines.append(f"Interval: from {found.low:,} users, which passed twice; its upper end is not known")
    if found.low is not None:
        pace = f", {terms.compression:g} times as fast as their profile's" if terms.compression != 1 else ""
        lines.append(f"Users: each with a day of {terms.day_s:g} s{pace}")
        lines.append(f"Throughput: {capacity.tasks_per_s or 0:,.1f} tasks/s")
        lines.append(f"8-hour equivalent: {capacity.load_equivalent_users or 0:,} users with a day of 8 h")
    if found.high is not None:
        failed = [step for step in capacity.steps if step.users == found.high and step.result == FAILED]
        missed = "; ".join(printable(reason) for reason in failed[-1].reasons[:MOST_REASONS]) if failed else ""
        lines.append(f"Missed with {found.high:,} users: {missed}")
    return lines


def _doubts(capacity: Capacity) -> list[str]:
    """Return what limits the meaning of the answer."""
    lines = []
    if capacity.found is not None and capacity.found.stopped_by == "noise":
        lines.append("Results contradict each other, or do not decide: longer windows give a shorter interval.")
    if capacity.found is not None and not capacity.certain:
        lines.append(
            "Not all scores at its ends have intervals of their own: agreeing runs decided, and chance may move them."
            " Windows of 1 h or more have such intervals in general."
        )
    if capacity.terms.embedded:
        lines.append("The embedded server shares this machine: this measures no server.")
    return lines


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


def _legend(capacity: Capacity) -> str:
    terms = capacity.terms
    limits = [
        f"{name} below {duration(limit)}"
        for name, limit in (("score", terms.score_limit_ms), ("response score", terms.response_score_limit_ms))
        if limit is not None
    ]
    wanted = f"Criteria: {', '.join(limits)}, and all others of the scenario." if limits else ""
    return f"{wanted} The bars are the scores; | is the limit.".strip()


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
