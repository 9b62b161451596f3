"""An engine's own health: lags, pauses and clocks, each made to go wrong on purpose."""

import asyncio
import gc
import mmap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from virtual_runs import live, quiet, scenario_of

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.health import (
    TICK_NS,
    ClockSteps,
    CollectorPauses,
    EngineLateness,
    Health,
    LoopLag,
    OwnProcess,
    open_files,
)

BLOCKED_NS = 100_000_000


def fall_behind(lag: LoopLag, by_ns: int = BLOCKED_NS) -> None:
    """Let the ticks of this time be due before the loop's next turn, as if it had been blocked for as long."""
    lag._due_ns -= by_ns


def listed() -> int:
    """Return the number of open files of this process, including the one that lists them."""
    return len(list(Path("/proc/self/fd").iterdir()))


def loops() -> Iterator[Callable[[], asyncio.AbstractEventLoop]]:
    yield asyncio.new_event_loop
    if find_spec("uvloop"):
        yield import_module("uvloop").new_event_loop


@pytest.fixture(params=loops(), ids=lambda factory: factory.__module__.split(".")[0])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as made:
        yield made


async def until_ticks(lag: LoopLag, ticks: int) -> tuple[int, list[int]]:
    gathered: list[int] = []
    first_ns = 0
    while len(gathered) < ticks:
        await asyncio.sleep(0.001)
        from_ns, lags_us = lag.take()
        first_ns = first_ns or from_ns
        gathered += lags_us
    return first_ns, gathered


