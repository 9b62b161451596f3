"""The Dask scheduler of a cluster. It knows which clients are connected, by name and address, and nothing else."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import dask
from distributed import Scheduler, SchedulerPlugin

from loadsim.cluster.address import ControlAddress
from loadsim.cluster.agent import DASK_SETTINGS
from loadsim.cluster.security import PAGES_ADDRESS, Access
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed

FORGET_S = 15
"""Seconds without a heartbeat after which a client is removed, and its name is free; checked as often.

A client that was cut off for some seconds keeps its place.
"""

LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application")
"""The loggers for which Dask sets a level; their children inherit it."""


def silence_dask() -> None:
    """Silence Dask's log messages in this process, as commands report events in lines of their own.

    Call it when Dask is imported, which sets the levels. Dask also warns if it cannot detect the address of this
    machine, on a network without a route to others; loadsim gives it the address.
    """
    warnings.filterwarnings("ignore", message="Couldn't detect a suitable IP address", category=RuntimeWarning)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


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
    address = access.address
    settings = {**DASK_SETTINGS, "distributed.scheduler.worker-ttl": f"{FORGET_S}s"}
    with dask.config.set(settings):
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
