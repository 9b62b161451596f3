"""Background tasks scoped to a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def background_tasks(*endless: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless coroutines until the block ends. If one of them fails, the block raises the same error."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in endless]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
