"""The score: the weighted average of the tasks' 95th percentiles of service time, over the merged records of a window.

Percentiles are nearest rank over all records, so each is a measured time.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import INTERRUPTED, DriverRecords, Growing, TaskRecords, windowed_hits
from loadsim.model.figures import (
    Bounds,
    CommandFigures,
    Coverage,
    DriverFigures,
    FailureCount,
    InboxFigures,
    NoInterval,
    Percentiles,
    ReceiptFigures,
    TaskFigures,
    Times,
)
from loadsim.model.records import FAILURES, GENERATOR
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.statistics.bins import times_in
from loadsim.statistics.intervals import intervals
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import OUTCOME

PROVISIONAL_HITS = 300
"""A scored task with fewer hits makes the score provisional: fewer than 15 hits exceed its 95th percentile."""


def standard_deviation(samples: NDArray[Any]) -> float:
    """Return the standard deviation with the divisor n - 1 (LsLog's is not published); 0 for a single sample."""
    if len(samples) < 2:
        return 0.0
    mean = float(np.mean(samples))
    begins = range(0, len(samples), _AT_ONCE)
    squares = math.fsum(float(np.sum((samples[at : at + _AT_ONCE] - mean) ** 2)) for at in begins)
    return math.sqrt(squares / (len(samples) - 1))


_AT_ONCE = 1 << 16
"""The number of samples processed at once: temporary arrays for all would take several times their memory."""


PERCENTS: Mapping[str, Fraction] = {one.name: one.metadata["percent"] for one in fields(Percentiles)}
"""The percentiles of `Times`, by name, the maximum last."""


def percentiles(ordered_us: NDArray[Any], infinite: int = 0) -> Percentiles:
    """Return the percentiles of sorted samples and `infinite` further ones that are infinite."""
    return Percentiles(**_percentiles(ordered_us, infinite))


def times(ordered_us: NDArray[Any], infinite: int = 0) -> Times:
    """Return the statistics of sorted samples and `infinite` further ones that are infinite."""
    if not len(ordered_us) + infinite:
        return Times()
    return Times(
        **_percentiles(ordered_us, infinite),
        mean_ms=math.inf if infinite else float(np.mean(ordered_us)) / 1000,
        stddev_ms=None if infinite else standard_deviation(ordered_us) / 1000,
    )


def _percentiles(ordered_us: NDArray[Any], infinite: int) -> dict[str, float]:
    if not len(ordered_us) + infinite:
        return {}
    return {name: percentile(ordered_us, percent, infinite) / 1000 for name, percent in PERCENTS.items()}


def task_figures(
    task: str, weight: float, records: TaskRecords, window_s: Window, interval: Bounds | NoInterval
) -> TaskFigures:
    counts = records.counts
    hits, failed = counts["ok"], sum(counts[outcome] for outcome in FAILURES)
    planned = sum(counts.values())
    attempted = planned - counts["skipped"]
    attempted_share, done_share, failed_share = (
        number / planned if planned else None for number in (attempted, hits, failed)
    )
    return TaskFigures(
        task=task,
        weight=weight,
        hits=hits,
        failed=failed,
        service=times(times_in(records.timed)),
        interval_ms=None if isinstance(interval, NoInterval) else interval,
        no_interval=interval if isinstance(interval, NoInterval) else None,
        response=percentiles(records.waited_us, planned - hits),
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
        failures=[FailureCount(outcome, kind, number) for (outcome, kind), number in records.failures.items()],
        interrupted=counts.get(INTERRUPTED),
    )


def _inbox_figures(records: TaskRecords) -> InboxFigures:
    planned, hits = sum(records.counts.values()), records.counts["ok"]
    return InboxFigures(planned, hits, planned - hits, times(records.waited_us, planned - hits))


def _receipt_figures(records: TaskRecords) -> ReceiptFigures:
    planned, arrived = sum(records.counts.values()), records.counts["ok"]
    requested = planned - records.counts["skipped"]
    return ReceiptFigures(planned, requested, arrived, times(records.waited_us, requested - arrived))


def driver_figures(records: DriverRecords, weights: Mapping[str, float], window_s: Window) -> DriverFigures:
    within = intervals(windowed_hits(records, weights), window_s)
    tasks = [
        task_figures(
            name, float(weights.get(name, 0)), task, window_s, within.tasks.get(name, NoInterval.NOT_IN_WINDOW)
        )
        for name, task in records.tasks.items()
    ]
    tasks.sort(key=lambda task: (-task.weight, task.task))
    scored = [task for task in tasks if task.weight > 0 and task.hits]
    few_hits = [task.task for task in scored if task.hits < PROVISIONAL_HITS]
    planned = {task.task for task in tasks if task.planned}
    unscored = [name for name, weight in weights.items() if weight > 0 and name not in {one.task for one in scored}]
    return DriverFigures(
        score_ms=weighted_average((task.weight, task.service.p95_ms) for task in tasks),
        response_score_ms=weighted_average((task.weight, task.response.p95_ms) for task in tasks),
        score_interval_ms=within.score if all(task.interval_ms for task in scored) else None,
        provisional=bool(few_hits),
        inbox=None if records.inbox is None else _inbox_figures(records.inbox),
        receipts=None if records.receipts is None else _receipt_figures(records.receipts),
        users=records.users,
        covers=Coverage(
            scored=[task.task for task in scored],
            without_hits=[name for name in unscored if name in planned],
            not_planned=[name for name in unscored if name not in planned],
            few_hits=few_hits,
        ),
        tasks=tasks,
    )


def fastest_p95_ms(drivers: Mapping[str, DriverFigures]) -> float | None:
    """Return the 95th percentile of the fastest scored task; None without a score."""
    scored = [task.service.p95_ms for driver in drivers.values() for task in driver.tasks if task.weight > 0]
    return min((p95_ms for p95_ms in scored if p95_ms is not None), default=None)


def weighted_average(figures: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the weighted average of the figures, skipping pairs without a weight or figure; None if none is left."""
    covered = [(weight, figure) for weight, figure in figures if weight > 0 and figure is not None]
    if not covered:
        return None
    return math.fsum(weight * figure for weight, figure in covered) / math.fsum(weight for weight, _ in covered)


def command_statistics(log: TimingLog, window_s: Window) -> Sequence[CommandFigures]:
    """Return the figures of the protocol commands that started in the window, in order of their names."""
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
        statistics.append(CommandFigures(log.strings[command], len(times_us), failed[command], times(times_us)))
    return sorted(statistics, key=lambda one: one.command)
