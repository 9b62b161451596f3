"""Failures of a run by kind: count, first instant, and the first line from the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.records import OUTCOMES, WITH_KIND
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

Kind = tuple[str, str, str]
"""Task, outcome, and what failed by its short stable name."""

_NOT_YET = int(np.iinfo(np.int64).max)
"""The instant of what never came, later than all others."""


@dataclass(frozen=True, slots=True)
class Failures:
    """One kind of failure. `times` is over the whole run, `in_window` of tasks that were due in the window.

    `first_s` is the instant of the first, from the common start (None before it, or where that is not known); `line` is
    what the server said to it.
    """

    task: str
    outcome: str
    kind: str
    times: int
    in_window: int
    first_s: float | None
    line: str


def failures(run: RecordedRun) -> list[Failures]:
    """Every kind of failure, the most frequent first. What broke between tasks is known from the events only."""
    counted = _of_log(run.log, run.window_s)
    told = _told(run.events)
    first: dict[Kind, Mapping[str, Any]] = {}
    for event in run.events:
        if event.get("event") == "failure":
            first.setdefault(_kind(event), event)
    found = []
    for kind in sorted({*counted, *told}):
        times, in_the_window, first_s = counted.get(kind, (told[kind], 0, None))
        event = first.get(kind, {})
        said_s = event.get("at_s") if first_s is None else first_s
        found.append(Failures(*kind, times, in_the_window, said_s, str(event.get("line", ""))))
    return sorted(found, key=lambda one: -one.times)


def _of_log(log: TimingLog, window_s: tuple[float, float]) -> dict[Kind, tuple[int, int, float | None]]:
    """By kind: how often, how often in the window, and the end of the first (s)."""
    times, inside = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
    first_us: dict[tuple[int, ...], int] = {}
    for tasks in log.pieces("tasks"):
        failed = tasks.kept(np.isin(tasks["outcome"], [OUTCOME[name] for name in WITH_KIND])).records()
        if not len(failed):
            continue
        kinds, number = np.unique(failed[["task", "outcome", "error"]], return_inverse=True)
        found = [tuple(kind) for kind in kinds.tolist()]
        inside_window = in_window(failed["scheduled_us"], window_s)
        ended_us = np.where(failed["ended_us"] == NEVER, _NOT_YET, failed["ended_us"])
        least_us = np.full(len(found), _NOT_YET)
        np.minimum.at(least_us, number, ended_us)
        times.update(dict(zip(found, np.bincount(number).tolist(), strict=True)))
        inside.update(dict(zip(found, np.bincount(number, inside_window).astype(int).tolist(), strict=True)))
        for kind, at_us in zip(found, least_us.tolist(), strict=True):
            first_us[kind] = min(at_us, first_us.get(kind, _NOT_YET))
    return {
        (log.strings[kind[0]], OUTCOMES[kind[1]], log.strings[kind[2]]): (
            often,
            inside[kind],
            None if first_us[kind] == _NOT_YET else round(first_us[kind] / 1e6, 3),
        )
        for kind, often in times.items()
    }


def _told(events: Iterable[Mapping[str, Any]]) -> Counter[Kind]:
    """Return the count of each kind from the engines' final events; 1 if an engine did not survive to send it."""
    told: Counter[Kind] = Counter()
    for event in events:
        if event.get("event") == "failures":
            told[_kind(event)] += int(event.get("times", 0))
    for event in events:
        if event.get("event") == "failure" and not told[_kind(event)]:
            told[_kind(event)] = 1
    return told


def _kind(event: Mapping[str, Any]) -> Kind:
    return str(event.get("task", "")), str(event.get("outcome", "")), str(event.get("kind", ""))
