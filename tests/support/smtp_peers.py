"""A server for submission, aiosmtpd, which knows nothing of our code."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import heaps
import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from imap_script import Ear

from loadsim.model.ports import Account, Endpoint

PASSWORD = "s3cret-word"
ACCOUNT = Account(1, "user1", "user1@sim.test", PASSWORD)
MESSAGE = b"From: user1@sim.test\r\nSubject: dots\r\n\r\n.\r\n..\r\n.leading\r\nnone\r\n\r\n.last\r\n"
LIMIT_S = 5.0


@pytest.fixture
def small_heap() -> Iterator[None]:
    """Let collections look at the objects of a test only: many of these end with one."""
    with heaps.small_heap():
        yield


class Observed(Ear):
    @property
    def names(self) -> list[str]:
        return [name.removeprefix("SMTP ") for name, *_ in self.commands]


class Accepting:
    """A handler for aiosmtpd: keeps what was delivered, refuses the recipients and senders it is told to."""

    def __init__(self, refuse: dict[str, str] | None = None) -> None:
        self.delivered: list[tuple[str, list[str], bytes]] = []
        self.connections = 0
        self.resets = 0
        self.helo: list[str] = []
        self.options: list[list[str]] = []
        self.refuse = refuse or {}
        self.gone = asyncio.Event()

    async def handle_EHLO(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        self.helo.append(hostname)
        session.host_name = hostname
        return [responses[0], "250-PIPELINING", *responses[1:]]

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        self.options.append(options)
        envelope.mail_from = address
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_RSET(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.resets += 1
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert envelope.mail_from is not None
        assert isinstance(envelope.content, bytes)
        self.delivered.append((envelope.mail_from, list(envelope.rcpt_tos), envelope.content))
        return "250 queued"


class Protocol(SMTP):
    """aiosmtpd's server protocol, which lets a test see and cut its connections."""

    open: set[asyncio.BaseTransport]
    socket: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.open.discard(self.socket)  # STARTTLS comes here a second time
        self.socket = transport
        self.open.add(transport)
        if isinstance(self.event_handler, Accepting):
            self.event_handler.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.open.discard(self.socket)
        if isinstance(self.event_handler, Accepting):
            self.event_handler.gone.set()


@asynccontextmanager
async def aiosmtpd(
    handler: Accepting, ssl_context: ssl.SSLContext | None = None, **options: object
) -> AsyncIterator[tuple[int, set[asyncio.BaseTransport]]]:
    """An aiosmtpd on a port of the kernel's choice, and its open connections."""
    loop = asyncio.get_running_loop()
    connections: set[asyncio.BaseTransport] = set()

    def protocol() -> Protocol:
        made = Protocol(handler, hostname="mail.sim.test", loop=loop, **options)  # type: ignore[arg-type]
        made.open = connections
        return made

    server = await loop.create_server(protocol, "127.0.0.1", 0, ssl=ssl_context)
    try:
        yield server.sockets[0].getsockname()[1], connections
    finally:
        server.close()
        for transport in list(connections):
            transport.close()
        await server.wait_closed()


def endpoint(port: int, connection: str = "per-message", tls: str = "none", ca_file: str | None = None) -> Endpoint:
    return Endpoint("127.0.0.1", port, tls=tls, ca_file=ca_file, connection=connection)


def authenticator(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: object) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(success=(data.login, data.password) == (b"user1", PASSWORD.encode()))
