"""A process's event loop, its orderly end after a signal, and task groups."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from loadsim.processes.signals import handled_by

T = TypeVar("T")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def fastest_loop() -> LoopFactory | None:
    """Return uvloop's loop if it is installed (`loadsim[fast]`); None for asyncio's own loop.

    uvloop rounds delays to the nearest millisecond: a sleeper who looks at the clock wakes up to seven times for
    nothing. This loop rounds up, as asyncio's does.
    """
    if find_spec("uvloop") is None:
        return None
    base: Any = import_module("uvloop").Loop

    class Loop(base):  # type: ignore[misc]
        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
            return super().call_later(math.ceil(delay * 1000) / 1000, callback, *args, context=context)

    Loop.__module__ = base.__module__
    return Loop


def run(main: Coroutine[Any, Any, T], loop_factory: LoopFactory | None = None) -> T:
    """Run a coroutine to completion. A signal cancels it once; after its clean-up, raise `KeyboardInterrupt`.

    By default, asyncio interrupts the clean-up at the second Ctrl-C, and leaves behind tasks that log errors.
    """
    signalled = False
    task: asyncio.Task[T] | None = None

    def on_signal(first: bool) -> None:
        nonlocal signalled
        signalled |= first
        if first and task is not None and not task.done():
            loop.call_soon_threadsafe(task.cancel)

    with handled_by(on_signal), asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        if signalled:
            task.cancel()
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if signalled:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def calls_on_signal(act: Callable[[], object]) -> Iterator[None]:
    """Make each SIGINT or SIGTERM in the block call `act` in the running loop instead of ending the process."""
    loop = asyncio.get_running_loop()

    def on_signal(_: bool) -> None:
        loop.call_soon_threadsafe(act)

    with handled_by(on_signal, even_if_ignored=True):
        yield


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Yield a task group. If several tasks fail, the block raises the first error, not an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


@asynccontextmanager
async def background_tasks(*endless: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless coroutines until the block ends. If one of them fails, the block raises its error."""
    async with task_group() as group:
        tasks = [group.create_task(coroutine) for coroutine in endless]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
