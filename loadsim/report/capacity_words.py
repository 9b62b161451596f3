"""The answer of a capacity search in sentences, for its text and its report."""

from __future__ import annotations

from collections.abc import Callable

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_confirmation import Level
from loadsim.analysis.capacity_prediction import Prediction
from loadsim.analysis.capacity_search import (
    EVIDENCE,
    EVIDENCE_OF_MIXED,
    FAILED,
    GENERATOR,
    PASSED,
    UNDECIDED,
    VOID,
    Result,
    ends_so_far,
)
from loadsim.errors import printable
from loadsim.report.resources import resource_lines
from loadsim.report.size_text import full_words
from loadsim.timinglog.header_words import length

RESULTS = {"pass": "passed", "fail": "failed", "undecided": "undecided", "generator": "generator", "void": "void"}

MOST_REASONS = 3
"""The most reasons of a step that are shown; its run directory has all."""


def verdict(capacity: Capacity) -> str:
    """Return the capacity, or what ended the search without one."""
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    low = None if found.low is None else f"{found.low:,} users"
    if found.stopped_by == "noise":
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
    first = verdict(capacity)
    if found.low is None or found.high is None or found.stopped_by == "noise":
        return f"{first[:1].upper()}{first[1:]}"
    if not capacity.certain:
        return f"About {first}: too few runs agree to state an interval"
    return f"{first}, interval {found.low:,} to {found.high:,}: {found.high:,} users miss the criteria"


def facts(capacity: Capacity, reason: Callable[[str], str] = str) -> list[tuple[str, str]]:
    """Return names and texts: the interval, what the users are, and what the next larger number missed.

    `reason` returns the text for a reason of a verdict.
    """
    found, terms = capacity.found, capacity.terms
    assert found is not None
    lines = []
    if found.low is not None or found.high is not None or capacity.certain:
        lines.append(("Interval", interval(capacity)))
    if found.low is not None:
        pace = f", {terms.compression:g} times as fast as their profile's" if terms.compression != 1 else ""
        lines.append(("Users", f"each with a day of {length(terms.day_s)}{pace}, by the plan of run.seed {terms.seed}"))
        lines.append(("Throughput", f"{capacity.tasks_per_s or 0:,.1f} tasks/s"))
        lines.append(("8-hour equivalent", f"{capacity.load_equivalent_users or 0:,} users with a day of 8 h"))
    if found.high is not None:
        lines.append((f"Missed with {found.high:,} users", missed(capacity, reason)))
    if capacity.predicted and (text := prediction(capacity.predicted)):
        lines.append(
            (f"Predicted from {capacity.predicted.measured_users:,} users", f"{text}; found: {verdict(capacity)}")
        )
    if step := capacity.nearest_to_full:
        for line in resource_lines(step.resources):
            name, _, resources = line.partition(": ")
            lines.append((f"{name}, with {step.users:,} users", resources))
    if measured := [level for level in capacity.levels if level.runs]:
        lines.append(("Confirmation", "; ".join(map(_level, measured))))
    return lines


def prediction(predicted: Prediction) -> str:
    """Return the number that a run predicts; "" if it gives none."""
    users = predicted.users
    if users is None:
        return ""
    number = full_words(users, predicted.at_least)
    doubts = f"; doubts: {printable('; '.join(predicted.doubts))}" if predicted.doubts else ""
    return f"{printable(str(predicted.resource))} full with {number}, by loadsim size of {predicted.run}{doubts}"


def _level(level: Level) -> str:
    """Return a level with its result, such as "80 % (1,000 users) passed"."""
    as_expected, not_so = ("passed", "did not pass") if level.percent <= 100 else ("was worse", "was no worse")
    found = {
        PASSED: as_expected,
        FAILED: not_so,
        GENERATOR: "could not be generated",
        UNDECIDED: "was undecided",
        None: "is to be repeated",
    }
    return f"{level.percent} % ({level.users:,} users) {found[level.result]}"


def _unconfirmed(capacity: Capacity, level: Level) -> str:
    """Return what it means that a level did not confirm the capacity."""
    failed_users = capacity.found.high if capacity.found else None
    if level.users is None:
        return f"{level.percent} % are more than the {capacity.terms.settings.most:,} users that this search allows."
    users = f"{level.users:,} users"
    if why := next((one.why for one in capacity.refused_levels if one.percent == level.percent), ""):
        return f"{level.percent} % of the capacity, {users}, cannot be measured: {printable(why)}"
    if level.result == GENERATOR:
        return f"the load generator was too slow for {users}. Find out what else its machine did, and search again."
    if level.result != FAILED:
        return f"the runs with {users} do not decide: {_why_undecided(level)}."
    if level.percent <= 100:
        return (
            f"{users} must pass after the search, and did not. The server, its data or its machine changed: find out"
            " what, and search again."
        )
    if failed_users is not None and level.users >= failed_users:
        return (
            f"{users} must fail after the search, as {failed_users:,} users did in it, and passed. The server, its data"
            " or its machine changed: find out what, and search again."
        )
    return f"{users} are no worse than the capacity, so it may be higher. Search again with longer windows."


