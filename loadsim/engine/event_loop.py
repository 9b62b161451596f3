"""Which event loop a process runs on, and how it leaves it when it is asked to go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from loadsim.engine.signals import heard_by, never_ignored

T = TypeVar("T")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def fastest_loop() -> LoopFactory | None:
    """What makes uvloop's loop, where it is installed (`loadsim[fast]`); None for asyncio's own."""
    if find_spec("uvloop") is None:
        return None
    factory: LoopFactory = import_module("uvloop").new_event_loop
    return factory


def run(main: Coroutine[Any, Any, T], loop_factory: LoopFactory | None = None) -> T:
    """Run it to its end. Asked to go, it is cancelled, once; `KeyboardInterrupt` when it has let go of everything.

    asyncio's own way breaks into the clearing up at the second Ctrl-C, and leaves tasks behind that complain.
    """
    asked = False
    task: asyncio.Task[T] | None = None

    def hear(first: bool) -> None:
        nonlocal asked
        asked |= first
        if first and task is not None and not task.done():
            loop.call_soon_threadsafe(task.cancel)

    with heard_by(hear), asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        task = loop.create_task(main)
        if asked:
            task.cancel()
        try:
            return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if asked:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def requests_are(act: Callable[[], object]) -> Iterator[None]:
    """While the block lasts, every request to go (SIGINT, SIGTERM) is a call of `act` by the running loop instead."""
    loop = asyncio.get_running_loop()

    def hear(_: bool) -> None:
        loop.call_soon_threadsafe(act)

    with heard_by(hear), never_ignored():
        yield
