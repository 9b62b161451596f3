"""The interface through which sessions, mailboxes and log-ons use a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Protocol

from loadsim.errors import TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import Arrival
from loadsim.protocols.imap.commands import Argument
from loadsim.protocols.imap.responses import Condition, Response
from loadsim.protocols.imap.under_way import Answer


class ImapConnection(Protocol):
    """A connection, from before it is made until after its end. `connection.Connection` documents each method."""

    account: Account
    failure: TaskFailed | None
    method: str
    free_literal_bytes: int

    @property
    def arrival(self) -> Arrival | None: ...
    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> Condition: ...
    async def start_tls(self, context: ssl.SSLContext, host: str) -> None: ...
    def send(
        self,
        name: str,
        *arguments: Argument,
        challenged: Callable[[str], None] | None = None,
        then: Callable[[Answer], None] | None = None,
        resets: bool = False,
    ) -> asyncio.Future[Answer]: ...
    def respond(self, line: bytes) -> None: ...
    def send_quietly(self, name: str, *arguments: Argument) -> None: ...
    async def idle(self) -> None: ...
    def remember_tls(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    async def wait_closed(self) -> None: ...


MakeConnection = Callable[
    [Account, Observer, float, Callable[[Response], None], Callable[[TaskFailed], None]], ImapConnection
]
"""Makes a connection from account, observer, time limit (s), and the callbacks for responses and for its failure."""
