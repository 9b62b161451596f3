"""A proxy in front of an IMAP server that delays the responses to one user."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import SimpleQueue

from loadsim.model.ports import Endpoint, Services

LARGEST_LINE_BYTES = 1 << 20


@contextmanager
def delaying(services: Services, user: str, delay_s: float) -> Iterator[Services]:
    """Yield the services through the proxy, which runs in a thread as long as the block.

    It delays each response to the user who logs on by LOGIN with this name, from the first IDLE of the connection on:
    the preparation of the mailbox has none.
    """
    ready: SimpleQueue[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()
    relaying: set[asyncio.Task[None]] = set()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relaying.add(task)
        server, onward = await asyncio.open_connection(services.imap.host, services.imap.port)
        late = {"user": False, "idle": False}

        async def commands() -> None:
            while line := await reader.readline():
                late["user"] |= b" LOGIN " in line and user.encode() in line
                late["idle"] |= line.endswith(b" IDLE\r\n")
                onward.write(line)
                await onward.drain()
            onward.write_eof()

        async def responses() -> None:
            while data := await server.read(1 << 16):
                if all(late.values()):
                    await asyncio.sleep(delay_s)
                writer.write(data)
                await writer.drain()
            writer.close()

        try:
            with suppress(OSError, asyncio.CancelledError):
                await asyncio.gather(commands(), responses())
        finally:
            relaying.discard(task)
            for end in (onward, writer):
                end.transport.abort()

    async def serve() -> None:
        ended = asyncio.Event()
        async with await asyncio.start_server(relay, "127.0.0.1", 0, limit=LARGEST_LINE_BYTES) as listening:
            ready.put((listening.sockets[0].getsockname()[1], asyncio.get_running_loop(), ended))
            await ended.wait()
            left = list(relaying)
            for task in left:
                task.cancel()
            await asyncio.gather(*left)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    port, loop, ended = ready.get()
    try:
        yield replace(services, imap=Endpoint("127.0.0.1", port))
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
