"""The scheduler of a cluster: it knows who is there, under which name and at which address, and no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import dask
from distributed import Scheduler, SchedulerPlugin

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.agent import QUIET
from loadsim.cluster.security import PAGES_ADDRESS, Way
from loadsim.errors import ConfigError

FORGET_S = 15
"""A client that was not heard of for longer is no longer there, and its name can be taken again; that is looked at as
often. A client that was cut off for some seconds is still there when it is back."""


class _Door(SchedulerPlugin):
    """Tells who comes and goes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._names: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """As Dask calls it, with the worker's address."""
        self._names[worker] = name = str(scheduler.workers[worker].name)
        self._tell(f"client {name} has joined")

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **about: Any) -> None:
        """As Dask calls it."""
        self._tell(f"client {self._names.pop(worker, worker)} is gone")


@asynccontextmanager
async def scheduler_at(way: Way, tell: Callable[[str], None]) -> AsyncIterator[ControlAddress]:
    """Listen while the block lasts; where that is. `tell` is told in a line who joins and who is gone.

    Raises `ConfigError` when it cannot be listened there.
    """
    address = way.address
    settings = {**QUIET, "distributed.scheduler.worker-ttl": f"{FORGET_S}s"}
    with dask.config.set(settings):
        scheduler = Scheduler(
            protocol=address.protocol,
            host=address.written_host,
            port=address.port,
            dashboard=False,
            dashboard_address=PAGES_ADDRESS,
            security=way.security,
            plugins=(_Door(tell),),
        )
        try:
            await scheduler
        except RuntimeError as failure:
            cause = failure.__cause__
            why = getattr(cause, "strerror", None) or cause or failure
            raise ConfigError(f"--listen {address}: expected an address to listen at, found: {why}") from None
        async with scheduler:
            yield replace(address, port=scheduler.port)
