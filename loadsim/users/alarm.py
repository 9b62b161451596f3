"""The sleep of one who acts: until an instant, until `wake` is called, or until the end of work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Alarm:
    """Wakes one sleeper at an instant of the clock `now` (nanoseconds), or when `wake` or `close` is called.

    Once it is `closed`, the sleeper begins no more work.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.closed = False
        self._now = now
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at_ns: int | None = None

    def until(self, at_ns: int | None) -> asyncio.Future[None]:
        """Return a future that is done at this instant (None: never), or when `wake` is called."""
        loop = asyncio.get_running_loop()
        if at_ns != self._at_ns:  # users who are woken by mail usually go back to sleep until the same instant
            self.cancel()
            self._at_ns = at_ns
            if at_ns is not None:
                left_ns = max(0, at_ns - self._now())
                self._timer = loop.call_later(left_ns * 1e-9, self._ring)
        self._waiter = waiter = loop.create_future()
        return waiter

    async def sleep(self, until_ns: int) -> None:
        """Return at this instant, or when `close` is called, but not for `wake`."""
        while self._now() < until_ns and not self.closed:
            await self.until(until_ns)

    async def work(
        self,
        next_ns: Callable[[], int | None],
        act: Callable[[], Awaitable[None]],
        was_only_cut_off: Callable[[], bool],
    ) -> None:
        """Act when the next thing is due, until `close` is called. A cancellation that only cuts off an act is over."""
        while not self.closed:
            try:
                due_ns = next_ns()
                if due_ns is not None and due_ns <= self._now():
                    await act()
                else:
                    await self.until(due_ns)
            except asyncio.CancelledError:
                if not was_only_cut_off():
                    raise

    def close(self) -> None:
        self.closed = True
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._at_ns = None

    def _ring(self) -> None:
        self._timer = self._at_ns = None
        self.wake()
