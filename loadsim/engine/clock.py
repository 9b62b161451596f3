"""A run's only clock: real, or a virtual one that jumps to the next timer.

In production it is `time.monotonic_ns`. `loop.time()` is never used for measurements, because uvloop rounds it to a
millisecond. Under a `VirtualLoop` nothing waits: when all coroutines sleep, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from loadsim.processes.event_loop import run

T = TypeVar("T")
Args = TypeVarTuple("Args")


class MonotonicClock:
    def now_ns(self) -> int:
        """Return nanoseconds; only differences mean anything."""
        return time.monotonic_ns()


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, without input or output: an eight-hour day takes seconds.

    Time is counted in whole nanoseconds, so that rounding does not decide which timers coincide. Timers are in a heap
    of tuples, which are compared in C; asyncio's own are compared in Python. An exception in a callback ends the run.
    """

    _ready: deque[asyncio.Handle]  # asyncio's own: callbacks that are due

    def __init__(self) -> None:
        super().__init__()
        self._now_ns = 0
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._count = itertools.count()

    def time(self) -> float:
        """Return seconds of virtual time since the loop was created."""
        return self._now_ns * 1e-9

    def now_ns(self) -> int:
        """Return nanoseconds since the loop was created: this loop is its own clock."""
        return self._now_ns

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at an instant; timers for the same instant run in the order in which they were set."""
        return self._call_at_ns(round(when * 1e9), callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self._call_at_ns(self._now_ns + round(delay * 1e9), callback, args, context)

    def _call_at_ns(
        self, at_ns: int, callback: Callable[..., object], args: tuple[object, ...], context: Context | None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(at_ns * 1e-9, callback, args, self, context)
        heapq.heappush(self._timers, (at_ns, next(self._count), timer))
        return timer

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise a callback's exception, unless an engine has set a handler. Other loops log it and carry on."""
        if "handle" in context and self.get_exception_handler() is None:
            raise context["exception"]
        super().call_exception_handler(context)

    def _run_once(self) -> None:
        """Run one turn of asyncio's loop, without input and output; if nothing is ready, the clock jumps."""
        ready = self._ready
        if not ready:
            self._jump()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise RuntimeError("every coroutine waits for something that can never happen")
        at_ns, _, timer = heapq.heappop(timers)
        self._now_ns = now_ns = max(self._now_ns, at_ns)
        self._ready.append(timer)
        while timers and timers[0][0] <= now_ns:
            self._ready.append(heapq.heappop(timers)[2])


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` to its end in virtual time. It is called with the loop, which is also the clock."""
    loop = VirtualLoop()
    return run(main(loop), lambda: loop)