def _why_undecided(level: Level) -> str:
    """Return the reason of the last run that has one. A pass has none, and is undecided only above the capacity."""
    reasons = [step.reasons[0] for step in level.runs if step.reasons]
    return printable(reasons[-1]) if reasons else "they passed, and have no score to compare with that of the capacity"


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
    if not capacity.certain:
        mixed = f"{EVIDENCE_OF_MIXED} of {EVIDENCE_OF_MIXED + 1}"
        stated = "not stated" if capacity.interval is None else "stated at one end only"
        return f"{stated}: {seen}; evidence are {EVIDENCE} equal results of each without another, or {mixed}"
    if found.high is None:
        return f"{seen}; its upper end is not known"
    if found.low is None:
        return f"{seen}; no number passed"
    share = (found.high - found.low) / (found.high + found.low)
    return f"{seen} (+-{share:.1%} of the middle), with a confidence of at least 90 % if runs vary by at most 10 %"


def _times(capacity: Capacity, users: int, result: Result) -> str:
    """Return how often a number had a result, such as "passed 8 of 9 times"."""
    judged = [step.result for step in capacity.steps if step.users == users and step.result != VOID]
    equal = judged.count(result)
    often = f"{equal} times" if equal == len(judged) else f"{equal} of {len(judged)} times"
    return f"{RESULTS[result]} {often}"


def missed(capacity: Capacity, reason: Callable[[str], str]) -> str:
    """Return the criteria that the last failure of the smallest failed number missed."""
    found = capacity.found
    failed = [step for step in capacity.steps if found and step.users == found.high and step.result == FAILED]
    reasons = failed[-1].reasons if failed else ()
    more = len(reasons) - MOST_REASONS
    shown = [reason(printable(each)) for each in reasons[:MOST_REASONS]]
    return "; ".join([*shown, *([f"{more} more"] if more > 0 else [])])


def doubts(capacity: Capacity) -> list[str]:
    """Return what limits the meaning of the answer."""
    lines = []
    if capacity.found is not None and capacity.found.stopped_by == "noise":
        lines.append("Results contradict each other, or do not decide: longer windows give a shorter interval.")
    if (found := capacity.found) and (found.low or found.high) and not capacity.certain:
        lines.append("Chance may have decided: too few results agree at the ends of the search.")
    if refused := [one for one in capacity.refused if one.percent is None]:
        numbers = ", ".join(f"{one.users:,}" for one in refused)
        with_last = f" (this is of {refused[-1].users:,})" if len(refused) > 1 else ""
        lines.append(f"{numbers} users cannot be measured: {printable(refused[-1].why)}{with_last}")
    if capacity.confirmed is False:
        lines += [
            f"Not confirmed: {_unconfirmed(capacity, level)}"
            for level in capacity.levels
            if level.result not in (PASSED, None) or level.percent in {one.percent for one in capacity.refused_levels}
        ]
    if capacity.terms.embedded:
        lines.append("The embedded server shares this machine: this measures no server.")
    return lines


def unmeasured(capacity: Capacity) -> str:
    """Return how to measure the server's machine; "" if a step has figures of it, or if there is no such server.

    Steps of older versions may have had figures that they did not keep.
    """
    known = any(step.resources or step.averages or step.validity is None for step in capacity.steps)
    if known or capacity.terms.embedded:
        return ""
    return (
        "Processor, disks and memory of the server were not measured: a new search with --set 'probes.host={}' on its"
        " machine measures them, and with 'probes.postfix={}' the send queue. From another machine, the key monitors"
        " does."
    )


def what_next(capacity: Capacity) -> str:
    """Return what to do with the answer."""
    found, settings = capacity.found, capacity.terms.settings
    assert found is not None
    if capacity.terms.embedded:
        return "search on a mail server of your own (loadsim new)."
    if capacity.confirmed is False:
        return "do not quote this number: it was not confirmed. The doubts say why."
    if found.stopped_by == "generator":
        return "take --pin, more cores, or another machine for the load: the server may take more."
    if found.stopped_by == "refused":
        return (
            "the doubts say what the other numbers need. Resume this search on a machine that has it, or search again"
            " with a scenario that has it."
        )
    if found.stopped_by == "limit":
        option = "larger --steps than" if settings.steps else "--most above"
        return f"create more accounts, and search again with {option} {settings.most:,}."
    if found.stopped_by == "noise":
        return "search again with longer windows, or accept the wider interval."
    if found.low is None:
        return "read the reports of the steps: even the smallest number misses criteria. Or search from fewer users."
    if not capacity.certain:
        return "resume this search without --quick before you quote this number."
    return "quote users, interval, day and scenario together. To raise the capacity, improve what the failures missed."


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
