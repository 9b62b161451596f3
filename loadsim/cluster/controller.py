"""The controller of a cluster: Dask's scheduler, its connected clients, and requests to their agents.

The scheduler knows the clients by name and address, and nothing else. Everything else goes directly to a client's
agent, over a connection of its own. Every wait here has a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from loadsim.analysis.generator.per_client import by_number
from loadsim.cluster.address import CLIENT_NAME, ControlAddress
from loadsim.cluster.agent import DESCRIBE
from loadsim.cluster.own_dask import (
    PAGES_ADDRESS,
    Client,
    Comm,
    Scheduler,
    SchedulerPlugin,
    Security,
    connect,
    send_recv,
    silence_dask,
)
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.security import ANSWER_LIMIT_S, CONNECT_LIMIT_S, Access, reach
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed

T = TypeVar("T")

LOOK_UP_LIMIT_S = 2.0
"""Time limit for the scheduler's answer if earlier addresses are known."""

ENTER_LIMIT_S = 30.0
"""Time limit for the registration with a scheduler that has just answered."""

MISSES = 8
"""A client is lost if it sends nothing for more than this many seconds.

Reconnecting to a client whose network was cut for five seconds takes some more.
"""

JOIN_POLL_S = 1.0
"""The interval at which clients are counted while more are awaited."""

RECONNECT_LIMIT_S = 7 * 24 * 3600.0
"""Time limit for the scheduler to come back: runs may last for days, and need no scheduler."""


@asynccontextmanager
async def cluster_at(access: Access) -> AsyncIterator[Cluster]:
    """Yield the cluster of a controller, which may be gone for a while during the block.

    Raises `ConfigError` if it does not answer at the start.
    """
    silence_dask()
    try:
        await reach(access)
    except ConnectionError as failure:
        raise ConfigError(f"--cluster {access.address}: expected a controller there, found: {failure}") from None
    dask_client = Client(
        access.address.for_dask,
        security=access.security,
        asynchronous=True,
        set_as_default=False,
        timeout=RECONNECT_LIMIT_S,
    )
    try:
        async with asyncio.timeout(ENTER_LIMIT_S):
            await dask_client
    except TimeoutError:
        await dask_client.close()
        found = "one that stopped answering"
        raise ConfigError(f"--cluster {access.address}: expected a controller there, found {found}") from None
    async with dask_client:
        yield Cluster(dask_client, access.security)


class Cluster:
    """The clients of a cluster, by name. `dask_client` belongs to the running event loop."""

    def __init__(self, dask_client: Client, security: Security) -> None:
        self._dask_client = dask_client
        self._known: dict[str, str] = {}  # addresses by name
        self._security: dict[str, Any] = security.get_connection_args("client")

    async def joined(self, wanted: int | None, tell: Callable[[str], object]) -> dict[str, dict[str, Any]]:
        """Wait until the wanted number of clients has joined (None: only those present), and return their descriptions.

        `tell` receives a line about each wait. Raises `ConfigError` if no number is wanted and no client is present.
        """
        announced = ""
        while True:
            try:
                clients = await self.clients()
                if clients and len(clients) >= (wanted or 1):
                    return clients
                why = f"{len(clients)} of {wanted or 'any'}"
            except (OSError, TimeoutError) as failure:
                why = str(failure) or "no answer"
            if wanted is None:
                raise ConfigError(f"--cluster: expected clients (loadsim client joins), found {why}")
            if why != announced:
                announced = why
                tell(f"Waiting for clients, found {why}")
            await asyncio.sleep(JOIN_POLL_S)

    async def clients(self) -> dict[str, dict[str, Any]]:
        """Return each client's description (`Agent.describe`). Dask workers that are not loadsim's are left out.

        Raises `OSError` or `TimeoutError` if the scheduler or a client does not answer; the text names the client.
        """

        async def describe(name: str) -> dict[str, Any] | None:
            try:
                about: dict[str, Any] | None = await self.ask(name, DESCRIBE)
            except (OSError, TimeoutError) as failure:
                raise ConnectionError(
                    f"client {name}, which does not answer ({failure or 'it takes too long'})"
                ) from None
            return about

        names = sorted(await self._addresses(), key=by_number)
        descriptions = await asyncio.gather(*map(describe, names))
        return {name: about for name, about in zip(names, descriptions, strict=True) if about is not None}

    async def ask(self, name: str, request: str, **about: Any) -> Any:
        """Send a request to an agent, and return the answer. Raises `OSError` or `TimeoutError`."""
        async with self.connected(name) as comm, asyncio.timeout(ANSWER_LIMIT_S):
            return await send_recv(comm, op=request, **about)

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[Comm]:
        """Yield a connection to a client's agent. Raises `OSError` or `TimeoutError`."""
        async with asyncio.timeout(ANSWER_LIMIT_S):
            address = (await self._addresses()).get(name)
            if address is None:
                raise ConnectionError(f"no client {name}")
            comm: Comm = await connect(address, timeout=CONNECT_LIMIT_S, **self._security)
        try:
            yield comm
        finally:
            comm.abort()

    async def _addresses(self) -> dict[str, str]:
        """Return the clients' addresses by name: the scheduler's, or its last known ones while it does not answer.

        Dask workers whose names are not valid for clients are left out, since names become directories. Raises
        `OSError` or `TimeoutError` if the scheduler has never answered.
        """
        try:
            async with asyncio.timeout(LOOK_UP_LIMIT_S if self._known else ANSWER_LIMIT_S):
                assert self._dask_client.scheduler is not None
                about = await self._dask_client.scheduler.identity()
        except (OSError, TimeoutError):
            if not self._known:
                raise
        else:
            named = {str(worker["name"]): address for address, worker in about["workers"].items()}
            self._known = {name: address for name, address in named.items() if CLIENT_NAME.fullmatch(name)}
        return self._known


async def retried(ask: Callable[[], Awaitable[T]], attempts: int, retry_s: float = BEAT_S) -> T:
    """Repeat a failed request after `retry_s`. Raises the `OSError` or `TimeoutError` of the last attempt."""
    for _ in range(attempts - 1):
        with suppress(OSError, TimeoutError):
            return await ask()
        await asyncio.sleep(retry_s)
    return await ask()


# --- the scheduler ---


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
    """Run a scheduler during the block, and yield its address. `report` gets a line for each client that comes or goes.

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
