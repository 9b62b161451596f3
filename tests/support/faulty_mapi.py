"""The embedded MAPI server in the test's own event loop, which answers a type of request with a fault."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import spnego
from imap_script import Ear
from mailservers import numbered_accounts
from patience import PATIENCE_S
from spnego.channel_bindings import GssChannelBindings
from virtual_runs import contents

from loadsim.model.ports import Account, Endpoint, Services
from loadsim.model.provisioning_ports import Provisioning
from loadsim.protocols.registry import open_driver
from loadsim.servers.embedded_mapi.__main__ import EMSMDB, MapiServer, Request

OWN = numbered_accounts(1)[0]
LIMIT_S = 10 * PATIENCE_S


def message_of(kind: str, message_id: str, to: Account = OWN) -> bytes:
    """Return a message of `OWN`."""
    return contents().compose(
        run="run-1",
        sender=1,
        sender_address=OWN.address,
        to=[to.address],
        id=message_id,
        kind=kind,
        sent_us=1_700_000_000_000_000,
        domain=OWN.domain,
    )


ANY = ""
"""In place of a type of request: all."""

Fault = Callable[["FaultyServer", Request, asyncio.StreamWriter], Awaitable[None]]


class FaultyServer(MapiServer):
    """`fault` answers the requests of the type `at`, and `met` is set; without one, all is well."""

    fault: Fault | None = None
    at = ""

    def __init__(self, accounts: Sequence[Account]) -> None:
        super().__init__([(account.login, account.address, account.password) for account in accounts], {})
        self._connections: set[asyncio.Task[None]] = set()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        await super().connection(reader, writer)
        self._connections.discard(task)

    async def end(self) -> None:
        """End the waits for new mail, and wait until the clients have closed their connections."""
        for session in self.sessions.values():
            session.news.set()
        if self._connections:
            await asyncio.wait(self._connections)

    def drop(self) -> None:
        for connection in self._connections:
            connection.cancel()

    def fail(self, at: str, fault: Fault) -> None:
        self.at, self.fault, self.met = at, fault, asyncio.Event()

    async def respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.fault is not None and self.at in (request.kind, ANY):
            self.met.set()
            await self.fault(self, request, writer)
        else:
            await super().respond(request, writer)

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer as without a fault."""
        await super().respond(request, writer)


class _Held:
    """Keeps what a server writes."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data


def says(response: bytes) -> Fault:
    """Return a fault that has one answer for all requests."""

    async def fault(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)

    return fault


def changes(change: Callable[[bytes], bytes]) -> Fault:
    """Return a fault that changes the answer; an answer that is cut short ends the connection."""

    async def fault(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
        held = _Held()
        await server.answer(request, held)  # type: ignore[arg-type]
        changed = change(held.sent)
        writer.write(changed)
        if held.sent.startswith(changed):
            writer.close()

    return fault


async def expired(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Forget all sessions."""
    server.sessions.clear()
    await server.answer(request, writer)


async def out_of_sequence(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    for session in server.sessions.values():
        session.sequence = "another"
    await server.answer(request, writer)


async def pending(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Begin a response that goes on until the client leaves."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/mapi-http\r\nX-ResponseCode: 0\r\n"
    writer.write(head + b"Transfer-Encoding: chunked\r\n\r\nc\r\nPROCESSING\r\n\r\n")
    while True:
        writer.write(b"9\r\nPENDING\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def interim(server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Promise a response (RFC 9110 section 15.2.1) until the client leaves."""
    while not writer.is_closing():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0)


class Acceptor:
    """A fault that answers what a connection asks after it has logged on by pyspnego's acceptor of NTLM or Negotiate.

    One that `forgets` wants a log-on for each request. `users` is the acceptor's file of names and passwords. Each
    request of a connection is counted.
    """

    def __init__(
        self,
        scheme: str,
        account: Account,
        directory: Path,
        password: str,
        monkeypatch: pytest.MonkeyPatch,
        bound: bytes | None = None,
    ) -> None:
        domain, _, name = account.login.rpartition("\\")
        users = directory / "users"
        users.write_text(f"{domain}:{name}:{password}\n", encoding="utf-8")
        monkeypatch.setenv("NTLM_USER_FILE", str(users))
        self._scheme, self._login = scheme, account.login
        self.forgets = False
        self._bindings = None if bound is None else GssChannelBindings(application_data=bound)
        self.requests: dict[asyncio.StreamWriter, int] = {}
        self._contexts: dict[asyncio.StreamWriter, Any] = {}

    async def __call__(self, server: FaultyServer, request: Request, writer: asyncio.StreamWriter) -> None:
        self.requests[writer] = self.requests.get(writer, 0) + 1
        context = self._contexts.setdefault(
            writer, spnego.server(service="HTTP", channel_bindings=self._bindings, protocol=self._scheme.lower())
        )
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        assert bool(encoded) == (not context.complete)  # a connection logs on once
        if self.forgets and not encoded:
            await UNAUTHORIZED(server, request, writer)
            return
        if encoded:
            assert scheme == self._scheme
            try:
                token = context.step(b64decode(encoded))
            except spnego.exceptions.SpnegoError:
                token = None
            if not context.complete:
                challenge = f"{scheme} {b64encode(token).decode()}" if token else scheme
                writer.write(
                    f"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {challenge}\r\nWWW-Authenticate: Basic\r\n"
                    "Content-Length: 0\r\n\r\n".encode()
                )
                return
        await server.answer(replace(request, login=self._login), writer)


UNAUTHORIZED = says(b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nContent-Length: 0\r\n\r\n")
BUSY_S = 30
BUSY = says(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % BUSY_S)
CLOSED = says(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 86400\r\nContent-Length: 0\r\n\r\n")
PAGE = says(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>")
NOTHING = says(b"")
TRUNCATED = changes(lambda sent: sent[:-20])
WITHOUT_COOKIES = changes(lambda sent: sent.replace(b"Set-Cookie", b"X-Cookie"))
NOT_DONE = changes(lambda sent: sent.replace(b"DONE\r\n", b"GONE\r\n"))
WRONG_CHUNK = changes(lambda sent: sent.replace(b"\r\n\r\nc\r\n", b"\r\n\r\nzz\r\n"))
LARGE = changes(lambda sent: sent.replace(b"\r\n\r\nc\r\n", b"\r\n\r\nffffffff\r\n"))


@asynccontextmanager
async def faulty_server(accounts: Sequence[Account], limit_s: float) -> AsyncIterator[tuple[FaultyServer, Services]]:
    """Run a server of these accounts, and yield it with services whose requests have this time limit."""
    server = FaultyServer(accounts)
    listening = await asyncio.start_server(server.connection, "127.0.0.1", 0)
    try:
        endpoint = Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1], path=EMSMDB)
        yield server, Services(mapi=endpoint, command_limit_s=limit_s)
    except BaseException:  # the clients of a failed test may be there still
        server.drop()
        raise
    finally:
        listening.close()
        await server.end()


@asynccontextmanager
async def logged_on(limit_s: float = LIMIT_S) -> AsyncIterator[tuple[FaultyServer, Provisioning, Ear]]:
    """Run a server of `OWN`, and yield it with their mailbox, which is logged on, and its observer."""
    async with faulty_server([OWN], limit_s) as (server, services):
        ear = Ear()
        mailbox = cast(Provisioning, open_driver("mapi", services).session(OWN, ear).mailbox)
        await mailbox.log_on()
        yield server, mailbox, ear
        mailbox.abandon()
