"""Waiting in a loop whose clock is put forward: time limits pass at once."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, ParamSpec

from imap_script import PATIENCE_S, SkippingLoop, skip

P = ParamSpec("P")


async def turns(count: int = 8) -> None:
    """Let the other side read what was sent: on loopback it is there in the loop's next turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def within(
    limit_s: float, task: asyncio.Task[Any], progress: Callable[[], object] = lambda: None, step_s: float = 1.0
) -> None:
    """Put the clock forward, step by step, until the task is done; it may take no longer than this.

    While `progress` changes, nothing waits, and the clock stays.
    """
    skipped_s, before = 0.0, progress()
    async with asyncio.timeout(PATIENCE_S + 100 * limit_s):
        while not task.done():
            await turns(60)
            if not task.done():
                await asyncio.sleep(0.001)  # what was sent may still be on its way
                before, now = progress(), before
                if not task.done() and before == now:
                    skip(step_s)
                    skipped_s += step_s
                    assert skipped_s <= limit_s, "it does not end"


def run_watched(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run in a loop whose clock can be put forward; nothing may get as far as the loop's own handler of errors."""
    escaped: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
        await scenario()

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(watched())
    gc.collect(1)  # asyncio reports an exception that was never retrieved when it is collected
    assert escaped == []


def watched(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test by `run_watched`."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_watched(partial(test, *args, **kwargs))

    return run
