"""The health of an engine's process: anything that would make measured times reflect the engine, not the server.

One sample is taken each second, for the timing log: event-loop lag, CPU share, memory, open files, GC pauses,
wall-clock steps, and the lateness of tasks so far, by cause. A sample takes tens of microseconds, and waits for
nothing: files in /proc stay open.

An event loop that returns late reads answers late, and that time counts as the server's. So a kernel timer
(timerfd_create(2)) becomes readable at fixed instants, as a socket does when an answer arrives. The lag is the time
until the loop reads it. The loop's own timers would not do: asyncio and uvloop round them to a millisecond.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadsim.errors import ConfigError
from loadsim.model.ports import Clock
from loadsim.statistics.nearest_rank import percentile

STEP_NS = 10_000_000
"""A larger change of the wall clock relative to the monotonic one, between samples, is a step: a clock that is slewed
changes by at most 0.5 ms per second (adjtimex(2))."""

UNDISTURBED_NS = 100_000
"""Two clocks count as read at the same time if reading them took at most this long."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

TICK_NS = 10_000_000
"""The interval between ticks: enough for a 99th percentile in each second, at less than 1 % of a core."""


@dataclass(slots=True)
class EngineLateness:
    """The lateness of tasks since the engine's start, in seconds over all users, by cause."""

    busy_s: float = 0.0
    down_s: float = 0.0
    generator_s: float = 0.0
    generator_most_s: float = 0.0

    def add(self, busy_s: float, down_s: float, generator_s: float) -> None:
        self.busy_s += busy_s
        self.down_s += down_s
        self.generator_s += generator_s
        if generator_s > self.generator_most_s:
            self.generator_most_s = generator_s


class _TimeSpec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _TimerSpec(ctypes.Structure):
    _fields_ = [("interval", _TimeSpec), ("first", _TimeSpec)]


_libc = ctypes.CDLL(None, use_errno=True)


def open_timer(first_ns: int, every_ns: int) -> int:
    """Return a file that is readable at `first_ns` on the monotonic clock, then each `every_ns`. Raises `OSError`."""
    timer = _libc.timerfd_create(1, os.O_NONBLOCK | os.O_CLOEXEC)  # CLOCK_MONOTONIC
    spec = _TimerSpec(_TimeSpec(*divmod(every_ns, 10**9)), _TimeSpec(*divmod(first_ns, 10**9)))
    # TFD_TIMER_ABSTIME
    if timer < 0 or _libc.timerfd_settime(timer, 1, ctypes.byref(spec), None) != 0:
        raise OSError(ctypes.get_errno(), "no timer")
    return int(timer)


