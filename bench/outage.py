"""A TCP proxy in front of a server that can go down, or stop, for a while: connections refused, dropped, unanswered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from bench.delay import read_some
from bench.misdeeds import DROPPED, REFUSED, SILENCE, STALL
from bench.nullserver import HOST


class OutageProxy:
    """Relays connections to a port on loopback, but for what happens between `begin` and `end`.

    REFUSED and DROPPED end all connections; then new ones are refused by the kernel, or accepted and closed. In a
    STALL, nothing is handed on before its end. In SILENCE, what comes on a connection is lost, with all that follows
    it there, as if the packets had gone into a black hole; connections that are not used go on afterwards.
    `kept` is called with what is not handed on, or not at once.
    """

    def __init__(self, port: int, kept: Callable[[bytes], None] = lambda _: None) -> None:
        self._server_port = port
        self._kept = kept
        self._outage: str | None = None
        self._moving = asyncio.Event()
        self._moving.set()
        self._open: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self._reserved = socket.socket()  # bound and never listening: the port stays ours when nothing listens on it
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind((HOST, 0))
        self.port: int = self._reserved.getsockname()[1]

    async def __aenter__(self) -> Self:
        """Listen."""
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all connections, and listen no more."""
        self._refuse()
        await self._hang_up()
        self._reserved.close()

    async def begin(self, outage: str) -> None:
        """From now on the server is down."""
        self._outage = outage
        if outage == STALL:
            self._moving.clear()
        elif outage != SILENCE:
            if outage == REFUSED:
                self._refuse()
            await self._hang_up()

    async def end(self) -> None:
        """It is up again."""
        was, self._outage = self._outage, None
        self._moving.set()
        if was == REFUSED:
            await self._listen()

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._relay, HOST, self.port, reuse_port=True, backlog=1000)

    def _refuse(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def _hang_up(self) -> None:
        left = list(self._open)
        for task in left:
            task.cancel()
        await asyncio.gather(*left)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                if self._outage not in (REFUSED, DROPPED):
                    await self._hand_on_both(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _hand_on_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(HOST, self._server_port)
        both = [
            asyncio.ensure_future(self._hand_on(reader, server_writer)),
            asyncio.ensure_future(self._hand_on(server_reader, writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server_writer.close()
            for one in both:
                one.cancel()
            await asyncio.wait(both)

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on all that comes one way, to its end."""
        lost = False
        with suppress(OSError):
            while data := await read_some(reader):
                lost = lost or self._outage == SILENCE
                if lost or not self._moving.is_set():
                    self._kept(data)
                await self._moving.wait()
                if lost:
                    continue
                writer.write(data)
                await writer.drain()
        await self._moving.wait()
