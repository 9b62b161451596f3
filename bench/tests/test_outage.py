"""The proxy that goes down or stops for a while: what its clients see of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from patience import PATIENCE_S

from bench.misdeeds import DROPPED, REFUSED, SILENCE, STALL
from bench.nullserver import HOST
from bench.outage import OutageProxy


class Client:
    """A connection through the proxy to a server that says back each line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, line: bytes) -> None:
        """Send a line."""
        self._writer.write(line + b"\n")

    async def hear(self) -> bytes:
        """A line; nothing at the end."""
        return (await asyncio.wait_for(self._reader.readline(), PATIENCE_S)).rstrip(b"\n")

    async def ask(self, line: bytes) -> bytes:
        """Both."""
        self.say(line)
        return await self.hear()

    async def close(self) -> None:
        """End the connection."""
        self._writer.close()
        await self._writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Place:
    """A proxy in front of an echo server, what makes a client of it, and what it has kept."""

    proxy: OutageProxy
    connect: Callable[[], Awaitable[Client]]
    kept: asyncio.Queue[bytes]

    async def keeps(self, *said: bytes) -> None:
        """Wait until it has kept these lines, in any order."""
        kept = [await asyncio.wait_for(self.kept.get(), PATIENCE_S) for _ in said]
        assert sorted(kept) == sorted(line + b"\n" for line in said)


def through_proxy(talk: Callable[[Place], Awaitable[None]]) -> None:
    """Let a conversation take place."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(line)
        finally:
            writer.close()

    @asynccontextmanager
    async def clients(port: int) -> AsyncIterator[Callable[[], Awaitable[Client]]]:
        made: list[Client] = []

        async def connect() -> Client:
            made.append(Client(*await asyncio.open_connection(HOST, port)))
            return made[-1]

        yield connect
        for client in made:
            await client.close()

    async def main() -> None:
        async with await asyncio.start_server(echo, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            kept: asyncio.Queue[bytes] = asyncio.Queue()
            async with OutageProxy(port, kept.put_nowait) as proxy, clients(proxy.port) as connect:
                await talk(Place(proxy, connect, kept))

    asyncio.run(main())


def test_connections_are_refused_until_the_outage_ends() -> None:
    """Those that there were are gone, and the port takes none; then it does, and the outage can come again."""

    async def talk(place: Place) -> None:
        for _ in range(2):
            client = await place.connect()
            assert await client.ask(b"before") == b"before"
            await place.proxy.begin(REFUSED)
            assert await client.hear() == b""
            with pytest.raises(ConnectionRefusedError) as refused:
                await place.connect()
            assert refused.value.errno == errno.ECONNREFUSED
            await place.proxy.end()
        assert await (await place.connect()).ask(b"after") == b"after"

    through_proxy(talk)


def test_connections_are_dropped_until_the_outage_ends() -> None:
    """Those that there were are gone, and each new one ends at once."""

    async def talk(place: Place) -> None:
        client = await place.connect()
        assert await client.ask(b"before") == b"before"
        await place.proxy.begin(DROPPED)
        assert await client.hear() == b""
        assert await (await place.connect()).hear() == b""
        await place.proxy.end()
        assert await (await place.connect()).ask(b"after") == b"after"

    through_proxy(talk)


def test_data_sent_during_a_silence_is_lost_with_its_connection() -> None:
    """A connection on which nothing is sent stays."""

    async def talk(place: Place) -> None:
        speaking, still = await place.connect(), await place.connect()
        for client in (speaking, still):
            assert await client.ask(b"before") == b"before"
        await place.proxy.begin(SILENCE)
        new = await place.connect()
        for client in (speaking, new):
            client.say(b"in it")
        await place.keeps(b"in it", b"in it")
        await place.proxy.end()
        for client in (speaking, new):
            client.say(b"after")
        await place.keeps(b"after", b"after")
        assert await still.ask(b"after") == b"after"
        assert await (await place.connect()).ask(b"after") == b"after"

    through_proxy(talk)


def test_data_sent_during_a_stall_is_answered_at_its_end() -> None:
    """All of it, in order; nothing before."""

    async def talk(place: Place) -> None:
        client = await place.connect()
        assert await client.ask(b"before") == b"before"
        await place.proxy.begin(STALL)
        client.say(b"one")
        answer = asyncio.ensure_future(client.hear())
        new = await place.connect()
        new.say(b"two")
        await place.keeps(b"one", b"two")
        assert not answer.done()
        await place.proxy.end()
        assert await answer == b"one"
        assert await new.hear() == b"two"
        assert await client.ask(b"three") == b"three"

    through_proxy(talk)
