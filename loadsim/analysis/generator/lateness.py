"""The lateness of tasks in a window, by cause, and by client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.aggregate import DriverRecords
from loadsim.model.figures import Lateness
from loadsim.model.records import BOUND, CLOCKS, KERNEL, LOOP
from loadsim.model.terms import Window
from loadsim.statistics.nearest_rank import rank
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.planned_load import LEFT_OUT
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import CLOCK, NEVER

OF_SERVER = ("busy", "down")
LATENESS = (*OF_SERVER, "generator")
"""The causes of lateness: a busy user and a session that is down (both the server's fault), and the generator."""

MANY = 20
"""Of this many hits or more, the slowest is not the 95th percentile: one that the event loop timed does not count."""

NOTED = [CLOCK[KERNEL], CLOCK[BOUND]]


class LateTasks:
    """Collects the lateness of tasks that were due in the window and started.

    The generator's counts for the task in which it arose only: an activity of many tasks adds it up.
    """

    def __init__(self, log: TimingLog, window_s: Window) -> None:
        self._most = sum(stream.count for stream in log.streams["tasks"])
        self._log, self._window_s = log, window_s
        self._of_server = {cause: Upper(self._most) for cause in OF_SERVER}
        self._by_client: defaultdict[int, Upper] = defaultdict(lambda: Upper(self._most))

    def add(self, tasks: Columns) -> None:
        if self._log.strings[tasks["task"][0]] in LEFT_OUT:
            return
        inside = in_window(tasks["scheduled_us"], self._window_s)
        started = np.flatnonzero(inside & (tasks["started_us"] != NEVER))
        for cause, late_s in self._of_server.items():
            late_s.add(tasks[f"late_{cause}_s"][started])
        self._by_client[tasks.client].add(tasks["late_own_s"][started])

    def p95_ms(self) -> Lateness:
        generator = Upper(self._most)
        for late_s in self._by_client.values():
            generator.join(late_s)
        of_server = {cause: late_s.p95_ms() for cause, late_s in self._of_server.items()}
        return Lateness(**of_server, generator=generator.p95_ms())

    def of_clients_ms(self) -> dict[str, float | None]:
        """Return the 95th percentile of the generator's lateness for each client with tasks."""
        return {self._log.strings[client]: late_s.p95_ms() for client, late_s in self._by_client.items()}


def timing_of(drivers: Iterable[DriverRecords]) -> dict[str, float | None]:
    """Return `GeneratorFigures`' shares of clocks, and of the time between commands; all None without hits."""
    planned = [task for driver in drivers for name, task in driver.tasks.items() if name not in LEFT_OUT and task.hits]
    by_clock = sum((task.by_clock for task in planned), np.zeros(len(CLOCK), np.int64))
    looped = [(int(task.by_clock[CLOCK[LOOP]]), task.hits) for task in planned]
    between_s = sum(task.between_s for task in planned)
    time_s = between_s + sum(task.service_s for task in planned)
    return {
        **{f"{CLOCKS[code]}_share": float(by_clock[code] / by_clock.sum()) if planned else None for code in NOTED},
        "loop_share": max((hits / of if hits > 1 or of < MANY else 0.0 for hits, of in looped), default=None),
        "between_share": between_s / time_s if time_s else None,
    }


class Upper:
    """The 95th percentile of at most `most` numbers; little more than the largest twentieth stay in memory."""

    def __init__(self, most: int) -> None:
        self._room = most - rank(most, 95) + 1
        self._kept, self._waiting = np.zeros(0, np.float32), list[NDArray[np.float32]]()
        self._count, self._waits, self._least = 0, 0, -np.inf

    def add(self, numbers: NDArray[np.float32]) -> None:
        self._count += len(numbers)
        large = numbers[numbers > self._least]
        if len(large):
            self._waiting.append(large)
            self._waits += len(large)
            if self._waits > self._room // 4:
                self._settle()

    def join(self, other: Upper) -> None:
        """Add all numbers of another one that has the same `most`."""
        other._settle()
        self.add(other._kept)
        self._count += other._count - len(other._kept)

    def _settle(self) -> None:
        """Keep only the largest numbers."""
        self._kept = np.concatenate([self._kept, *self._waiting])
        self._waiting.clear()
        self._waits = 0
        if (below := len(self._kept) - self._room) > 0:
            self._kept.partition(below)
            self._kept = self._kept[below:].copy()
            self._least = self._kept[0]

    def p95_ms(self) -> float | None:
        """Return the nearest-rank percentile of seconds, in ms with three decimals; None without numbers."""
        if not self._count:
            return None
        self._settle()
        place = len(self._kept) - 1 - (self._count - rank(self._count, 95))
        return round(float(np.partition(self._kept, place)[place]) * 1000, 3)


def timed_names(log: TimingLog) -> NDArray[np.bool_]:
    """Return a mask of the names of planned tasks: other tasks have no due time of their own."""
    return np.asarray(~np.isin(np.array(log.strings), LEFT_OUT))


def late_at_most(log: TimingLog, most_s: float) -> TimingLog:
    """Return the log as if the generator had been late by at most this time."""
    tasks = [replace(stream, most_late_s=most_s) for stream in log.streams["tasks"]]
    return replace(log, streams={**log.streams, "tasks": tasks})
