"""Series of a log over time, for the charts of a report.

Time is divided into bins of equal length. Arrays have a figure for each bin, or NaN. Logs may exceed memory: they are
read in parts, several times for percentiles (see `exact_percentiles`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.exact_percentiles import Pass, selected
from loadsim.analysis.lateness import LATENESS, timed_names
from loadsim.model.records import FAILURES, SPANS
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER, OUTCOME

Floats = NDArray[np.float64]

WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""The allowed lengths of a bin."""

MOST_BINS = 60


@dataclass(frozen=True, slots=True)
class Bins:
    """The time from begin to end (s from the common start) in bins of `width_s`; the last may be shorter."""

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

    @property
    def middles_s(self) -> Floats:
        return np.asarray(self.starts_s + self.lengths_s / 2)

    def of(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the bin of each instant; -1 outside of all."""
        bins = (instants_us - round(self.begin_s * 1e6)) // round(self.width_s * 1e6)
        return np.where(in_window(instants_us, Window(self.begin_s, self.end_s)), bins, -1)

    def count(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self.of(instants_us)
        return np.bincount(found[found >= 0], minlength=len(self))

    def percentiles(
        self, instants_us: NDArray[np.int64], values: NDArray[Any], percents: Sequence[int]
    ) -> list[Floats]:
        """Return nearest-rank percentiles of the integers of each bin, an array for each percentage."""
        number = self.of(instants_us)
        parts = ((number[number >= 0], values[number >= 0]),)
        return by_group(selected(lambda: parts, len(self), each_of(len(self), percents)), len(self))


def each_of(groups: int, percents: Sequence[int | Fraction]) -> list[tuple[int, int | Fraction]]:
    """Return the same percentiles for each group: the first one of all groups, then the next."""
    return [(group, percent) for percent in percents for group in range(groups)]


def by_group(found: Floats, groups: int) -> list[Floats]:
    """Return the results for `each_of`: an array for each percentile."""
    return list(found.reshape(-1, groups)) if groups else []


def bins_of(log: TimingLog) -> Bins:
    """Return the bins of a run from the common start on, or of the window of a truncated log."""
    begin_s, end_s = log.header.get("truncated_s") or (0.0, _end_s(log))
    for width_s in WIDTHS_S:
        if end_s - begin_s <= width_s * MOST_BINS:
            return Bins(float(begin_s), float(end_s), float(width_s))
    return Bins(float(begin_s), float(end_s), math.ceil((end_s - begin_s) / MOST_BINS))


def _end_s(log: TimingLog) -> float:
    """Return the planned end of a run; if unknown, the end of the records."""
    lasted_s = float(log.header.get("duration_s") or 0)
    if lasted_s > 0:
        return lasted_s
    last_us = max((int(tasks["scheduled_us"].max()) for tasks in windowed(log) if len(tasks)), default=None)
    return 1 if last_us is None else max(math.ceil(last_us / 1e6) + 1, 1)


def windowed(log: TimingLog) -> Iterator[Columns]:
    """Yield the tasks that have a window, part by part, in any order."""
    without_window = named(log, (*WITHOUT_WINDOW, *SPANS))
    for tasks in log.pieces("tasks"):
        yield tasks.kept(~without_window[tasks["task"]])


def named(log: TimingLog, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return a mask of the log's strings with these names."""
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
    """Return median and 95th percentile of the service times (ms) of all hits together, by due time."""
    hits = _Hits(log, bins)
    p50_ms, p95_ms = by_group(selected(hits.binned, len(bins), each_of(len(bins), (50, 95))) / 1000, len(bins))
    return p50_ms, p95_ms


def task_series(log: TimingLog, bins: Bins, weights: Mapping[str, float]) -> tuple[TaskSeries, ...]:
    """Return the tasks with hits, by descending weight, then by name; without LOGON and LOGOFF."""
    hits = _Hits(log, bins)
    groups = len(hits.names) * len(bins)
    found_ms = selected(hits.passes, groups, each_of(groups, (50, 95))) / 1000
    p50_ms, p95_ms = found_ms.reshape(2, len(hits.names), len(bins))
    found = [
        TaskSeries(task, protocol, float(weights.get(task, 0)), p50_ms[number], p95_ms[number])
        for number, (protocol, task) in enumerate(hits.names)
        if hits.times[number]
    ]
    return tuple(sorted(found, key=lambda one: (-one.weight, one.task, one.protocol)))


class _Hits:
    """The times of the successful tasks of a log, in groups: each task in each bin.

    `names` has all combinations of protocol and task. `times` counts the hits of each.
    """

    def __init__(self, log: TimingLog, bins: Bins) -> None:
        self._log, self._bins = log, bins
        occurring = {name: np.zeros(len(log.strings), np.bool_) for name in ("protocol", "task")}
        for tasks in self._records():
            for name, occurs in occurring.items():
                occurs[tasks[name]] = True
        protocols, names = (np.flatnonzero(occurs) for occurs in occurring.values())
        self.names = [(log.strings[protocol], log.strings[task]) for protocol in protocols for task in names]
        self._protocols = np.cumsum(occurring["protocol"]) - 1
        self._tasks = np.cumsum(occurring["task"]) - 1
        self._each = len(names)
        self.times = np.zeros(len(self.names), np.int64)
        for tasks in self._records():
            self.times += np.bincount(self._number(tasks), minlength=len(self.names))

    def passes(self) -> Pass:
        """Yield each hit in its bin."""
        for tasks in self._records():
            bins = self._bins.of(tasks["scheduled_us"])
            group, took_us = self._number(tasks) * len(self._bins) + bins, tasks["ended_us"] - tasks["started_us"]
            yield group[bins >= 0], took_us[bins >= 0]

    def binned(self) -> Pass:
        """Yield each hit in its bin, of all tasks together."""
        for tasks in self._records():
            bins = self._bins.of(tasks["scheduled_us"])
            yield bins[bins >= 0], (tasks["ended_us"] - tasks["started_us"])[bins >= 0]

    def _records(self) -> Iterator[Columns]:
        without_window = named(self._log, (*WITHOUT_WINDOW, *SPANS))
        for tasks in self._log.pieces("tasks"):
            yield tasks.kept((tasks["outcome"] == OUTCOME["ok"]) & ~without_window[tasks["task"]])

    def _number(self, tasks: Columns) -> NDArray[np.int64]:
        return np.asarray(self._protocols[tasks["protocol"]] * self._each + self._tasks[tasks["task"]])


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tasks per second: due, done (failed or not), and failed."""

    planned_per_s: Floats
    done_per_s: Floats
    failed_per_s: Floats


def throughput_series(log: TimingLog, bins: Bins) -> Throughput:
    """Return the rates of all tasks but LOGON and LOGOFF, by their due time or their end."""
    planned, done, failed = (np.zeros(len(bins), np.int64) for _ in range(3))
    for tasks in windowed(log):
        badly = np.isin(tasks["outcome"], [OUTCOME[name] for name in FAILURES])
        ended_us = tasks["ended_us"]
        planned += bins.count(tasks["scheduled_us"])
        done += bins.count(ended_us[badly | (tasks["outcome"] == OUTCOME["ok"])])
        failed += bins.count(ended_us[badly])
    return Throughput(*(count / bins.lengths_s for count in (planned, done, failed)))


def lateness_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return by cause the 95th percentile (ms) of the lateness of planned tasks, by their due time."""
    by_plan = timed_names(log)

    def passes() -> Pass:
        for tasks in windowed(log):
            bin_of = bins.of(tasks["scheduled_us"])
            started = (tasks["started_us"] != NEVER) & (bin_of >= 0) & by_plan[tasks["task"]]
            for number, cause in enumerate(LATENESS):
                # + 0 turns -0 into 0; the bits of other floats sort as the floats do.
                late_s = tasks[f"late_{cause}_s"][started] + np.float32(0)
                yield number * len(bins) + bin_of[started], late_s.view(np.uint32)

    bits = selected(passes, len(LATENESS) * len(bins), each_of(len(LATENESS) * len(bins), (95,)))
    late_s = np.where(np.isnan(bits), 0, bits).astype(np.uint32).view(np.float32).astype(np.float64)
    late_ms = np.where(np.isnan(bits), np.nan, late_s * 1000).reshape(len(LATENESS), len(bins))
    return dict(zip(LATENESS, late_ms, strict=True))
