"""Lateness of tasks: by cause over a window, and the generator's own per second.

Only the largest numbers are kept: the 95th percentile is one of the largest twentieth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.generator import Second
from loadsim.model.terms import Window
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.planned_load import LEFT_OUT
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NEVER

LATENESS = ("busy", "down", "generator")
"""The causes of lateness: the user is still busy or the session is down (the server's fault), or the generator."""

_PERCENT = Fraction(95)

_SPARE = 1 << 20
"""Unneeded numbers are dropped only after this many have been added."""


def timed_names(log: TimingLog) -> NDArray[np.bool_]:
    """Return a mask of the log's names of planned tasks: others have no due time of their own."""
    return np.asarray(~np.isin(np.array(log.strings), LEFT_OUT))


def lateness_p95_ms(log: TimingLog, window_s: Window) -> dict[str, float | None]:
    """Return the 95th percentile of each cause of lateness, over the tasks of the window that started."""
    timed = timed_names(log)
    largest = Largest(np.full(len(LATENESS), log.streams["tasks"].count))
    for tasks in log.pieces("tasks"):
        counted = timed[tasks["task"]] & in_window(tasks["scheduled_us"], window_s)
        started = counted & (tasks["started_us"] != NEVER)
        for number, cause in enumerate(LATENESS):
            late_s = tasks[f"late_{cause}_s"][started]
            largest.add(np.full(len(late_s), number), late_s)
    return _in_ms(LATENESS, largest)


def lateness_of_clients_ms(log: TimingLog, window_s: Window, clients: Sequence[str]) -> dict[str, float | None]:
    """Return by client the 95th percentile of the generator's lateness, over the tasks of the window that started."""
    by_plan = timed_names(log)
    numbers = {name: number for number, name in enumerate(log.strings)}
    place = np.zeros(len(log.strings), np.int64)
    for number, client in enumerate(clients):
        if client in numbers:
            place[numbers[client]] = number
    largest = Largest(np.full(len(clients), log.streams["tasks"].count))
    for tasks in log.pieces("tasks"):
        timed = by_plan[tasks["task"]] & (tasks["started_us"] != NEVER) & in_window(tasks["scheduled_us"], window_s)
        largest.add(place[tasks["client"][timed]], tasks["late_generator_s"][timed])
    return _in_ms(clients, largest)


def _in_ms(names: Sequence[str], late_s: Largest) -> dict[str, float | None]:
    """Return the percentile of each group in milliseconds, to the microsecond; None for an empty group."""
    found = zip(names, late_s.percentiles().tolist(), strict=True)
    return {name: None if np.isnan(one_s) else round(one_s * 1000, 3) for name, one_s in found}


def late_seconds(log: TimingLog, window_s: Window) -> tuple[Second, ...]:
    """Return the 95th percentile of the generator's lateness (ms) for each second with a due task that started.

    The log is read twice, first to count these tasks.
    """
    by_plan = timed_names(log)

    def timed(tasks: Columns) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        due_us = tasks["scheduled_us"]
        which = by_plan[tasks["task"]] & (tasks["started_us"] != NEVER) & in_window(due_us, window_s)
        return which, due_us[which] // 1_000_000

    counts = Counter[int]()
    for tasks in log.pieces("tasks"):
        found, times = np.unique(timed(tasks)[1], return_counts=True)
        counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
    seconds = np.array(sorted(counts), np.int64)
    largest = Largest(np.array([counts[second] for second in seconds.tolist()], np.int64))
    for tasks in log.pieces("tasks"):
        which, second = timed(tasks)
        largest.add(np.searchsorted(seconds, second), tasks["late_generator_s"][which] * np.float32(1e6))
    return tuple(
        Second(float(begin_s), float(begin_s + 1), late_us / 1000)
        for begin_s, late_us in zip(seconds.tolist(), largest.percentiles().tolist(), strict=True)
    )


class Largest:
    """The largest numbers of each group (from 0), enough for its 95th percentile.

    `sizes` has the most numbers of each group. A number and its group are packed into one integer, which is sorted
    several times as fast.
    """

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self._needed = sizes - _ranks(sizes) + 1
        self._seen = np.zeros(len(sizes), np.int64)
        self._least = np.full(len(sizes), np.iinfo(np.int64).min)
        self._kept = np.zeros(0, np.int64)
        self._added: list[NDArray[np.int64]] = []
        self._added_count = 0

    def add(self, groups: NDArray[np.int64], numbers: NDArray[np.float32]) -> None:
        self._seen += np.bincount(groups, minlength=len(self._seen))
        both = (groups << 32) + _in_order(numbers)
        both = both[both > self._least[groups]]
        self._added.append(both)
        self._added_count += len(both)
        if self._added_count > len(self._kept) + _SPARE:
            self._prune()

    def percentiles(self) -> NDArray[np.float64]:
        """Return the nearest-rank percentile of each group; NaN for an empty group."""
        ends = self._prune()
        found = np.full(len(self._seen), np.nan)
        filled = np.flatnonzero(self._seen)
        found[filled] = _numbers(self._kept[ends[filled] - (self._seen - _ranks(self._seen) + 1)[filled]])
        return found

    def _prune(self) -> NDArray[np.intp]:
        """Drop unneeded numbers, sort the others, and return the end of each group among all."""
        kept = np.sort(np.concatenate([self._kept, *self._added]))
        self._added, self._added_count = [], 0
        group = _groups(kept)
        ends = np.searchsorted(group, np.arange(len(self._seen)), "right")
        self._kept = kept[ends[group] - np.arange(len(kept)) <= self._needed[group]]
        group = _groups(self._kept)
        begins, ends = (np.searchsorted(group, np.arange(len(self._seen)), side) for side in ("left", "right"))
        full = np.flatnonzero((ends - begins == self._needed) & (begins < ends))
        self._least[full] = self._kept[begins[full]]
        return ends


def _ranks(samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """See `score.rank`."""
    return np.maximum(1, -(-samples * _PERCENT.numerator // (100 * _PERCENT.denominator)))


def _in_order(numbers: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return 32-bit integers in the same order; -0 becomes 0."""
    bits = (numbers + np.float32(0)).view(np.int32)
    return (bits ^ (bits >> 31 & 0x7FFF_FFFF)).astype(np.int64)


def _groups(both: NDArray[np.int64]) -> NDArray[np.int64]:
    return both + (1 << 31) >> 32


def _numbers(both: NDArray[np.int64]) -> NDArray[np.float32]:
    bits = both.astype(np.int32)
    return (bits ^ (bits >> 31 & 0x7FFF_FFFF)).view(np.float32)
