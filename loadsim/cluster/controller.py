"""The station's end of a cluster: which clients there are, and a channel to the machine process of each.

Dask says who is there, under which name and at which address; what machines and station say goes from one to the other
without the scheduler. Nothing here waits for anybody longer than it says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import dask
from distributed import Client
from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm, connect
from distributed.core import send_recv
from distributed.security import Security

from loadsim.analysis.clock_model import Reading
from loadsim.analysis.per_client import by_number
from loadsim.cluster.agent import ATTEND, DESCRIBE, QUIET, READ_CLOCK
from loadsim.cluster.background import background_tasks
from loadsim.cluster.channel import WorkerChannel
from loadsim.cluster.clock_sync import read_clock
from loadsim.cluster.identifiers import CLIENT_NAME
from loadsim.cluster.reliable_channel import BEAT_S, lines_in
from loadsim.cluster.security import Way
from loadsim.engine.channel import Channel
from loadsim.engine.coordinator import MemberAssignment
from loadsim.errors import ConfigError

ANSWER_LIMIT_S = 10.0
"""How long an agent may take to answer."""

LOOK_UP_LIMIT_S = 2.0
"""How long the scheduler may take to say where everybody is, when we have known it before."""

CONNECT_LIMIT_S = 5.0
"""How long it may take to be reached: Dask tries again within this time, at first after a fifth of it."""

ATTEMPTS = 3
"""So often the clock of a client may not be told at first: where many clients share a machine, all begin at once."""

CLOCK_EVERY_S = 10.0
"""How often the clock of each client is read while a run lasts."""

MOST_BEATS = 3
"""A connection by which nothing came for so many beats is cut, and another one is tried."""

ENTER_LIMIT_S = 30.0
"""How long a station that was there a moment ago may take to let us in."""

MISSES = 8
"""For the station's pool: a client that is not heard of for more seconds is lost. It takes some to find a machine again
whose network was cut for five."""

RECONNECT_LIMIT_S = 7 * 24 * 3600.0
"""How long a station may be gone whose cluster we use: runs do without it, and last for days."""

FAREWELL_S = 10.0
"""How long a machine may take to hear that its last word was heard."""


async def reach(way: Way, name: str | None = None) -> str:
    """Ask whether the station is there, and a client of this name could join; our own address by which it is reached.

    Dask would try in silence for ever where a certificate is not the station's. Raises `ConnectionError`, one line.
    """
    try:
        comm = await connect(str(way.address), timeout=CONNECT_LIMIT_S, **way.security.get_connection_args("worker"))
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                about = await send_recv(comm, op="identity")
        finally:
            comm.abort()
    except (OSError, TimeoutError) as failure:
        raise ConnectionError(deepest(failure)) from None
    if any(str(worker["name"]) == name for worker in about["workers"].values()):
        raise ConnectionError(f"another client {name}, or one that was cut off a moment ago")
    host: str = get_address_host(comm.local_address)
    return f"[{host}]" if ":" in host else host


def deepest(failure: BaseException) -> str:
    """What was wrong in the end: Dask wraps it."""
    while failure.__cause__ is not None:
        failure = failure.__cause__
    return getattr(failure, "strerror", None) or str(failure) or "no answer"


@asynccontextmanager
async def cluster_at(way: Way) -> AsyncIterator[Cluster]:
    """The cluster of a station, which may go and come back while the block lasts.

    Raises `ConfigError` when it is not there at first.
    """
    try:
        await reach(way)
    except ConnectionError as failure:
        raise ConfigError(f"--cluster {way.address}: expected a control station there, found: {failure}") from None
    with dask.config.set(QUIET):
        control = Client(
            str(way.address), security=way.security, asynchronous=True, set_as_default=False, timeout=RECONNECT_LIMIT_S
        )
        try:
            async with asyncio.timeout(ENTER_LIMIT_S):
                await control
        except TimeoutError:
            await control.close()
            found = "one that fell silent"
            raise ConfigError(f"--cluster {way.address}: expected a control station there, found {found}") from None
        async with control:
            yield Cluster(control, way.security)


class Cluster:
    """The clients of a cluster, by their names. `control` is a Dask client on a running loop."""

    def __init__(self, control: Client, security: Security) -> None:
        self._control = control
        self._known: dict[str, str] = {}  # addresses by name
        # As the scheduler does it: clients show a certificate of ours, and their addresses stand in none.
        self._security: dict[str, Any] = security.get_connection_args("scheduler")

    async def clients(self) -> dict[str, dict[str, Any]]:
        """What each client says of itself; workers that are no clients of loadsim's are left out.

        Raises `OSError` or `TimeoutError` when scheduler or client cannot be reached; of a client, it is said which.
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
        said = await asyncio.gather(*map(describe, names))
        return {name: about for name, about in zip(names, said, strict=True) if about is not None}

    async def ask(self, name: str, what: str, **about: Any) -> Any:
        """One question to an agent. Raises `OSError` or `TimeoutError`."""
        async with self.connected(name) as comm, asyncio.timeout(ANSWER_LIMIT_S):
            return await send_recv(comm, op=what, **about)

    @asynccontextmanager
    async def connected(self, name: str) -> AsyncIterator[Comm]:
        """A connection to a client's agent. Raises `OSError` or `TimeoutError`."""
        comm = await self.connect(name)
        try:
            yield comm
        finally:
            comm.abort()

    async def connect(self, name: str) -> Comm:
        """The same, for whoever ends it himself."""
        async with asyncio.timeout(ANSWER_LIMIT_S):
            address = (await self._addresses()).get(name)
            if address is None:
                raise ConnectionError(f"no client {name}")
            comm: Comm = await connect(address, timeout=CONNECT_LIMIT_S, **self._security)
            return comm

    async def _addresses(self) -> dict[str, str]:
        """Those that the scheduler knows; while it does not answer, those that it knew last, where clients still are.

        What has a name that no client of ours can have is none: names become directories here.

        Raises `OSError` or `TimeoutError` when it has never answered.
        """
        try:
            async with asyncio.timeout(LOOK_UP_LIMIT_S if self._known else ANSWER_LIMIT_S):
                assert self._control.scheduler is not None
                about = await self._control.scheduler.identity()
        except (OSError, TimeoutError):
            if not self._known:
                raise
        else:
            named = {str(worker["name"]): address for address, worker in about["workers"].items()}
            self._known = {name: address for name, address in named.items() if CLIENT_NAME.fullmatch(name)}
        return self._known

    @asynccontextmanager
    async def machines(self, run: str) -> AsyncIterator[Callable[[MemberAssignment], Awaitable[Channel]]]:
        """What opens channels to machine processes for a run (`Pool`'s `open_channel`), one for each part.

        A part's name is its client's. Asked again for one it is the same channel, and the machine's clock is read anew.
        At the end of the block, machines have some seconds to hear that all was heard.
        """
        channels: dict[str, WorkerChannel] = {}
        attended: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as group:

                async def open_channel(part: MemberAssignment) -> Channel:
                    clock = await self._first_reading(part.name)
                    if part.name in channels:
                        channels[part.name].set_clock(clock)
                        return channels[part.name]
                    channel = channels[part.name] = WorkerChannel(clock)
                    attended.append(group.create_task(self._attend(part.name, run, channel)))
                    return channel

                try:
                    yield open_channel
                except BaseException:
                    for channel in channels.values():
                        channel.kill()
                    raise
                finally:
                    if attended:
                        _, late = await asyncio.wait(attended, timeout=FAREWELL_S)
                        for task in late:
                            task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _first_reading(self, name: str) -> Reading:
        """Raises `ConfigError` when the client is not there, or stays too busy to answer."""
        try:
            for _ in range(ATTEMPTS - 1):
                with suppress(OSError, TimeoutError):
                    return await self._read_clock(name)
                await asyncio.sleep(BEAT_S)
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

    async def _follow_clock(self, name: str, channel: WorkerChannel) -> None:
        """Read a client's clock again and again, as long as it is there: clocks drift, and its log shall say how."""
        while True:
            await asyncio.sleep(CLOCK_EVERY_S)
            with suppress(OSError, TimeoutError):
                channel.send_clock(await self._read_clock(name))

    async def _attend(self, name: str, run: str, channel: WorkerChannel) -> None:
        """Keep a channel attached to its machine, by one connection after the other, until it has ended."""
        comms: list[Comm] = []  # the connection that there is

        async def beat() -> None:
            while True:
                await asyncio.sleep(BEAT_S)
                channel.link.beat()
                if channel.link.silent_beats > MOST_BEATS:
                    for comm in comms:
                        comm.abort()

        async with background_tasks(beat(), self._follow_clock(name, channel)):
            while channel.ended is None:
                with suppress(OSError, TimeoutError):
                    async with self.connected(name) as comm:
                        comms[:] = [comm]
                        await _speak(comm, run, channel)
                if channel.ended is None:
                    await asyncio.sleep(BEAT_S)


class Conversation:
    """Many questions to one agent, over one connection; over another one when it fails. Use it as a context manager."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._comm: Comm | None = None

    async def ask(self, what: str, limit_s: float = ANSWER_LIMIT_S, **about: Any) -> Any:
        """See `Cluster.ask`. Raises `OSError` or `TimeoutError`, and what the agent raises."""
        try:
            if self._comm is None:
                self._comm = await self._cluster.connect(self._name)
            async with asyncio.timeout(limit_s):
                return await send_recv(self._comm, op=what, **about)
        except BaseException:  # an answer may still come, which would be taken for that to the next question
            self._end()
            raise

    def _end(self) -> None:
        if self._comm is not None:
            self._comm.abort()
            self._comm = None

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


async def _speak(comm: Comm, run: str, channel: WorkerChannel) -> None:
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
        async with background_tasks(tell()):
            while True:
                said = await comm.read()
                if isinstance(said, dict) and isinstance(said.get("gone"), str):
                    channel.end(said["gone"])
                    return
                for line in lines_in(said):
                    channel.link.feed(line)
    except ValueError as problem:
        channel.end(f"another station's machine, or a damaged one: {problem}")
    finally:
        channel.link.detach()
