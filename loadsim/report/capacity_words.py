"""The answer of a capacity search in sentences, for its text and its report."""

from __future__ import annotations

from collections.abc import Mapping

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_search import (
    EVIDENCE,
    EVIDENCE_OF_MIXED,
    FAILED,
    PASSED,
    VOID,
    Result,
    ends_so_far,
)
from loadsim.analysis.capacity_step import MeasuredStep, Time
from loadsim.analysis.criteria import missed_texts
from loadsim.analysis.summary import Tone
from loadsim.errors import printable
from loadsim.report.answer_facts import AS_USUAL
from loadsim.report.criterion_words import missed_in_words
from loadsim.report.digits import duration
from loadsim.report.figure_words import reason_in_words
from loadsim.report.resources import resource_lines
from loadsim.timinglog.header_words import length
from loadsim.timinglog.planned_load import received_of_published

RESULTS = {"pass": "passed", "fail": "failed", "undecided": "undecided", "generator": "generator", "void": "void"}

MOST_REASONS = 3
"""The most reasons of a step that are shown; its run directory has all."""

CONTENDED = "in doubt, since other work shared the server's cores"
"""Follows a capacity that is not the server's own."""

NOT_SHOWN = "not shown"
"""Stands for a time of an invalid run."""


def tone(capacity: Capacity) -> Tone:
    """Return the rating: an answer that may be quoted is good, and a missing capacity bad."""
    if capacity.users is None:
        return "bad"
    doubtful = capacity.exit_status or capacity.terms.embedded or capacity.contended
    return "doubtful" if doubtful else "good"


def verdict(capacity: Capacity) -> str:
    """Return the capacity, or what ended the search without one, and whether other work makes it doubtful."""
    found = _verdict(capacity)
    return f"{found}; {CONTENDED}" if capacity.contended else found


def _verdict(capacity: Capacity) -> str:
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    low = None if found.low is None else f"{found.low:,} users"
    if found.stopped_by in ("noise", "order"):
        return f"not decided, from {low or 'none'}{f' to {found.high:,} users' if found.high else ' up'}"
    if found.stopped_by == "criteria":
        return low or f"none, {found.high:,} users miss the criteria"
    why = {
        "generator": "the load generator was too slow for more",
        "limit": f"{settings.most:,} are the most of this search",
        "refused": "more cannot be measured here",
    }
    if found.low is None and found.high is not None:
        return f"none from {found.high:,} users on, which miss the criteria; fewer cannot be measured"
    return f"{f'at least {low}' if low else 'not found'}; {why[found.stopped_by]}"


def so_far(capacity: Capacity) -> str:
    """Return what the steps of an unfinished search have found."""
    low, high = ends_so_far(capacity.measured, capacity.terms.settings)
    passed = "no number passed" if low is None else f"{low:,} users passed"
    return f"so far {passed}, {'no larger one' if high is None else f'{high:,} users'} failed"


def sentence(capacity: Capacity) -> str:
    """Return the verdict of a report: the capacity, its interval, and what ended the search."""
    found = capacity.found
    assert found is not None
    first = _verdict(capacity)
    if found.low is None or found.high is None or found.stopped_by in ("noise", "order"):
        words = f"{first[:1].upper()}{first[1:]}"
    elif not capacity.certain:
        words = f"About {first}: too few runs agree to state an interval"
    else:
        words = f"{first}, interval {_ends(capacity)}: {found.high:,} users miss the criteria"
    return f"{words}; {CONTENDED}" if capacity.contended else words


def facts(capacity: Capacity) -> list[tuple[str, str]]:
    """Return names and texts: what the users are, the interval, and what the next larger number missed."""
    found = capacity.found
    assert found is not None
    lines = []
    if found.low is not None:
        lines.append(("Users", _users(capacity)))
    if found.low is not None or found.high is not None or capacity.certain:
        lines.append(("Interval", interval(capacity)))
    if found.low is not None:
        lines.append(("Throughput", f"{capacity.tasks_per_s or 0:,.1f} tasks/s"))
        lines.append(("8-hour equivalent", _equivalent(capacity)))
    if found.high is not None:
        lines.append((f"Missed with {found.high:,} users", missed(capacity)))
    if step := capacity.nearest_to_full:
        for line in resource_lines(step.resources):
            name, _, resources = line.partition(": ")
            lines.append((f"{name}, with {step.users:,} users", f"{resources}; by {step.run}"))
    return lines


def _users(capacity: Capacity) -> str:
    """Return the day of the users, and the load that each makes if it is not that of one user of a usual day."""
    terms, users = capacity.terms, capacity.users or 1
    each = (capacity.load_equivalent_users or users) / users
    if abs(each - 1) < AS_USUAL:
        day = f"each with a day of {length(terms.day_s)}"
    else:
        day = f"each makes the load of about {each:,.3g} users with a day of 8 h; their day has {length(terms.day_s)}"
    pace = f", {terms.compression:g} times as fast as their profile's" if terms.compression != 1 else ""
    return f"{day}{pace}, by the plan of run.seed {terms.seed}"


