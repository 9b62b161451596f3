"""A run's failures by kind: how many, when the first one occurred, and the server's response to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.records import OUTCOMES, WITH_KIND
from loadsim.model.terms import Window
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

Kind = tuple[str, str, str]
"""Task, outcome, and error kind."""


@dataclass(frozen=True, slots=True)
class Failures:
    """One kind of failure: how often it occurred in the run (`times`), and among tasks due in the window (`in_window`).

    `first_s` is the time of the first one from the common start; None if it came earlier, or is unknown. `line` is the
    server's response to that one.
    """

    task: str
    outcome: str
    kind: str
    times: int
    in_window: int
    first_s: float | None
    line: str


def failures(run: RecordedRun) -> list[Failures]:
    """Return each kind of failure, the most frequent first. Failures between tasks appear only in the events."""
    counted = _of_log(run.log, run.figures.window_s)
    reported = _reported(run.events)
    first: dict[Kind, Mapping[str, Any]] = {}
    for event in run.events:
        if event.get("event") == "failure":
            first.setdefault(_kind(event), event)
    kinds = []
    for kind in sorted({*counted, *reported}):
        times, in_the_window, first_s = counted.get(kind, (reported[kind], 0, None))
        event = first.get(kind, {})
        at_s = event.get("at_s") if first_s is None else first_s
        kinds.append(Failures(*kind, times, in_the_window, at_s, str(event.get("line", ""))))
    return sorted(kinds, key=lambda one: -one.times)


def _of_log(log: TimingLog, window_s: Window) -> dict[Kind, tuple[int, int, float | None]]:
    """Return, by kind, the number of failures in the run and in the window, and when the first one ended (s)."""
    times, inside = Counter[Kind](), Counter[Kind]()
    first_us: dict[Kind, int] = {}
    failures = [OUTCOME[name] for name in WITH_KIND]
    for tasks in log.pieces("tasks"):
        failed = tasks.kept(np.isin(tasks["outcome"], failures))
        numbers = (failed[name].tolist() for name in ("task", "outcome", "error", "ended_us"))
        for task, outcome, error, ended_us, is_inside in zip(
            *numbers, in_window(failed["scheduled_us"], window_s).tolist(), strict=True
        ):
            kind = log.strings[task], OUTCOMES[outcome], log.strings[error]
            times[kind] += 1
            inside[kind] += is_inside
            if ended_us != NEVER:
                first_us[kind] = min(ended_us, first_us.get(kind, ended_us))
    first_s = {kind: round(at_us / 1e6, 3) for kind, at_us in first_us.items()}
    return {kind: (often, inside[kind], first_s.get(kind)) for kind, often in times.items()}


def _reported(events: Iterable[Mapping[str, Any]]) -> Counter[Kind]:
    """Return the number of each kind by the engines' final events; 1 if the engine died before it sent one."""
    reported: Counter[Kind] = Counter()
    for event in events:
        if event.get("event") == "failures":
            reported[_kind(event)] += int(event.get("times", 0))
    for event in events:
        if event.get("event") == "failure" and not reported[_kind(event)]:
            reported[_kind(event)] = 1
    return reported


def _kind(event: Mapping[str, Any]) -> Kind:
    return str(event.get("task", "")), str(event.get("outcome", "")), str(event.get("kind", ""))
