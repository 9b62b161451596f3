"""A proxy in front of an IMAP server that delays the responses to one user."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar

from hiding_proxy import HidingProxy

from loadsim.model.ports import Services

_SEEN: ContextVar[set[str]] = ContextVar("seen")
"""The connection's own set: `user` after their LOGIN, and `idle` after the first IDLE."""


class DelayingProxy(HidingProxy):
    """Delays each response to the user who logs on by LOGIN with this name, from their first IDLE on.

    The preparation of their mailbox has none.
    """

    def __init__(self, services: Services, user: str, delay_s: float) -> None:
        super().__init__(services, [])
        self._user = user.encode()
        self._delay_s = delay_s

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _SEEN.set(set())
        await super()._serve(reader, writer)

    def _is_hidden(self, command: bytes) -> bool:
        name = command.split()[1:2]
        if name == [b"LOGIN"] and self._user in command:
            _SEEN.get().add("user")
        if name == [b"IDLE"]:
            _SEEN.get().add("idle")
        return super()._is_hidden(command)

    async def _responses(self, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await server.read(1 << 16):
                if _SEEN.get() == {"user", "idle"}:
                    await asyncio.sleep(self._delay_s)
                client.write(data)
                await client.drain()
        client.transport.close()
