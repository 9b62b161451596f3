"""The Dask scheduler of a cluster. It knows which clients are connected, by name and address, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.own_dask import PAGES_ADDRESS, Scheduler, SchedulerPlugin, silence_dask
from loadsim.cluster.security import Access
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed


class _Registrations(SchedulerPlugin):
    """Reports clients that join and leave."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._names: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Report a client; Dask calls this with the address of its Dask worker."""
        self._names[worker] = name = str(scheduler.workers[worker].name)
        self._report(f"client {name} has joined")

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **about: Any) -> None:
        self._report(f"client {self._names.pop(worker, worker)} is gone")


@asynccontextmanager
async def scheduler_at(access: Access, report: Callable[[str], None]) -> AsyncIterator[ControlAddress]:
    """Listen while the block lasts, and yield the address. `report` gets a line for each client that joins or leaves.

    Raises `ConfigError` if it cannot listen there.
    """
    silence_dask()
    address = access.address
    scheduler = Scheduler(
        protocol=address.protocol,
        host=bracketed(address.host),
        port=address.port,
        dashboard=False,
        dashboard_address=PAGES_ADDRESS,
        security=access.security,
        plugins=(_Registrations(report),),
    )
    try:
        await scheduler
    except RuntimeError as failure:
        cause = failure.__cause__
        why = getattr(cause, "strerror", None) or cause or failure
        raise ConfigError(f"--listen {address}: expected an address to listen at, found: {why}") from None
    async with scheduler:
        yield replace(address, port=scheduler.port)
