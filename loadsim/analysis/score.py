"""The score: the weighted average of percentiles of each task's service time, over the merged records of a window.

Percentiles are nearest rank over all records, so each is a measured time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import DriverRecords, Growing, Part, TaskRecords, gather
from loadsim.analysis.json_values import INLINE
from loadsim.analysis.nearest_rank import percentile
from loadsim.model.records import FAILURES, GENERATOR, PROCESS_INBOX
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOME

FEW_HITS = 300
"""A scored task with fewer hits makes the score provisional: fewer than 15 are slower than its 95th percentile."""


def standard_deviation(samples: NDArray[Any]) -> float:
    """Return the standard deviation (divisor n - 1: LsLog's is not published); 0 for a single sample."""
    if len(samples) < 2:
        return 0.0
    mean = float(np.mean(samples))
    begins = range(0, len(samples), _AT_ONCE)
    squares = math.fsum(float(np.sum((samples[at : at + _AT_ONCE] - mean) ** 2)) for at in begins)
    return math.sqrt(squares / (len(samples) - 1))


_AT_ONCE = 1 << 16
"""Chunk size of the computation: temporaries of all samples at once would take several times their memory."""


PERCENTS: Mapping[str, Fraction] = {
    "p50_ms": Fraction(50),
    "p90_ms": Fraction(90),
    "p95_ms": Fraction(95),
    "p99_ms": Fraction(99),
    "p99_9_ms": Fraction(999, 10),
    "max_ms": Fraction(100),
}
"""The percentiles of `Times`, by name; the largest sample is the last of them."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The percentiles of `Times` only."""

    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p99_9_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class Times:
    """Statistics of times in milliseconds; all None without samples.

    With infinite samples, percentiles may be infinite, the mean is, and the deviation is None.
    """

    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p99_9_ms: float | None = None
    max_ms: float | None = None
    mean_ms: float | None = None
    stddev_ms: float | None = None

    @classmethod
    def of_sorted(cls, ordered_us: NDArray[Any], infinite: int = 0) -> Times:
        """Return the statistics of sorted times and of `infinite` more that are infinite."""
        if not len(ordered_us) + infinite:
            return cls()
        return cls(
            **{name: percentile(ordered_us, percent, infinite) / 1000 for name, percent in PERCENTS.items()},
            mean_ms=math.inf if infinite else float(np.mean(ordered_us)) / 1000,
            stddev_ms=None if infinite else standard_deviation(ordered_us) / 1000,
        )


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """One task of one driver. A weight of 0 means not scored; `failures` counts by outcome and kind of error.

    `service` has the times of hits (outcome ok) from their start. `response` has times from the due time of all
    planned tasks; those without a hit count as infinite. Both scores consist of the 95th percentiles.
    """

    task: str
    weight: float
    counts: Mapping[str, int]
    service: Times
    response: Times
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def hits(self) -> int:
        return self.counts["ok"]

    @property
    def failed(self) -> int:
        return sum(self.counts[outcome] for outcome in FAILURES)

    @property
    def done(self) -> int:
        return self.hits + self.failed

    @property
    def planned(self) -> int:
        """All records: tasks done, still running at the end, or never started."""
        return sum(self.counts.values())

    @property
    def attempted(self) -> int:
        return self.planned - self.counts["skipped"]

    @property
    def attempted_share(self) -> float | None:
        return self.attempted / self.planned if self.planned else None

    @property
    def done_share(self) -> float | None:
        return self.hits / self.planned if self.planned else None

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.planned if self.planned else None

    @property
    def windowed(self) -> bool:
        return self.task not in WITHOUT_WINDOW


@dataclass(frozen=True, slots=True)
class ProtocolStatistics:
    """The statistics of one driver: tasks by descending weight, and the score, or None without hits.

    `response_score_ms` is the average of response times over all scored tasks that were due. It is infinite if a task
    failed too often. `users` counts users with records, in each run. `inbox` has the processings of an Inbox with
    unread mail; None without any.
    """

    protocol: str
    users: int
    tasks: tuple[TaskStatistics, ...]
    score_ms: float | None
    response_score_ms: float | None = None
    inbox: TaskStatistics | None = None

    @property
    def scored(self) -> tuple[str, ...]:
        return tuple(task.task for task in self.tasks if task.weight > 0 and task.hits)

    @property
    def few_hits(self) -> tuple[str, ...]:
        """The scored tasks that make the score provisional."""
        return tuple(task.task for task in self.tasks if task.weight > 0 and 0 < task.hits < FEW_HITS)


@dataclass(frozen=True, slots=True)
class CommandFigures:
    """One protocol command; `took` is of the hits."""

    command: str
    hits: float
    failed: float
    took: Times = field(metadata=INLINE)


def weighted_average(figures: Iterable[tuple[float, float | None]]) -> float | None:
    """Average the figures of pairs with a weight above 0 and a figure; None without such a pair."""
    covered = [(weight, figure) for weight, figure in figures if weight > 0 and figure is not None]
    if not covered:
        return None
    return math.fsum(weight * figure for weight, figure in covered) / math.fsum(weight for weight, _ in covered)


def weighted_score(tasks: Iterable[TaskStatistics]) -> float | None:
    """Return the weighted average of percentiles (ms) over the tasks with a weight and hits; lower is better."""
    return weighted_average((task.weight, task.service.p95_ms) for task in tasks)


def score_parts(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: Window,
    fields: Sequence[str] = (),
) -> dict[Part, tuple[ProtocolStatistics, ...]]:
    """Return the statistics of each part of the log, by the values of fields (see `aggregate.gather`)."""
    parts = gather(log, window_s, fields)
    return {part: statistics_of(modules, weights) for part, modules in parts.items()}


def statistics_of(modules: Mapping[str, DriverRecords], weights: Mapping[str, float]) -> tuple[ProtocolStatistics, ...]:
    """Return the statistics of the records of each driver, by name. Times of two drivers are never mixed."""
    protocols = []
    for protocol, module in sorted(modules.items()):
        tasks = [_task_statistics(task, records, float(weights.get(task, 0))) for task, records in module.tasks.items()]
        tasks.sort(key=lambda task: (-task.weight, task.task))
        protocols.append(
            ProtocolStatistics(
                protocol,
                users=module.users,
                tasks=tuple(tasks),
                score_ms=weighted_score(tasks),
                response_score_ms=weighted_average((task.weight, task.response.p95_ms) for task in tasks),
                inbox=None if module.inbox is None else _task_statistics(PROCESS_INBOX, module.inbox, 0),
            )
        )
    return tuple(protocols)


def _task_statistics(task: str, records: TaskRecords, weight: float) -> TaskStatistics:
    without_hit = sum(records.counts.values()) - records.counts["ok"]
    return TaskStatistics(
        task=task,
        weight=weight,
        counts=records.counts,
        service=Times.of_sorted(records.took_us),
        response=Times.of_sorted(records.waited_us, without_hit),
        failures=records.failures,
    )


def command_statistics(log: TimingLog, window_s: Window) -> Sequence[CommandFigures]:
    """Return the figures of each protocol command that started in the window, by name."""
    took_us: defaultdict[int, Growing] = defaultdict(lambda: Growing(np.uint32))
    failed = Counter[int]()
    for records in log.pieces("commands"):
        inside = in_window(records["started_us"], window_s)
        number, outcome = records["command"][inside], records["outcome"][inside]
        hit, own = outcome == OUTCOME["ok"], outcome == OUTCOME[GENERATOR]
        took = records["took_us"][inside]
        for command in np.flatnonzero(np.bincount(number)).tolist():
            of_command = number == command
            hits = took[hit & of_command]
            took_us[command].add(hits)
            failed[command] += int(np.count_nonzero(of_command & ~own)) - len(hits)
    statistics = []
    for command, gathered in took_us.items():
        times_us = gathered.taken()
        times_us.sort()
        statistics.append(
            CommandFigures(log.strings[command], len(times_us), failed[command], Times.of_sorted(times_us))
        )
    return sorted(statistics, key=lambda one: one.command)
