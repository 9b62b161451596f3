"""Figures of tasks over time, for the charts of a report.

Time is divided into bins of equal length. Arrays have a figure, or NaN, for each bin.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loadsim.analysis.aggregate import Growing, compact
from loadsim.analysis.generator.lateness import LATENESS, timed_names
from loadsim.model.records import FAILURES, SPANS
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

Floats = NDArray[np.float64]

WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""The allowed lengths of a bin."""

MOST_BINS = 60


class Grouped:
    """Numbers of one type, by group. Each number is kept in memory only once."""

    def __init__(self, kind: DTypeLike = np.uint32) -> None:
        self._numbers: defaultdict[int, Growing] = defaultdict(lambda: Growing(kind))

    def add(self, groups: NDArray[Any], numbers: NDArray[Any]) -> None:
        """Add each number to its group; drop those with a negative group."""
        order = np.argsort(groups, kind="stable")
        found, begins = np.unique(groups[order], return_index=True)
        ends = [*begins[1:].tolist(), len(order)]
        for group, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=False):
            if group >= 0:
                self._numbers[group].add(numbers[order[begin:end]])

    def percentiles(
        self, groups: int, percents: Sequence[int], infinite: NDArray[np.int64] | None = None
    ) -> list[NDArray[np.float64]]:
        """Return the nearest-rank percentiles of all groups, one array per percentage, and drop the numbers.

        A group without numbers has NaN. `infinite` is how many more infinite numbers each group has.
        """
        found = np.full((len(percents), groups), np.nan)
        for group in range(groups):
            ordered = np.sort(self._numbers[group].taken())
            more = 0 if infinite is None else int(infinite[group])
            if len(ordered) + more:
                found[:, group] = [percentile(ordered, percent, more) for percent in percents]
        return list(found)


@dataclass(frozen=True, slots=True)
class Bins:
    """The time from begin to end (s from the common start) in bins of `width_s`; the last one may be shorter."""

    begin_s: float
    end_s: float
    width_s: float

    def __len__(self) -> int:
        return max(1, math.ceil(round((self.end_s - self.begin_s) / self.width_s, 9)))

    @property
    def starts_s(self) -> Floats:
        return np.asarray(self.begin_s + self.width_s * np.arange(len(self), dtype=np.float64))

    @property
    def lengths_s(self) -> Floats:
        return np.asarray(np.minimum(self.width_s, self.end_s - self.starts_s))

    def of(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of each instant's bin; -1 outside the bins."""
        numbers = (instants_us - round(self.begin_s * 1e6)) // round(self.width_s * 1e6)
        return np.where(in_window(instants_us, Window(self.begin_s, self.end_s)), numbers, -1)

    def count(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = self.of(instants_us)
        return np.bincount(numbers[numbers >= 0], minlength=len(self))

    def percentiles(
        self, instants_us: NDArray[np.int64], values: NDArray[Any], percents: Sequence[int]
    ) -> list[Floats]:
        """Return the nearest-rank percentiles of the values in each bin, one array per percentage."""
        grouped = Grouped(values.dtype)
        grouped.add(self.of(instants_us), values)
        return grouped.percentiles(len(self), percents)


def bins_of(log: TimingLog) -> Bins:
    """Return the bins of a run, which begin at the common start."""
    end_s = float(_end_s(log))
    width_s = next((width_s for width_s in WIDTHS_S if end_s <= width_s * MOST_BINS), math.ceil(end_s / MOST_BINS))
    return Bins(0.0, end_s, float(width_s))


def _end_s(log: TimingLog) -> float:
    """Return the planned end of a run, or the end of the records if it is unknown."""
    lasted_s = float(log.header.duration_s or 0)
    if lasted_s > 0:
        return lasted_s
    last_us = max((int(tasks["scheduled_us"].max()) for tasks in windowed(log) if len(tasks)), default=None)
    return 1 if last_us is None else max(math.ceil(last_us / 1e6) + 1, 1)


def windowed(log: TimingLog) -> Iterator[Columns]:
    without_window = named(log, (*WITHOUT_WINDOW, *SPANS))
    for tasks in log.pieces("tasks"):
        yield tasks.kept(~without_window[tasks["task"]])


def named(log: TimingLog, names: Sequence[str]) -> NDArray[np.bool_]:
    return np.asarray(np.isin(np.array(log.strings), names))


@dataclass(frozen=True, slots=True)
class TaskSeries:
    """One task of one driver: service times of its hits by due time, in ms."""

    task: str
    protocol: str
    weight: float
    p50_ms: Floats
    p95_ms: Floats


def service_time_series(log: TimingLog, bins: Bins) -> tuple[Floats, Floats]:
    """Return the median and 95th percentile of the service times (ms) of all hits together, by due time."""
    took_us = Grouped()
    for hits in _hits(log):
        took_us.add(bins.of(hits["scheduled_us"]), compact(hits["ended_us"] - hits["started_us"]))
    p50_us, p95_us = took_us.percentiles(len(bins), (50, 95))
    return p50_us / 1000, p95_us / 1000


def task_series(log: TimingLog, bins: Bins, weights: Mapping[str, float]) -> tuple[TaskSeries, ...]:
    """Return the tasks with hits, except `WITHOUT_WINDOW`, by descending weight, then by name."""
    took_us: defaultdict[int, Grouped] = defaultdict(Grouped)  # by protocol and task
    for hits in _hits(log):
        pairs = hits["protocol"].astype(np.int64) << 16 | hits["task"]
        for pair in np.unique(pairs).tolist():
            some = hits.kept(pairs == pair)
            took_us[pair].add(bins.of(some["scheduled_us"]), compact(some["ended_us"] - some["started_us"]))
    series = []
    for pair, times in took_us.items():
        protocol, task = (log.strings[number] for number in divmod(pair, 1 << 16))
        p50_us, p95_us = times.percentiles(len(bins), (50, 95))
        series.append(TaskSeries(task, protocol, float(weights.get(task, 0)), p50_us / 1000, p95_us / 1000))
    return tuple(sorted(series, key=lambda one: (-one.weight, one.task, one.protocol)))


def _hits(log: TimingLog) -> Iterator[Columns]:
    for tasks in windowed(log):
        yield tasks.kept(tasks["outcome"] == OUTCOME["ok"])


def throughput_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return the tasks per second due, done and failed, by due time or end, except `WITHOUT_WINDOW`."""
    planned, done, failed = (np.zeros(len(bins), np.int64) for _ in range(3))
    for tasks in windowed(log):
        badly = np.isin(tasks["outcome"], [OUTCOME[name] for name in FAILURES])
        ended_us = tasks["ended_us"]
        planned += bins.count(tasks["scheduled_us"])
        done += bins.count(ended_us[badly | (tasks["outcome"] == OUTCOME["ok"])])
        failed += bins.count(ended_us[badly])
    return {name: count / bins.lengths_s for name, count in (("due", planned), ("done", done), ("failed", failed))}


def lateness_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return the 95th percentile of planned tasks' lateness (ms), by cause and due time."""
    by_plan = timed_names(log)
    late_s = {cause: Grouped(np.float32) for cause in LATENESS}
    for tasks in windowed(log):
        started = tasks.kept((tasks["started_us"] != NEVER) & by_plan[tasks["task"]])
        number = bins.of(started["scheduled_us"])
        for cause, of_cause in late_s.items():
            of_cause.add(number, started[f"late_{cause}_s"])
    return {cause: of_cause.percentiles(len(bins), (95,))[0] * 1000 for cause, of_cause in late_s.items()}