def _equivalent(capacity: Capacity) -> str:
    """Return the load-equivalent, with the share of the published mail if users receive much less."""
    shares = [step.received_share for step in capacity.at_capacity if step.received_share is not None]
    received = received_of_published(min(shares, default=None))
    users = f"{capacity.load_equivalent_users or 0:,} users with a day of 8 h"
    return f"{users}, who receive {received}" if received else users


def interval(capacity: Capacity) -> str:
    """Return the interval with the results at its ends; or why it is not stated."""
    found = capacity.found
    assert found is not None
    ends = [
        f"{users:,} users {_times(capacity, users, result)}"
        for users, result in ((found.low, PASSED), (found.high, FAILED))
        if users is not None
    ]
    seen = ", ".join(ends)
    if found.stopped_by == "order":
        return f"not stated: {seen}; results depend on the order of the runs"
    if not capacity.certain:
        mixed = f"{EVIDENCE_OF_MIXED} of {EVIDENCE_OF_MIXED + 1}"
        stated = "not stated" if capacity.interval is None else "stated at one end only"
        needed = f"an end needs {EVIDENCE} equal results and no other one, or {mixed} equal"
        return f"{stated}: {seen}; {needed}"
    if found.high is None:
        return f"{seen}; its upper end is not known"
    if found.low is None:
        return f"{seen}; no number passed"
    low, high = (users or 0 for users in capacity.interval or ())
    return (
        f"{_ends(capacity)} users (+-{(high - low) / (high + low):.1%} of the middle), with a confidence of at least"
        " 90 % if the number of users from which a run misses criteria varies by at most 10 % (times may vary more),"
        f" with a correlation of at most 0.9 from run to run: {seen}"
    )


def _ends(capacity: Capacity) -> str:
    """Return the interval in users, which has both ends."""
    return " to ".join(f"{users or 0:,}" for users in capacity.interval or ())


def _times(capacity: Capacity, users: int, result: Result) -> str:
    """Return how often a number had a result, such as "passed 8 of 9 times"."""
    judged = [step.result for step in capacity.steps if step.users == users and step.result != VOID]
    equal = judged.count(result)
    often = f"{equal} times" if equal == len(judged) else f"{equal} of {len(judged)} times"
    return f"{RESULTS[result]} {often}"


def missed(capacity: Capacity) -> str:
    """Return the criteria that the last failure of the smallest failed number missed, and its run."""
    found = capacity.found
    failed = [step for step in capacity.steps if found and step.users == found.high and step.result == FAILED]
    if not failed:
        return ""
    reasons = reasons_in_words(failed[-1])
    more = [f"{len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    which = f", the last of {len(failed)} that failed" if len(failed) > 1 else ""
    return f"{'; '.join([*reasons[:MOST_REASONS], *more])}; by {failed[-1].run}{which}"


def reasons_in_words(step: MeasuredStep) -> list[str]:
    """Return the reasons of a step, with words for the figures that criteria and other reasons name."""
    criteria = [each.result for each in step.criteria]
    words: Mapping[str, str] = dict(
        zip(missed_texts(criteria), missed_in_words(criteria, with_names=False), strict=True)
    )
    return [printable(words.get(reason) or reason_in_words(reason)) for reason in step.reasons]


def time_of(step: MeasuredStep, time_ms: Time | None) -> float | str | None:
    """Return a time of a run for a table; that of an invalid run is not to be quoted."""
    return NOT_SHOWN if time_ms is not None and step.validity == "invalid" else time_ms


def time_words(step: MeasuredStep, time_ms: Time | None) -> str:
    shown = time_of(step, time_ms)
    return NOT_SHOWN if shown == NOT_SHOWN else duration(None if shown is None else float(shown))


def unmeasured(capacity: Capacity) -> str:
    """Return how to measure the server's machine; "" if a step has figures of it, or if there is no such server."""
    known = any(step.resources or step.averages for step in capacity.steps)
    if known or capacity.terms.embedded:
        return ""
    return (
        "Processor, disks and memory of the server were not measured: a new search with --set 'probes.host={}' on its"
        " machine measures them, and with 'probes.postfix={}' the send queue. From another machine, the key monitors"
        " does."
    )


def limits(capacity: Capacity) -> str:
    """Return the limits of the scores in words; "" without any. A limit may be of `max` or of `below`."""
    terms = capacity.terms
    each = [
        f"{name} {in_full(limit)}"
        for name, limit in (("score", terms.score_limit_ms), ("response score", terms.response_score_limit_ms))
        if limit is not None
    ]
    return f"Limits: {', '.join(each)}; all other criteria of the scenario decide, too." if each else ""


def in_full(limit_ms: float) -> str:
    """Return a limit with all digits that a scenario may state."""
    return f"{limit_ms:,.10g} ms"