def test_a_blocked_loop_is_late_for_every_tick_that_it_missed(runner: asyncio.Runner) -> None:
    """Ten ticks fall due in 100 ms: the first waits as long, and each next one a tick less."""

    async def block() -> list[int]:
        lag = LoopLag()
        lag.start()
        try:
            await until_ticks(lag, 1)
            fall_behind(lag)
            return (await until_ticks(lag, 12))[1]
        finally:
            lag.stop()

    lags_us = runner.run(block())
    worst = lags_us.index(max(lags_us))
    missed = lags_us[worst : worst + 9]
    assert missed[0] >= BLOCKED_NS // 1000
    assert [before - after for before, after in pairwise(missed)] == [TICK_NS // 1000] * 8


def test_ticks_are_due_at_fixed_instants(runner: asyncio.Runner) -> None:
    """However late the loop was, the ticks of one take follow those of the last by one interval."""

    async def takes() -> list[tuple[int, list[int]]]:
        lag = LoopLag()
        lag.start()
        try:
            return [await until_ticks(lag, 3) for _ in range(3)]
        finally:
            lag.stop()

    found = runner.run(takes())
    for (first_ns, lags_us), (next_ns, _) in pairwise(found):
        assert next_ns == first_ns + len(lags_us) * TICK_NS


class HalfBusy(MonotonicClock):
    """A clock by which this process has used half of a core, however busy the machine is."""

    def now_ns(self) -> int:
        return 2 * time.process_time_ns()


def test_a_live_view_gets_the_figures_of_the_last_second(runner: asyncio.Runner) -> None:
    """The longest lag of the sample is that of the loop that was blocked; before a sample there is nothing to tell."""

    async def block() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        health = Health(HalfBusy(), EngineLateness())
        health.start()
        try:
            before = health.figures()
            sum(range(1_000_000))  # so much that the time between two readings of clocks is nothing
            fall_behind(health._lag)
            while not health._lag._lags_us:  # noqa: ASYNC110 - the kernel's timer rings
                await asyncio.sleep(0.001)
            health.sample()
            return before, health.figures()
        finally:
            health.stop()

    before, after = runner.run(block())
    assert before == {}
    assert after["lag_max_ms"] >= after["lag_p99_ms"] >= (BLOCKED_NS - TICK_NS) * 1e-6
    assert after["cpu_share"] == pytest.approx(0.5, abs=0.1)
    assert after["rss_bytes"] > 1_000_000


def test_the_memory_of_an_engine_is_all_that_is_resident() -> None:
    """Pages of its own count, not only those that it shares with other processes."""
    size_bytes = 32 << 20
    process = OwnProcess(MonotonicClock())
    try:
        with mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as own:
            before_bytes = process.take()["rss_bytes"]
            for at in range(0, size_bytes, mmap.PAGESIZE):
                own[at] = 1
            # The kernel adds pages in batches for each core.
            assert process.take()["rss_bytes"] - before_bytes > size_bytes // 2
    finally:
        process.close()


def test_a_stopped_probe_leaves_no_open_file(runner: asyncio.Runner) -> None:
    """Started and stopped as often as one likes: as many open files as before."""

    async def often() -> tuple[int, int]:
        before = listed()
        for _ in range(5):
            health = Health(MonotonicClock(), EngineLateness())
            health.start()
            health.sample()
            health.stop()
            health.stop()
        return before, listed()

    listening = len(gc.callbacks)
    before, after = runner.run(often())
    assert (after, len(gc.callbacks)) == (before, listening)


def test_a_garbage_collection_is_a_pause() -> None:
    """A requested collection is counted, with its time; the next sample starts from zero."""
    pauses = CollectorPauses()
    pauses.start()
    try:
        pauses.take()
        gc.disable()
        gc.collect()
        found = pauses.take()
        nothing = pauses.take()
    finally:
        gc.enable()
        pauses.stop()
    assert found["gc_max_ms"] > 0
    assert nothing == {"gc_max_ms": 0.0}


def test_the_longest_pause_counts() -> None:
    """Two pauses of 2 and 5 ms by a clock of the test's."""
    instants = iter([1_000_000, 3_000_000, 10_000_000, 15_000_000])
    pauses = CollectorPauses(lambda: next(instants))
    for phase in ("stop", "start", "stop", "start", "stop"):  # the first collection had begun before we listened
        pauses._note(phase, {})
    assert pauses.take() == {"gc_max_ms": 5.0}


class Clocks:
    def __init__(self) -> None:
        self.wall_ns, self.monotonic_ns = 1_700_000_000_000_000_000, 5_000_000_000
        self.readings = 0
        self.slow_at = -1

    def wall(self) -> int:
        return self.wall_ns

    def monotonic(self) -> int:
        """The monotonic clock; a reading of it may take 50 ms."""
        self.readings += 1
        if self.readings == self.slow_at:
            self.pass_time(0.05)
        return self.monotonic_ns

    def pass_time(self, seconds: float) -> None:
        self.wall_ns += round(seconds * 1e9)
        self.monotonic_ns += round(seconds * 1e9)


@pytest.mark.parametrize(
    ("set_by_s", "expected"),
    [
        (0.0, {}),
        (0.0005, {}),
        (-0.0005, {}),
        (0.01, {}),
        (5.0, {"clock_step_ms": 5000.0}),
        (-0.011, {"clock_step_ms": -11.0}),
    ],
)
def test_a_wall_clock_that_is_set_is_a_step(set_by_s: float, expected: dict[str, float]) -> None:
    """Set later or earlier by more than 10 ms is a step, told once; what slewing does in a second is none."""
    clocks = Clocks()
    steps = ClockSteps(clocks.wall, clocks.monotonic)
    clocks.pass_time(1)
    assert steps.take() == {}
    clocks.wall_ns += round(set_by_s * 1e9)
    clocks.pass_time(1)
    assert steps.take() == expected
    clocks.pass_time(1)
    assert steps.take() == {}


def test_a_process_that_is_interrupted_between_two_clocks_sees_no_step() -> None:
    """Half of 50 ms between the readings would look like a step of 25 ms: the clocks are read again."""
    clocks = Clocks()
    steps = ClockSteps(clocks.wall, clocks.monotonic)
    clocks.slow_at = clocks.readings + 2
    assert steps.take() == {}


def test_open_files_are_counted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        one = stack.enter_context((tmp_path / "one").open("w", encoding="utf-8"))
        before = open_files(one.fileno())
        for number in range(10):
            stack.enter_context((tmp_path / str(number)).open("w", encoding="utf-8"))
        assert open_files(one.fileno()) - before == 10
        assert abs(open_files(one.fileno()) - listed()) <= 2


def test_lateness_is_added_up_by_cause(tmp_path: Path) -> None:
    """The last sample and snapshot have what the records come to."""
    lived = live(scenario_of(tmp_path, (quiet(new_mail={"per_day": 100}), 2), day="120s"), tmp_path, service_s=1.0)
    last = lived.snapshots[-1]
    assert last.late_busy_s > 1
    for cause in ("busy", "down", "generator"):
        total_s = sum(task[f"late_{cause}_s"] for task in lived.tasks())
        assert getattr(last, f"late_{cause}_s") == pytest.approx(total_s)
        assert lived.log.health[-1][f"late_{cause}_s"] <= total_s + 0.001
