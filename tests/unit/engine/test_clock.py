"""The clock of a run: virtual time jumps from timer to timer, and nothing else about asyncio changes."""

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.engine.clock import MonotonicClock, VirtualLoop, run_virtual


@settings(deadline=None, max_examples=50)
@given(delays=st.lists(st.integers(0, 5), max_size=30), cancelled=st.sets(st.integers(0, 29)))
def test_timers_fire_in_order(delays: list[int], cancelled: set[int]) -> None:
    async def main(clock: VirtualLoop) -> list[tuple[int, int]]:
        rung: list[tuple[int, int]] = []
        loop = asyncio.get_running_loop()
        timers = [
            loop.call_later(delay, lambda number=number: rung.append((clock.now_ns(), number)))
            for number, delay in enumerate(delays)
        ]
        for number in cancelled:
            if number < len(timers):
                timers[number].cancel()
        await asyncio.sleep(6)
        return rung

    expected = sorted((delay * 10**9, number) for number, delay in enumerate(delays) if number not in cancelled)
    assert run_virtual(main) == expected


def test_virtual_time_skips_long_sleeps() -> None:
    """A long sleep takes its virtual time exactly; in real time, the test would not end."""

    async def main(clock: VirtualLoop) -> tuple[int, float]:
        await asyncio.sleep(8 * 3600)
        return clock.now_ns(), asyncio.get_running_loop().time()

    assert run_virtual(main) == (28_800 * 10**9, 28_800.0)


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def main(clock: VirtualLoop) -> int:
        loop = asyncio.get_running_loop()
        loop.call_later(1, print).cancel()
        await asyncio.sleep(2)
        loop.call_later(5, print).cancel()
        return clock.now_ns()

    assert run_virtual(main) == 2 * 10**9


def test_a_timer_cancelled_at_its_own_instant_does_not_fire() -> None:
    async def main(_: VirtualLoop) -> list[str]:
        rung: list[str] = []
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []

        def take_back() -> None:
            timers[0].cancel()

        loop.call_later(1, take_back)
        timers.append(loop.call_later(1, rung.append, "second"))
        await asyncio.sleep(2)
        return rung

    assert run_virtual(main) == []


def test_timeouts_fire_at_their_instant() -> None:
    async def main(clock: VirtualLoop) -> tuple[int, int]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.sleep(10)
        struck = clock.now_ns()
        async with asyncio.timeout(3):
            await asyncio.sleep(2)
        return struck, clock.now_ns()

    assert run_virtual(main) == (3 * 10**9, 5 * 10**9)


def test_waiting_without_any_timer_is_an_error() -> None:
    """Without a timer nothing will ever wake anybody: that is said, instead of hanging."""

    async def main(_: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="never happen"):
        run_virtual(main)


def test_the_real_clock_never_goes_back() -> None:
    before = time.monotonic_ns()
    first, second = MonotonicClock().now_ns(), MonotonicClock().now_ns()
    assert before <= first <= second <= time.monotonic_ns()
