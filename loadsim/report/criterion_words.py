"""Criteria in words, and the missed ones with the names of their figures in `score.json`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.analysis.criteria import Result
from loadsim.report.digits import duration
from loadsim.report.figure_words import named, of_task, task_of

_WORDS = {"min": "at least", "max": "at most", "below": "below"}

LEFT = ("undelivered", "under_way_at_end", "unfinished", "skipped")
"""The beginnings of names of figures that count what was left at the end of a run."""

_THOUSANDS = re.compile(r"(?<![\d.])\d{4,}(?!\d*e)")
"""Whole parts of numbers from 1000 on."""

NOT_SHOWN = "not shown: the run is invalid"
"""Stands for a time of an invalid run."""

NEAR = 0.01
"""A figure this near to a limit, as a share of it, keeps all digits: rounding might hide that it misses."""


def missed_in_words(results: Sequence[Result]) -> list[str]:
    """Return a line for each missed criterion, and one for all tasks that miss the same criterion of each task.

    The name of each figure follows in brackets, as a scenario and `score.json` have it.
    """
    missed = [result for result in results if not result.passed]
    lines = []
    for one in missed:
        if not one.each:
            reason = f" ({one.reason})" if one.reason else ""
            name = _with_name(named(one.name), one.name)
            lines.append(f"{name}: {found_words(one)}{reason}, {wanted(one)} wanted")
    for last, of_tasks in _of_each_task(missed):
        each = ", ".join(f"{task_of(one.name)} {found_words(one)}" for one in of_tasks)
        lines.append(f"{of_task(last)} of each task: {each}; {_with_name(f'{wanted(of_tasks[0])} wanted', last)}")
    return lines


def _with_name(words: str, name: str) -> str:
    return f"{words} ({name})" if words != name else words


def judged(result: Result, ended_early: bool) -> bool:
    """Return False if an early end alone may be the reason of a miss.

    Such a figure was not measured, is infinite, or counts what was left or was not reached at the end.
    """
    figure = result.figure
    if not ended_early or result.passed:
        return True
    if figure is None or math.isinf(figure) or figure < result.limits.get("min", -math.inf):
        return False
    return not result.name.rpartition(".")[2].startswith(LEFT)


@dataclass(frozen=True, slots=True)
class CriterionInWords:
    """A criterion, or one of each task with the task that comes nearest to its limit, or misses it most.

    `judged` is False if all misses may come from an early end of the run, and for a criterion that an invalid run does
    not miss.
    """

    passed: bool
    words: str
    found: str
    wanted: str
    judged: bool = True


def criteria_in_words(
    results: Sequence[Result], ended_early: bool = False, valid: bool = True
) -> list[CriterionInWords]:
    """Return each criterion, and one line for all tasks that have the same criterion of each task.

    A run that is not `valid` meets no criterion; one that it misses is a reason. A time that it does not miss is not
    shown.
    """
    shown = []
    for one in results:
        if one.each:
            continue
        known = (valid or not one.passed) and judged(one, ended_early)
        found = found_words(one, valid)
        shown.append(CriterionInWords(one.passed and valid, named(one.name), found, wanted(one), known))
    for last, of_tasks in _of_each_task(results):
        worst = max(of_tasks, key=_distance)
        misses = [one for one in of_tasks if not one.passed]
        missed = len(misses)
        words = f"{of_task(last)} of each of {len(of_tasks)} tasks"
        found = found_words(worst, valid)
        if found != NOT_SHOWN and any(one.figure != worst.figure for one in of_tasks):
            found += f" ({task_of(worst.name)}, the worst)"
        found += f"; {missed} missed" if missed > 1 else ""
        known = any(judged(one, ended_early) for one in misses) if misses else valid
        shown.append(CriterionInWords(not missed and valid, words, found, wanted(worst), known))
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


def found_words(result: Result, valid: bool = True) -> str:
    """Return the figure of a criterion, not rounded if rounding would change the result.

    Of a run that is not `valid`, a time is not to be quoted: it is shown only if the run misses it.
    """
    figure = result.figure
    if not valid and result.passed and _is_time(result.name):
        return NOT_SHOWN
    if figure is None or not _is_time(result.name):
        return _separated(result.found)
    near = any(abs(figure - limit) <= NEAR * abs(limit) for limit in result.limits.values() if math.isfinite(figure))
    return _separated(result.found) if near else duration(figure)


def wanted(result: Result) -> str:
    """Return the limits of a criterion in words."""
    if not _is_time(result.name):
        return _separated(result.wanted)
    return " and ".join(f"{_WORDS[limit]} {_limit(value)}" for limit, value in result.limits.items())


def _limit(time_ms: float) -> str:
    """Return a limit with all its digits: in seconds from 10 s on, if these are whole."""
    whole_s = time_ms >= 10_000 and time_ms % 1000 == 0
    return f"{time_ms / 1000:,.15g} s" if whole_s else f"{time_ms:,.15g} ms"


def _separated(text: str) -> str:
    """Return a text whose numbers have separators of thousands."""
    return _THOUSANDS.sub(lambda number: f"{int(number[0]):,}", text)


def _is_time(name: str) -> bool:
    return name.endswith("_ms")
