"""A TCP proxy that hands on each answer a known time after it came: the same server, slower by just that.

What the client sends goes on at once. Answers keep their order and their distance from each other: a long one is not
slower by each of its pieces, but as a whole, as if the server were farther away in one direction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench.nullserver import HOST

CHUNK_BYTES = 65_536


@contextmanager
def delayed(port: int, delay_s: float) -> Iterator[int]:
    """The port of a proxy in front of another port, both on loopback; it runs in a thread, as long as the block."""
    ready: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []
    known = threading.Event()

    async def serve() -> None:
        ended = asyncio.Event()
        proxy = Proxy(port, delay_s)
        async with await asyncio.start_server(proxy.relay, HOST, 0) as server:
            ready.append((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), ended))
            known.set()
            await ended.wait()
            await proxy.hang_up()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name=f"delay {delay_s:g} s")
    thread.start()
    known.wait()
    listening, loop, ended = ready[0]
    try:
        yield listening
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


class Proxy:
    """Relays connections to a port on loopback; `delay_s` is how much later answers come."""

    def __init__(self, port: int, delay_s: float) -> None:
        self._port = port
        self._delay_s = delay_s
        self._open: set[asyncio.Task[None]] = set()

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._relay(reader, writer)
        finally:
            self._open.discard(task)
            await _close(writer)

    async def hang_up(self) -> None:
        """End all connections."""
        left = list(self._open)
        for task in left:
            task.cancel()
        await asyncio.gather(*left)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, self._port)
        asking = asyncio.ensure_future(_hand_on(reader, server_writer))
        try:
            await self._answer(server_reader, writer)
        finally:
            asking.cancel()
            await asyncio.wait([asking])
            await _close(server_writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand on what the server says, `delay_s` later, to the end of it."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def take_in() -> None:
            data = b" "
            while data:
                data = await read_some(reader)
                under_way.put_nowait((loop.time() + self._delay_s, data))

        taking_in = asyncio.ensure_future(take_in())
        try:
            while True:
                due_s, data = await under_way.get()
                await asyncio.sleep(due_s - loop.time())
                if not data:
                    return
                writer.write(data)
                await writer.drain()
        finally:
            taking_in.cancel()
            await asyncio.wait([taking_in])


async def _hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Forward the client's data at once; the server answers its end."""
    with suppress(OSError):
        while data := await read_some(reader):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def read_some(reader: asyncio.StreamReader) -> bytes:
    """Some bytes; none at the end, however it came."""
    try:
        return await reader.read(CHUNK_BYTES)
    except OSError:
        return b""


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()
