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

from loadsim.analysis.aggregate import DriverRecords, Growing, TaskRecords, windowed_hits
from loadsim.documents.json_values import INLINE, RESPONSE
from loadsim.model.records import FAILURES, GENERATOR
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.statistics.intervals import Bounds, NoInterval, intervals
from loadsim.statistics.nearest_rank import percentile
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

    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p99_9_ms: float | None = None
    max_ms: float | None = None

    @classmethod
    def of_sorted(cls, ordered_us: NDArray[Any], infinite: int = 0) -> Percentiles:
        return cls(**_percentiles(ordered_us, infinite))


@dataclass(frozen=True, slots=True)
class Times(Percentiles):
    """Statistics of times in milliseconds; all None without samples.

    With infinite samples, percentiles may be infinite, the mean is, and the deviation is None.
    """

    mean_ms: float | None = None
    stddev_ms: float | None = None

    @classmethod
    def of_sorted(cls, ordered_us: NDArray[Any], infinite: int = 0) -> Times:
        if not len(ordered_us) + infinite:
            return cls()
        return cls(
            **_percentiles(ordered_us, infinite),
            mean_ms=math.inf if infinite else float(np.mean(ordered_us)) / 1000,
            stddev_ms=None if infinite else standard_deviation(ordered_us) / 1000,
        )


def _percentiles(ordered_us: NDArray[Any], infinite: int) -> dict[str, float]:
    if not len(ordered_us) + infinite:
        return {}
    return {name: percentile(ordered_us, percent, infinite) / 1000 for name, percent in PERCENTS.items()}


