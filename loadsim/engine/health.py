"""How an engine's own process is while it makes load: what would make its times its own rather than the server's.

One sample a second, for the timing log: the lags of the event loop, the share of a core, memory, open files, pauses of
the garbage collector, steps of the wall clock, and how late tasks began so far, by cause. A sample costs some tens of
microseconds, and nothing in it waits: files of /proc stay open.
"""

from __future__ import annotations

import fcntl
import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadsim.analysis.score import percentile
from loadsim.engine.lag import LoopLag
from loadsim.model.ports import Clock

STEP_NS = 10_000_000
"""A larger change of the wall clock against the monotonic one within a sample was a step: a clock that is slewed
changes by 0.5 ms in a second at most (adjtimex(2))."""

UNDISTURBED_NS = 100_000
"""Two clocks are read at the same time when no more than this lies around the reading."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Lateness:
    """How late tasks began since the engine's start, in seconds over all users, by cause."""

    busy_s: float = 0.0
    down_s: float = 0.0
    generator_s: float = 0.0
    generator_most_s: float = 0.0

    def add(self, busy_s: float, down_s: float, generator_s: float) -> None:
        """One more task."""
        self.busy_s += busy_s
        self.down_s += down_s
        self.generator_s += generator_s
        if generator_s > self.generator_most_s:
            self.generator_most_s = generator_s


class CollectorPauses:
    """How often and how long Python's garbage collector stopped everything, since the last `take`."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._began_ns = 0
        self._pauses_ns: list[int] = []

    def start(self) -> None:
        """Begin to listen."""
        gc.callbacks.append(self._tell)

    def stop(self) -> None:
        """Listen no more."""
        gc.callbacks.remove(self._tell)

    def take(self) -> dict[str, Any]:
        """`gc_pauses` (how many), `gc_ms` (together) and `gc_max_ms` (the longest)."""
        pauses_ns, self._pauses_ns = self._pauses_ns, []
        return {
            "gc_pauses": len(pauses_ns),
            "gc_ms": round(sum(pauses_ns) * 1e-6, 3),
            "gc_max_ms": round(max(pauses_ns, default=0) * 1e-6, 3),
        }

    def _tell(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._now_ns()
        elif self._began_ns:
            self._pauses_ns.append(self._now_ns() - self._began_ns)
            self._began_ns = 0


class ClockSteps:
    """Whether the wall clock was set while the monotonic one ran on; a suspended machine looks like that, too."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._apart_ns = self._apart()

    def take(self) -> dict[str, Any]:
        """`clock_step_ms` when the clock was set since the last take: later is positive. Nothing otherwise."""
        before_ns, self._apart_ns = self._apart_ns, self._apart()
        step_ns = self._apart_ns - before_ns
        return {"clock_step_ms": round(step_ns * 1e-6, 3)} if abs(step_ns) > STEP_NS else {}

    def _apart(self) -> int:
        """The wall clock less the monotonic one; read again when something came between the two."""
        least_ns, apart_ns = None, 0
        for _ in range(3):
            before_ns, wall_ns, after_ns = self._monotonic_ns(), self._wall_ns(), self._monotonic_ns()
            if least_ns is None or after_ns - before_ns < least_ns:
                least_ns, apart_ns = after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2
            if least_ns <= UNDISTURBED_NS:
                break
        return apart_ns


class OwnProcess:
    """CPU, memory and open files of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._at_ns, self._spent_ns = clock.now_ns(), time.process_time_ns()

    def close(self) -> None:
        """Take no more."""
        os.close(self._memory)

    def take(self) -> dict[str, Any]:
        """`cpu_share` (of a core, since the last take; all threads together), `rss_bytes` and `open_files`."""
        before_ns, self._at_ns = self._at_ns, self._clock.now_ns()
        spent_before_ns, self._spent_ns = self._spent_ns, time.process_time_ns()
        passed_ns = max(1, self._at_ns - before_ns)
        return {
            "cpu_share": round((self._spent_ns - spent_before_ns) / passed_ns, 4),
            "rss_bytes": int(os.pread(self._memory, 128, 0).split()[1]) * PAGE_BYTES,  # proc_pid_statm(5)
            "open_files": open_files(self._memory),
        }


def open_files(descriptor: int) -> int:
    """How many files this process has open, without going through them all; `descriptor` is any one of them.

    Linux says it from 6.2 on, as the size of the directory. Before that, the next free number stands for it: numbers
    are given from the lowest.
    """
    if counted := Path("/proc/self/fd").stat().st_size:
        return counted
    free = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
    os.close(free)
    return free


class Health:
    """All of it, from `start` to `stop`; `start` needs a running loop."""

    def __init__(self, clock: Clock, lateness: Lateness) -> None:
        self._clock = clock
        self._lateness = lateness
        self._lag = LoopLag()
        self._collector = CollectorPauses()
        self._clocks = ClockSteps()
        self._process: OwnProcess | None = None
        self._latest: Mapping[str, Any] = {}

    def start(self) -> None:
        """Begin to look."""
        self._process = OwnProcess(self._clock)
        self._collector.start()
        self._lag.start()

    def stop(self) -> None:
        """Look no more."""
        if self._process is not None:
            self._lag.stop()
            self._collector.stop()
            self._process.close()
            self._process = None

    def sample(self) -> Mapping[str, Any]:
        """How it was since the last sample; its keys are documented with the timing log."""
        assert self._process is not None, "not started"
        lags_from_ns, lags_us = self._lag.take()
        self._latest = {
            "at_ns": self._clock.now_ns(),
            "lags_from_ns": lags_from_ns,
            "lags_us": lags_us,
            **self._process.take(),
            **self._collector.take(),
            **self._clocks.take(),
            "late_busy_s": round(self._lateness.busy_s, 3),
            "late_down_s": round(self._lateness.down_s, 3),
            "late_generator_s": round(self._lateness.generator_s, 3),
        }
        return self._latest

    def figures(self) -> dict[str, Any]:
        """What a live view shows of the last sample: `lag_p99_ms`, `lag_max_ms`, `cpu_share`, `rss_bytes`, if any."""
        if not self._latest:
            return {}
        figures = {name: self._latest[name] for name in ("cpu_share", "rss_bytes")}
        if self._latest["lags_us"]:
            lags_us = np.sort(np.array(self._latest["lags_us"], np.int64))
            figures["lag_p99_ms"] = percentile(lags_us, 99) / 1000
            figures["lag_max_ms"] = float(lags_us[-1]) / 1000
        return figures
