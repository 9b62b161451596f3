"""The station's end of a cluster: which clients there are, and a channel to the machine process of each.

Dask says who is there, under which name and at which address; what machines and station say goes from one to the other
without the scheduler. Nothing here waits for anybody longer than it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from distributed import Client
from distributed.comm.core import Comm, connect
from distributed.core import send_recv
from distributed.security import Security

from loadsim.client.channel import Channel
from loadsim.client.pool import Part
from loadsim.cluster.agent import ATTEND, DESCRIBE, READ_CLOCK
from loadsim.cluster.beside import beside
from loadsim.cluster.channel import MachineChannel
from loadsim.cluster.link import BEAT_S
from loadsim.cluster.offsets import read_clock
from loadsim.errors import ConfigError
from loadsim.results.clocks import Reading

ANSWER_LIMIT_S = 10.0
"""How long an agent may take to answer."""

CONNECT_LIMIT_S = 5.0
"""How long it may take to be reached: Dask tries again within this time, at first after a fifth of it."""

CLOCK_EVERY_S = 10.0
"""How often the clock of each client is read while a run lasts."""

MOST_BEATS = 3
"""A connection by which nothing came for so many beats is cut, and another one is tried."""

MISSES = 8
"""For the station's pool: a client that is not heard of for more seconds is lost. It takes some to find a machine again
whose network was cut for five."""

FAREWELL_S = 10.0
"""How long a machine may take to hear that its last word was heard."""


class Cluster:
    """The clients of a cluster, by their names. `control` is a Dask client on a running loop."""

    def __init__(self, control: Client, security: Security) -> None:
        self._control = control
        # As the scheduler does it: clients show a certificate of ours, and their addresses stand in none.
        self._security: dict[str, Any] = security.get_connection_args("scheduler")

    async def clients(self) -> dict[str, dict[str, Any]]:
        """What each client says of itself; workers that are no clients of loadsim's are left out.

        Raises `OSError` or `TimeoutError` when scheduler or client cannot be reached.
        """
        names = sorted(await self._addresses())
        said = await asyncio.gather(*(self.ask(name, DESCRIBE) for name in names))
        return {name: about for name, about in zip(names, said, strict=True) if about is not None}

    async def ask(self, name: str, what: str, **about: Any) -> Any:
        """One question to an agent. Raises `OSError` or `TimeoutError`."""
        async with self.connected(name) as comm, asyncio.timeout(ANSWER_LIMIT_S):
            return await send_recv(comm, op=what, **about)

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[Comm]:
        """A connection to a client's agent. Raises `OSError` or `TimeoutError`."""
        async with asyncio.timeout(ANSWER_LIMIT_S):
            address = (await self._addresses()).get(name)
            if address is None:
                raise ConnectionError(f"no client {name}")
            comm = await connect(address, timeout=CONNECT_LIMIT_S, **self._security)
        try:
            yield comm
        finally:
            comm.abort()

    async def _addresses(self) -> dict[str, str]:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            assert self._control.scheduler is not None
            about = await self._control.scheduler.identity()
        return {str(worker["name"]): address for address, worker in about["workers"].items()}

    @asynccontextmanager
    async def machines(self, run: str) -> AsyncIterator[Callable[[Part], Awaitable[Channel]]]:
        """What opens channels to machine processes for a run (`Pool`'s `open_channel`), one for each part.

        A part's name is its client's. At the end of the block, machines have some seconds to hear that all was heard.
        """
        attended: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as group:

                async def open_channel(part: Part) -> Channel:
                    channel = MachineChannel(await self._first_reading(part.name))
                    attended.append(group.create_task(self._attend(part.name, run, channel)))
                    return channel

                try:
                    yield open_channel
                finally:
                    if attended:
                        _, late = await asyncio.wait(attended, timeout=FAREWELL_S)
                        for task in late:
                            task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _first_reading(self, name: str) -> Reading:
        """Raises `ConfigError` when the client is not there."""
        try:
            return await self._read_clock(name)
        except (OSError, TimeoutError) as failure:
            raise ConfigError(f"client {name}: expected an agent, found: {failure or 'no answer'}") from None

    async def _read_clock(self, name: str) -> Reading:
        """A client's monotonic clock by ours. Raises `OSError` or `TimeoutError`."""

        async def ask() -> int:
            there_ns: int = await send_recv(comm, op=READ_CLOCK)
            return there_ns

        async with self.connected(name) as comm, asyncio.timeout(ANSWER_LIMIT_S):
            return await read_clock(ask)

    async def _follow_clock(self, name: str, channel: MachineChannel) -> None:
        """Read a client's clock again and again, as long as it is there: clocks drift, and its log shall say how."""
        while True:
            await asyncio.sleep(CLOCK_EVERY_S)
            with suppress(OSError, TimeoutError):
                channel.tell_clock(await self._read_clock(name))

    async def _attend(self, name: str, run: str, channel: MachineChannel) -> None:
        """Keep a channel attached to its machine, by one connection after the other, until it has ended."""
        comms: list[Comm] = []  # the connection that there is

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                channel.link.beat()
                if channel.link.unanswered > MOST_BEATS:
                    for comm in comms:
                        comm.abort()

        async with beside(beat(), self._follow_clock(name, channel)):
            while channel.ended is None:
                with suppress(OSError, TimeoutError):
                    async with self.connected(name) as comm:
                        comms[:] = [comm]
                        await _speak(comm, run, channel)
                if channel.ended is None:
                    await asyncio.sleep(BEAT_S)


async def _speak(comm: Comm, run: str, channel: MachineChannel) -> None:
    """By one connection, to its end. Raises `OSError` when it is cut."""
    outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def tell() -> None:
        while True:
            lines = [await outgoing.get()]
            while not outgoing.empty():
                lines.append(outgoing.get_nowait())
            await comm.write(lines)

    await comm.write({"op": ATTEND, "run": run, "reply": False})
    channel.link.attach(outgoing.put_nowait)
    try:
        async with beside(tell()):
            while True:
                said = await comm.read()
                if isinstance(said, dict):
                    channel.end(said["gone"])
                    return
                for line in said:
                    channel.link.receive(bytes(line))
    except ValueError as problem:
        channel.end(f"another station's machine: {problem}")
    finally:
        channel.link.detach()
