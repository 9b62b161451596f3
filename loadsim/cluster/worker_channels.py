"""Channels from the controller to the workers of a run, which stay connected through the clients' agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from loadsim.analysis.clocks.model import Reading
from loadsim.cluster.agent import ATTEND, READ_CLOCK
from loadsim.cluster.channel import WorkerChannel, read_clock
from loadsim.cluster.controller import Cluster, retried
from loadsim.cluster.own_dask import Comm, send_recv
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.security import ANSWER_LIMIT_S
from loadsim.engine.channel import Channel
from loadsim.engine.coordinator import MemberAssignment, OpenChannel
from loadsim.errors import ConfigError
from loadsim.processes.event_loop import background_tasks, task_group

ATTEMPTS = 3
"""Attempts at the first reading of a client's clock: many clients on one machine may start at the same time."""

CLOCK_EVERY_S = 10.0
"""Seconds between the readings of each client's clock during a run."""

MOST_BEATS = 3
"""After this many beats without a line, the connection is cut, and a new one is tried."""

CLOSE_LIMIT_S = 10.0
"""Time limit for a worker to receive the acknowledgement of its last message."""


@asynccontextmanager
async def worker_channels(cluster: Cluster, run: str) -> AsyncIterator[OpenChannel]:
    """Yield the function that opens the channel to a worker of a run.

    A second call for a client reads its clock again, and returns the same channel. At the end of the block, workers get
    `CLOSE_LIMIT_S` to receive all acknowledgements. If the block fails, they are killed.
    """
    channels: dict[str, WorkerChannel] = {}
    attended: list[asyncio.Task[None]] = []
    async with task_group() as group:

        async def open_channel(assigned: MemberAssignment) -> Channel:
            name = assigned.name
            clock = await _first_reading(cluster, name)
            if name in channels:
                channels[name].set_clock(clock)
                return channels[name]
            channel = channels[name] = WorkerChannel(clock)
            attended.append(group.create_task(_keep_attached(cluster, name, run, channel)))
            return channel

        try:
            yield open_channel
        except BaseException:
            for channel in channels.values():
                channel.kill()
            raise
        finally:
            if attended:
                _, late = await asyncio.wait(attended, timeout=CLOSE_LIMIT_S)
                for task in late:
                    task.cancel()


async def _first_reading(cluster: Cluster, name: str) -> Reading:
    """Read a client's clock. Raises `ConfigError` if the client is not connected, or too busy to answer."""
    try:
        return await retried(lambda: _read_clock(cluster, name), ATTEMPTS)
    except (OSError, TimeoutError) as failure:
        raise ConfigError(f"client {name}: expected an agent, found: {failure or 'no answer'}") from None


async def _read_clock(cluster: Cluster, name: str) -> Reading:
    async def ask() -> int:
        there_ns: int = await send_recv(comm, op=READ_CLOCK)
        return there_ns

    async with cluster.connected(name) as comm, asyncio.timeout(ANSWER_LIMIT_S):
        return await read_clock(ask)


async def _follow_clock(cluster: Cluster, name: str, channel: WorkerChannel) -> None:
    """Read the client's clock periodically while the client is connected; its log then shows how it drifts."""
    while True:
        await asyncio.sleep(CLOCK_EVERY_S)
        with suppress(OSError, TimeoutError):
            channel.send_clock(await _read_clock(cluster, name))


async def _keep_attached(cluster: Cluster, name: str, run: str, channel: WorkerChannel) -> None:
    """Keep a channel connected to its worker until the channel has ended."""
    comms: list[Comm] = []  # the open connection

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            channel.link.beat()
            if channel.link.silent_beats > MOST_BEATS:
                for comm in comms:
                    comm.abort()

    async with background_tasks(beat(), _follow_clock(cluster, name, channel)):
        while channel.ended is None:
            with suppress(OSError, TimeoutError):
                async with cluster.connected(name) as comm:
                    comms[:] = [comm]
                    await _exchange(comm, run, channel)
            if channel.ended is None:
                await asyncio.sleep(BEAT_S)


async def _exchange(comm: Comm, run: str, channel: WorkerChannel) -> None:
    """Exchange lines over one connection until it or the channel ends. Raises `OSError` if the connection is lost."""
    outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def write() -> None:
        while True:
            lines = [await outgoing.get()]
            while not outgoing.empty():
                lines.append(outgoing.get_nowait())
            await comm.write(lines)

    await comm.write({"op": ATTEND, "run": run, "reply": False})
    channel.link.attach(outgoing.put_nowait)
    try:
        async with background_tasks(write()):
            while True:
                message = await comm.read()
                if isinstance(message, dict):
                    channel.end(message["gone"])
                    return
                for line in message:
                    channel.link.feed(bytes(line))
    except ValueError as problem:
        channel.end(f"another controller's worker, or a faulty one: {problem}")
    finally:
        channel.link.detach()