@dataclass(frozen=True, slots=True)
class FailureCount:
    outcome: str
    kind: str
    times: int
    """Outcome, kind as in `events.jsonl`, count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """One task of one driver in the window. Both scores consist of the 95th percentiles."""

    task: str
    weight: float
    """[The task](tasks.md); its weight, 0 if not scored."""
    hits: int
    failed: int
    """Tasks due in the window with outcome `ok`; those `refused`, `lost` or `timeout`."""
    service: Times = field(metadata=INLINE)
    """Service times of the hits."""
    interval_ms: Bounds | None = None
    no_interval: NoInterval | None = None
    """The 95 % interval of `p95_ms` within this run; else [why there is
    none](../explanation/measurement.md#intervals)."""
    response: Percentiles = field(metadata=RESPONSE)
    """Response times, from due time, of all that were due; one that failed or was not done is infinite."""
    planned: int
    attempted: int
    attempted_share: float | None
    """All due; those without `skipped`; their share."""
    done: int
    done_share: float | None
    failed_share: float | None
    """Hits and failed; `hits` and `failed`, divided by `planned`."""
    done_per_s: float | None
    """`hits` per second of the window; `null` for LOGON and LOGOFF."""
    refused: int
    lost: int
    timeout: int
    unfinished: int
    skipped: int
    generator_failed: int
    """Counts by [outcome](tasks.md#outcomes)."""
    failures: Sequence[FailureCount]
    """Kinds of failure, the most frequent first."""

    @classmethod
    def of(
        cls, task: str, weight: float, records: TaskRecords, window_s: Window, interval: Bounds | NoInterval
    ) -> TaskFigures:
        counts = records.counts
        hits, failed = counts["ok"], sum(counts[outcome] for outcome in FAILURES)
        planned = sum(counts.values())
        attempted = planned - counts["skipped"]
        attempted_share, done_share, failed_share = (
            number / planned if planned else None for number in (attempted, hits, failed)
        )
        return cls(
            task=task,
            weight=weight,
            hits=hits,
            failed=failed,
            service=Times.of_sorted(records.took_us),
            interval_ms=None if isinstance(interval, NoInterval) else interval,
            no_interval=interval if isinstance(interval, NoInterval) else None,
            response=Percentiles.of_sorted(records.waited_us, planned - hits),
            planned=planned,
            attempted=attempted,
            attempted_share=attempted_share,
            done=hits + failed,
            done_share=done_share,
            failed_share=failed_share,
            done_per_s=None if task in WITHOUT_WINDOW else hits / window_s.length_s,
            refused=counts["refused"],
            lost=counts["lost"],
            timeout=counts["timeout"],
            unfinished=counts["unfinished"],
            skipped=counts["skipped"],
            generator_failed=counts[GENERATOR],
            failures=[FailureCount(outcome, kind, times) for (outcome, kind), times in records.failures.items()],
        )

    @property
    def windowed(self) -> bool:
        return self.task not in WITHOUT_WINDOW


@dataclass(frozen=True, slots=True)
class InboxFigures:
    processings: int
    done: int
    unfinished: int
    """Processings due in the window of an Inbox with unread mail; those with every task successful; the others."""
    took: Times = field(metadata=INLINE)
    """Times from due to the end of the last task; an unfinished one is infinite."""

    @classmethod
    def of(cls, records: TaskRecords) -> InboxFigures:
        planned, hits = sum(records.counts.values()), records.counts["ok"]
        return cls(planned, hits, planned - hits, Times.of_sorted(records.waited_us, planned - hits))


@dataclass(frozen=True, slots=True)
class Coverage:
    scored: Sequence[str]
    without_hits: Sequence[str]
    not_planned: Sequence[str]
    few_hits: Sequence[str]
    """Tasks with a weight and hits; with a weight, due, without a hit; with a weight, never due; scored with fewer
    than 300 hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverFigures:
    """The figures of one driver: tasks by descending weight. Times of two drivers are never mixed."""

    score_ms: float | None
    response_score_ms: float | None
    score_interval_ms: Bounds | None
    provisional: bool
    inbox: InboxFigures | None
    users: float
    covers: Coverage
    tasks: Sequence[TaskFigures]
    """For each driver, as those of the run."""

    @classmethod
    def of(cls, records: DriverRecords, weights: Mapping[str, float], window_s: Window) -> DriverFigures:
        within = intervals(windowed_hits(records, weights), window_s)
        tasks = [
            TaskFigures.of(
                name, float(weights.get(name, 0)), task, window_s, within.tasks.get(name, NoInterval.NOT_IN_WINDOW)
            )
            for name, task in records.tasks.items()
        ]
        tasks.sort(key=lambda task: (-task.weight, task.task))
        scored = [task for task in tasks if task.weight > 0 and task.hits]
        few_hits = [task.task for task in scored if task.hits < FEW_HITS]
        planned = {task.task for task in tasks if task.planned}
        unscored = [name for name, weight in weights.items() if weight > 0 and name not in {one.task for one in scored}]
        return cls(
            score_ms=weighted_average((task.weight, task.service.p95_ms) for task in tasks),
            response_score_ms=weighted_average((task.weight, task.response.p95_ms) for task in tasks),
            score_interval_ms=within.score if all(task.interval_ms for task in scored) else None,
            provisional=bool(few_hits),
            inbox=None if records.inbox is None else InboxFigures.of(records.inbox),
            users=records.users,
            covers=Coverage(
                scored=[task.task for task in scored],
                without_hits=[name for name in unscored if name in planned],
                not_planned=[name for name in unscored if name not in planned],
                few_hits=few_hits,
            ),
            tasks=tasks,
        )


@dataclass(frozen=True, slots=True)
class CommandFigures:
    command: str
    hits: float
    failed: float
    """Name; successes; others."""
    took: Times = field(metadata=INLINE)
    """Times of the successful ones."""


def weighted_average(figures: Iterable[tuple[float, float | None]]) -> float | None:
    """Average the figures of pairs with a weight above 0 and a figure; None without such a pair."""
    covered = [(weight, figure) for weight, figure in figures if weight > 0 and figure is not None]
    if not covered:
        return None
    return math.fsum(weight * figure for weight, figure in covered) / math.fsum(weight for weight, _ in covered)


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
