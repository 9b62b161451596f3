"""A proxy in front of a mail server, which breaks or falls silent at the command that it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from loadsim.model.ports import Services


class Network:
    """A proxy in front of a server, which breaks or falls silent at the command that it is told."""

    def __init__(self, services: Services, service: str = "imap") -> None:
        self._services = services
        self._service = service
        self.cut_at: bytes | None = None
        self.swallow_at: bytes | None = None
        self.swallowed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def __call__(self, limit_s: float = 30.0) -> AsyncIterator[Services]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            through = replace(self._services.endpoint(self._service), host="127.0.0.1", port=port)
            services: Any = {self._service: through}
            yield replace(self._services, command_limit_s=limit_s, **services)
        finally:
            server.close()
            self.cut()
            await server.wait_closed()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = self._services.endpoint(self._service)
        onward_reader, onward = await asyncio.open_connection(target.host, target.port)
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(self._there(reader, onward), self._back(onward_reader, writer))
        finally:
            for each in (writer, onward):
                each.transport.abort()

    async def _there(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        while data := await self._read(reader):
            if self.cut_at is not None and self.cut_at in data:
                self.cut()
                return
            if self.swallow_at is not None and self.swallow_at in data:
                self.swallowed.set()
            else:
                onward.write(data)
        onward.transport.abort()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await self._read(reader):
            writer.write(data)
        writer.transport.abort()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.read(65536)
        except ConnectionError:
            return b""
