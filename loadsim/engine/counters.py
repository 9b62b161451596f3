"""Counts of an engine's tasks and failures, for its snapshots."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from loadsim.engine.health import Lateness
from loadsim.engine.latency_histogram import LatencyHistogram
from loadsim.errors import TaskFailed
from loadsim.model.records import GENERATOR
from loadsim.timinglog.writer import OTHER
from loadsim.users.host import Late_s

MOST_KINDS, LONGEST_KIND = 100, 64
"""An engine counts at most this many kinds of failure, and cuts their names to this many characters: a server may
choose the names. Further kinds are `OTHER`."""


class Counters:
    """Tasks by name and outcome, service times and lateness; failures by task and kind."""

    def __init__(self) -> None:
        self.lateness = Lateness()
        self._tasks: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._service_times: defaultdict[str, LatencyHistogram] = defaultdict(LatencyHistogram)
        self._failures: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._kinds: set[str] = set()

    def task(self, task: str, outcome: str, service_ns: int, late_s: Late_s) -> None:
        """Count a task that has ended or was skipped; `service_ns` counts only if it is ok."""
        self._tasks[task][outcome] += 1
        if outcome == "ok":
            self._service_times[task].add(service_ns)
        self.lateness.add(*late_s)

    def failure(self, task: str, failure: TaskFailed) -> str:
        kind = failure.kind[:LONGEST_KIND]
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS and failure.outcome != GENERATOR:
            kind = OTHER
        self._kinds.add(kind)
        self._failures[task][kind] += 1
        return kind

    def figures(self) -> dict[str, Any]:
        """Return the counts by their keys in a `LiveSnapshot`."""
        return {
            "tasks": {task: dict(outcomes) for task, outcomes in self._tasks.items()},
            "service_times": {task: times.counts for task, times in self._service_times.items()},
            "service_s": {task: times.total_s for task, times in self._service_times.items()},
            "failures": {task: dict(kinds) for task, kinds in self._failures.items()},
            "generator_late_most_s": self.lateness.generator_most_s,
            "late_busy_s": self.lateness.busy_s,
            "late_down_s": self.lateness.down_s,
            "late_generator_s": self.lateness.generator_s,
        }