class LoopLag:
    """Gathers the running loop's lags, from `start` to `stop`.

    Ticks are due at fixed instants. A loop that was blocked for a while is late for each tick that it missed: an answer
    arriving at any of them would have had to wait as well. In virtual time nothing arrives, and nothing is late.
    """

    def __init__(self) -> None:
        self._due_ns = 0
        self._lags_us: list[int] = []
        self._timer = -1

    def start(self) -> None:
        """Begin; the first tick is due after one interval."""
        self._due_ns = time.monotonic_ns() + TICK_NS
        self._timer = open_timer(self._due_ns, TICK_NS)
        asyncio.get_running_loop().add_reader(self._timer, self._ring)

    def stop(self) -> None:
        """Stop; `take` still returns the lags so far."""
        asyncio.get_running_loop().remove_reader(self._timer)
        os.close(self._timer)

    def take(self) -> tuple[int, list[int]]:
        """Return when the first tick since the last call was due (ns), and each tick's lag (µs), one tick apart."""
        lags_us, self._lags_us = self._lags_us, []
        return self._due_ns - len(lags_us) * TICK_NS, lags_us

    def _ring(self) -> None:
        os.read(self._timer, 8)
        now_ns = time.monotonic_ns()  # after the read: a tick between the two would be lost, and reported 10 ms late
        while self._due_ns <= now_ns:
            self._lags_us.append((now_ns - self._due_ns) // 1000)
            self._due_ns += TICK_NS


class CollectorPauses:
    """The longest pause of Python's garbage collector since the last `take`."""

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._now_ns = now_ns
        self._began_ns = 0
        self._longest_ns = 0

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        gc.callbacks.remove(self._note)

    def take(self) -> dict[str, Any]:
        longest_ns, self._longest_ns = self._longest_ns, 0
        return {"gc_max_ms": round(longest_ns * 1e-6, 3)}

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = self._now_ns()
        elif self._began_ns:
            self._longest_ns = max(self._longest_ns, self._now_ns() - self._began_ns)
            self._began_ns = 0


class ClockSteps:
    """Steps of the wall clock relative to the monotonic one. A suspended machine looks like a step, too."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._apart_ns = self._apart()

    def take(self) -> dict[str, Any]:
        """Return `clock_step_ms` (positive: forward) if the clock was set since the last call, else an empty dict."""
        before_ns, self._apart_ns = self._apart_ns, self._apart()
        step_ns = self._apart_ns - before_ns
        return {"clock_step_ms": round(step_ns * 1e-6, 3)} if abs(step_ns) > STEP_NS else {}

    def _apart(self) -> int:
        """Return the wall clock minus the monotonic one; if something delayed the reading, read both again."""
        least_ns, apart_ns = None, 0
        for _ in range(3):
            before_ns, wall_ns, after_ns = self._monotonic_ns(), self._wall_ns(), self._monotonic_ns()
            if least_ns is None or after_ns - before_ns < least_ns:
                least_ns, apart_ns = after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2
            if least_ns <= UNDISTURBED_NS:
                break
        return apart_ns


STATM = "/proc/self/statm"


def check_proc() -> None:
    """Raise `ConfigError` on a system without the files that an engine samples."""
    if not Path(STATM).exists():
        raise ConfigError(f"{STATM}: expected Linux's /proc, which a run samples, found no such file")


class OwnProcess:
    """This process's CPU, memory and open files."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._memory = os.open(STATM, os.O_RDONLY | os.O_CLOEXEC)
        self._at_ns, self._spent_ns = clock.now_ns(), time.process_time_ns()

    def close(self) -> None:
        os.close(self._memory)

    def take(self) -> dict[str, Any]:
        """Return `cpu_share` (of a core, over all threads, since the last call), `rss_bytes` and `open_files`."""
        before_ns, self._at_ns = self._at_ns, self._clock.now_ns()
        spent_before_ns, self._spent_ns = self._spent_ns, time.process_time_ns()
        passed_ns = max(1, self._at_ns - before_ns)
        return {
            "cpu_share": round((self._spent_ns - spent_before_ns) / passed_ns, 4),
            "rss_bytes": int(os.pread(self._memory, 128, 0).split()[1]) * PAGE_BYTES,  # proc_pid_statm(5)
            "open_files": open_files(self._memory),
        }


def open_files(descriptor: int) -> int:
    """Return how many files this process has open, without listing them; `descriptor` is any open one.

    Since Linux 6.2 this is the size of /proc/self/fd. Before that, the next free descriptor approximates it, as the
    kernel allocates the lowest.
    """
    if counted := Path("/proc/self/fd").stat().st_size:
        return counted
    free = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 0)
    os.close(free)
    return free


class Health:
    """All samples of a process, from `start` to `stop`; `start` needs a running loop."""

    def __init__(self, clock: Clock, lateness: EngineLateness) -> None:
        self._clock = clock
        self._lateness = lateness
        self._lag = LoopLag()
        self._collector = CollectorPauses()
        self._clocks = ClockSteps()
        self._process: OwnProcess | None = None
        self._latest: Mapping[str, Any] = {}

    def start(self) -> None:
        self._process = OwnProcess(self._clock)
        self._collector.start()
        self._lag.start()

    def stop(self) -> None:
        if self._process is not None:
            self._lag.stop()
            self._collector.stop()
            self._process.close()
            self._process = None

    def sample(self) -> Mapping[str, Any]:
        """Return the health since the last sample; docs/reference has the keys, under the timing log."""
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
        """Return `lag_p99_ms`, `lag_max_ms`, `cpu_share` and `rss_bytes` from the last sample, where it has them."""
        if not self._latest:
            return {}
        figures = {name: self._latest[name] for name in ("cpu_share", "rss_bytes")}
        if self._latest["lags_us"]:
            lags_us = np.sort(np.array(self._latest["lags_us"], np.int64))
            figures["lag_p99_ms"] = percentile(lags_us, 99) / 1000
            figures["lag_max_ms"] = float(lags_us[-1]) / 1000
        return figures
