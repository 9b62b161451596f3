"""Missed criteria in words, with the names of their figures in `score.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.criteria import Result
from loadsim.report.digits import duration

NAMES: Mapping[str, str] = {
    "score_ms": "score",
    "response_score_ms": "score from due times",
    "failed_share": "failed tasks",
    "done_share": "tasks that succeeded",
    "down_share": "users' time without a session",
    "logon_failed_share": "failed log-ons",
    "delivery.undelivered_at_end": "messages not delivered by the end",
    "delivery.duplicates": "messages delivered twice",
    "delivery.p95_ms": "95th percentile of delivery times",
    "p50_ms": "median",
    "p95_ms": "95th percentile",
    "p99_ms": "99th percentile",
    "response_p95_ms": "95th percentile from due times",
}
"""Words for the default criteria, and for other frequent ones."""

_WORDS = {"min": "at least", "max": "at most", "below": "below"}

NEAR = 0.01
"""A figure this near to a limit, as a share of it, keeps all digits: rounding might hide that it misses."""


def missed_in_words(results: Sequence[Result]) -> list[str]:
    """Return a line for each missed criterion, and one for all tasks that miss the same criterion of each task."""
    missed = [result for result in results if not result.passed]
    lines = [f"{_named(one.name)}: {_found(one)}, {_wanted(one)} wanted" for one in missed if not one.each]
    for last, of_tasks in _of_each_task(missed):
        each = ", ".join(f"{_task(one.name)} {_found(one)}" for one in of_tasks)
        lines.append(f"{NAMES.get(last, last)} of each task: {each}; {_wanted(of_tasks[0])} wanted ({last})")
    return lines


@dataclass(frozen=True, slots=True)
class CriterionInWords:
    """A criterion, or one of each task with the task that comes nearest to its limit, or misses it most."""

    passed: bool
    words: str
    found: str
    wanted: str


def criteria_in_words(results: Sequence[Result]) -> list[CriterionInWords]:
    """Return each criterion, and one line for all tasks that have the same criterion of each task."""
    shown = [
        CriterionInWords(one.passed, _named(one.name), _found(one), _wanted(one)) for one in results if not one.each
    ]
    of_each: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        if one.each:
            of_each.setdefault((one.name.rpartition(".")[2], one.wanted), []).append(one)
    for (last, _), of_tasks in of_each.items():
        worst = max(of_tasks, key=_distance)
        missed = sum(not one.passed for one in of_tasks)
        words = f"{NAMES.get(last, last)} of each of {len(of_tasks)} tasks ({last})"
        found = _found(worst)
        if any(one.figure != worst.figure for one in of_tasks):
            found += f" ({_task(worst.name)}, the worst)"
        found += f"; {missed} missed" if missed > 1 else ""
        shown.append(CriterionInWords(not missed, words, found, _wanted(worst)))
    return shown


def _of_each_task(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return the last part of the name of each criterion of each task, with the tasks that have the same limit."""
    found: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        if one.each:
            found.setdefault((one.name.rpartition(".")[2], one.wanted), []).append(one)
    return [(last, of_tasks) for (last, _), of_tasks in found.items()]


def _distance(result: Result) -> tuple[bool, bool, float]:
    """Return a key that is larger for a figure that is worse: first those that miss, and unmeasured ones first."""
    figure = result.figure
    if figure is None:
        return (not result.passed, True, 0.0)
    return (not result.passed, False, -figure if "min" in result.limits else figure)


def _task(name: str) -> str:
    return name.rpartition(".")[0].removeprefix("tasks.")


def _named(name: str) -> str:
    """Return a criterion in words, with its name in brackets; its name alone if there are no words for it."""
    if name in NAMES:
        return f"{NAMES[name]} ({name})"
    place, _, last = name.rpartition(".")
    return f"{NAMES[last]} of {_task(name)} ({name})" if place.startswith("tasks.") and last in NAMES else name


def _found(result: Result) -> str:
    figure = result.figure
    if figure is None or not _is_time(result.name):
        return result.found
    near = any(abs(figure - limit) <= NEAR * abs(limit) for limit in result.limits.values() if math.isfinite(figure))
    return result.found if near else duration(figure)


def _wanted(result: Result) -> str:
    if not _is_time(result.name):
        return result.wanted
    return " and ".join(f"{_WORDS[limit]} {_limit(value)}" for limit, value in result.limits.items())


def _limit(time_ms: float) -> str:
    """Return a limit with all its digits: in seconds from 10 s on, if these are whole."""
    whole_s = time_ms >= 10_000 and time_ms % 1000 == 0
    return f"{time_ms / 1000:,.15g} s" if whole_s else f"{time_ms:,.15g} ms"


def _is_time(name: str) -> bool:
    return name.endswith("_ms")
