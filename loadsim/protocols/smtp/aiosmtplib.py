"""SMTP submission on the library aiosmtplib: one command at a time, as most mail programs do it.

`LibrarySubmission._run` turns the library's exceptions into those of the port, applies the time limit of a command, and
reports the command to the observer. `_Protocol` passes the library whole replies of bounded size, one for each command
and none before its command. By itself the library drops surplus replies, or assigns them to later commands.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiosmtplib
from aiosmtplib import SMTPResponse
from aiosmtplib.protocol import SMTPProtocol

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import connection_failure, internal
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.smtp.codes import CHALLENGE, SERVICE_CLOSING, accepts_message, kind_of
from loadsim.protocols.smtp.commands import dialogue_of, method_of, offer_of
from loadsim.protocols.smtp.wire import Reply, SmtpWire
from loadsim.protocols.tls import handshakes_of, remember

QUIT_LIMIT_S = 10.0
"""The time limit of an answer to QUIT, after which the connection is dropped."""

PLACEHOLDER_NAME = "[127.0.0.1]"
"""Keeps aiosmtplib from resolving this machine's name in a thread; EHLO has the connection's own address."""


@dataclass(slots=True, eq=False, repr=False)
class LibrarySubmission:
    """Sends the messages of one user, one at a time; implements `ports.Submission`.

    With `connection: per-message` each message has a connection of its own. Its QUIT runs concurrently with the
    user's next tasks, for at most `QUIT_LIMIT_S`; `close` waits for it, so that no socket outlives the user.

    With `connection: kept` a connection serves many messages. The server may end it between two of them, with or
    without a 421. The next MAIL then fails, before any part of the message is sent, and a new connection takes it.
    """

    endpoint: Endpoint
    account: Account
    observer: Observer
    limit_s: float  # of each command
    tls_context: ssl.SSLContext | None  # shared: making one is slow
    _kept: _Client | None = field(default=None, init=False)  # set only between two messages
    _quitting: list[asyncio.Task[None]] = field(default_factory=list, init=False)

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit one message (RFC 5322, CRLF), and wait until it is accepted for all recipients.

        Raises `ServerRefused` (kind "550 RCPT": code and command), `ServerLost` or `ServerSilent`. The first refused
        recipient ends the transaction: no recipient gets the message.
        """
        kept, self._kept = self._kept, None
        client = kept if kept is not None and kept.is_connected else await self._connect()
        try:
            try:
                await self._mail(client, sender, message)
            except (ServerLost, ServerRefused):
                if client is not kept or client.is_connected:
                    raise
                client = await self._connect()
                await self._mail(client, sender, message)
            for recipient in recipients:
                await self._run(client, "RCPT", client.rcpt(recipient))
            await self._run(client, "DATA", client.data(message))
        except ServerRefused:
            await self._give_up(client)
            raise
        self._release(client)

    async def check(self) -> None:
        """Connect, secure and authenticate as for a message, then QUIT. Raises as `send` does."""
        self._leave(await self._connect())
        await self.close()

    async def close(self) -> None:
        """QUIT a kept connection, and wait until it and those of earlier messages are closed."""
        if self._kept is not None:
            self._leave(self._kept)
            self._kept = None
        if self._quitting:
            await asyncio.wait(self._quitting)

    async def _connect(self) -> _Client:
        """Connect, secure and authenticate as the endpoint states."""
        client = _Client(
            hostname=self.endpoint.host,
            local_hostname=PLACEHOLDER_NAME,
            timeout=None,  # `_run` has the limit
            start_tls=False,  # sent below, with its own time
            tls_context=self.tls_context,
        )
        await self._run(client, "CONNECT", self._open(client))
        try:
            await self._greet(client)
            if self.endpoint.tls == "starttls":
                # RFC 3207 section 4.2: discard what the server sent in the clear.
                with handshakes_of(self.account.number):
                    await self._run(client, "STARTTLS", client.starttls(server_hostname=self.endpoint.tls_name))
                await self._greet(client)
            remember(self.account.number, client.transport)
            await self._authenticate(client)
        except ServerRefused:
            if client.is_connected:
                self._leave(client)
            raise
        except BaseException:
            client.close()
            raise
        return client

    async def _open(self, client: _Client) -> SMTPResponse:
        """Connect with `_Protocol`, which `client.connect` does not accept, and wait for the greeting."""
        protocol, endpoint = client.guard, self.endpoint
        implicit = self.tls_context if endpoint.tls == "implicit" else None
        await connect(lambda: protocol, endpoint, self.account.number, implicit, self.limit_s)
        client.protocol, client.transport = protocol, protocol.transport
        greeting = await protocol.read_response()
        if greeting.code // 100 != 2:
            raise aiosmtplib.SMTPResponseException(greeting.code, greeting.message)
        return greeting

    async def _greet(self, client: _Client) -> None:
        """EHLO with the connection's own address as a literal (RFC 5321 sections 4.1.1.1 and 4.1.3)."""
        await self._run(client, "EHLO", client.ehlo(hostname=_address_literal(client)))

    async def _authenticate(self, client: _Client) -> None:
        """AUTH (RFC 4954) by the chosen method. The library knows some mechanisms only."""
        offered = {"AUTH": " ".join(client.server_auth_methods).upper()} if client.supports_extension("auth") else {}
        offer = offer_of(offered, self.endpoint)
        method = method_of(self.endpoint, self.account, offered, offer)
        if method is None:
            return

        async def perform(exchange: Exchange) -> None:
            await self._run(client, "AUTH", _exchange(client, exchange))

        await sasl.log_on(method, self.endpoint, self.account, perform)

    async def _mail(self, client: _Client, sender: str, message: bytes) -> None:
        """MAIL FROM, with SIZE (RFC 1870) and 8BITMIME (RFC 6152) if they are offered and apply."""
        options = []
        if client.supports_extension("size"):
            options.append(f"SIZE={len(message)}")
        if client.supports_extension("8bitmime") and not message.isascii():
            options.append("BODY=8BITMIME")
        await self._run(client, "MAIL", client.mail(sender, options=options))

    async def _run(self, client: _Client, verb: str, command: Coroutine[Any, Any, SMTPResponse]) -> None:
        """Await one command of the library within the limit, report it, and raise its failure as a `TaskFailed`.

        Without an answer the connection is dropped. Byte counts are those of the protocol, without TLS.
        """
        guard = client.guard
        since, sent, received = self.observer.now(), guard.sent_bytes, guard.received_bytes
        failure: TaskFailed | None = None
        try:
            async with asyncio.timeout(self.limit_s):
                await command
        except asyncio.CancelledError:
            client.close()
            raise
        except Exception as error:  # noqa: BLE001  an error of the library is this user's failure
            failure = self._failure(verb, error) if guard.failure is None else self._broken(verb, guard.failure)
            if not isinstance(failure, ServerRefused) or guard.unsent:
                client.close()
        outcome = "ok" if failure is None else failure.outcome
        self.observer.command(f"SMTP {verb}", since, outcome, guard.sent_bytes - sent, guard.received_bytes - received)
        if failure is not None:
            raise failure  # not the library's exception, whose text may quote the command

    def _broken(self, verb: str, failure: TaskFailed) -> TaskFailed:
        """Return the failure of a command by what ended the connection."""
        kind = f"{failure.kind} at {verb}" if isinstance(failure, ProtocolError) else failure.kind
        return type(failure)(kind, self._clean(failure.line))

    def _failure(self, verb: str, error: Exception) -> TaskFailed:
        """Map an exception of the library, TLS or the socket. The order matters: the classes overlap."""
        cause = error.__cause__ if isinstance(error, OSError) and isinstance(error.__cause__, OSError) else error
        match error:
            case TaskFailed():
                return type(error)(error.kind, self._clean(error.line))
            case aiosmtplib.SMTPResponseException(code=code, message=text) if code >= 400:
                return ServerRefused(kind_of(code, verb), self._clean(f"{code} {text}"))
            case aiosmtplib.SMTPResponseException(code=code, message=text) if code > 0:
                return ProtocolError(f"no such answer at {verb}", self._clean(f"{code} {text}"))
            case aiosmtplib.SMTPResponseException(message=text):
                return ProtocolError(f"no SMTP at {verb}", self._clean(text))
            case TimeoutError():
                return ServerSilent(f"no answer to {verb}")
            case OSError() | MemoryError():
                return connection_failure(cause, f"lost at {verb}")
            case aiosmtplib.SMTPException():  # the server offers no STARTTLS, or no known method of AUTH
                return ServerRefused(f"no {verb}", self._clean(str(error)).rstrip("."))
            case _:
                return internal(error)

    def _clean(self, text: str) -> str:
        """Return a server's text on one line, without the password."""
        line = " ".join(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())
        return without_password(line, self.account)

    async def _give_up(self, client: _Client) -> None:
        """End a refused transaction by RSET on a kept connection, else by QUIT (RFC 5321 section 4.1.1.10)."""
        if not client.is_connected:
            return
        if self.endpoint.connection == "kept":
            try:
                await self._run(client, "RSET", client.rset())
            except TaskFailed:
                client.close()
                return
        self._release(client)

    def _release(self, client: _Client) -> None:
        """Keep the connection of a finished message, or QUIT, as the endpoint states."""
        if self.endpoint.connection == "kept":
            self._kept = client
        else:
            self._leave(client)

    def _leave(self, client: _Client) -> None:
        """Send QUIT without waiting for its answer; the task is kept until it is done, and never raises."""
        quitting = asyncio.get_running_loop().create_task(_quit(client))
        self._quitting.append(quitting)
        quitting.add_done_callback(self._quitting.remove)


class _Protocol(SMTPProtocol):
    """The library's protocol behind loadsim's reader, which ends the connection on a reply that answers no command.

    Data in the clear behind the agreement to STARTTLS (CVE-2011-0411) is such a reply.
    """

    transport: asyncio.Transport | None

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop())
        self.failure: TaskFailed | None = None
        self.sent_bytes = self.received_bytes = 0
        self._wire = SmtpWire()
        self._replies = 0
        self._waiting = True  # for the greeting

    @property
    def unsent(self) -> bool:
        """True if written bytes still wait in the transport."""
        return self.transport is not None and self.transport.get_write_buffer_size() > 0

    def write(self, data: bytes) -> None:
        super().write(data)
        self.sent_bytes += len(data)
        self._waiting = True

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        try:
            for reply in self._wire.feed(data):
                self._take(reply)
            if self._wire.held_bytes and not self._waiting:
                raise ProtocolError("unasked reply")
        except TaskFailed as failure:
            self._break_off(failure)
        except Exception as error:  # noqa: BLE001  asyncio would only log it, and the command wait
            self._break_off(internal(error))

    async def execute_data_command(self, message: bytes, timeout: float | None = None) -> SMTPResponse:
        """Send DATA and the message. Any 2yz accepts it (RFC 5321 section 4.2.1); the library takes only 250."""
        before = self._replies
        try:
            return await super().execute_data_command(message, timeout)
        except aiosmtplib.SMTPDataError as error:
            if self._replies - before < 2 or not accepts_message(error.code):
                raise
            return SMTPResponse(error.code, error.message)

    def _take(self, reply: Reply) -> None:
        if not self._waiting:
            if reply.code == SERVICE_CLOSING:
                raise ServerLost(str(SERVICE_CLOSING), reply.text)
            raise ProtocolError("unasked reply", reply.text)
        if reply.code < 400 and self.unsent:
            raise ProtocolError("no such answer", reply.text)  # it precedes the message's final dot
        self._waiting = False
        self._replies += 1
        self.received_bytes += reply.size_bytes
        *begun, last = reply.lines
        lines = [b"%d-%b\r\n" % (reply.code, line) for line in begun]
        super().data_received(b"".join([*lines, b"%d %b\r\n" % (reply.code, last)]))

    def _break_off(self, failure: TaskFailed) -> None:
        line = self._wire.rejected.decode("utf-8", "replace")
        self.failure = type(failure)(failure.kind, f"{failure.line}: {line}" if line else failure.line)
        if self.transport is not None:
            self.transport.abort()


class _Client(aiosmtplib.SMTP):
    """The library's client on our protocol, which closes at once.

    After QUIT and after failures the library closes the transport and forgets it. TLS then waits up to 30 s for the
    server's close, and the transport stays open if the loop ends before. So this client aborts.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.guard = _Protocol()

    def close(self) -> None:
        if self.guard.transport is not None:
            self.guard.transport.abort()
        super().close()


async def _exchange(client: _Client, exchange: Exchange) -> SMTPResponse:
    """Send AUTH and the responses to its challenges (RFC 4954 section 4)."""
    dialogue = dialogue_of(exchange)
    reply = await client.execute_command(b"AUTH", *dialogue.words)
    while reply.code == CHALLENGE:
        # An empty word is an empty line.
        reply = await client.execute_command(await dialogue.response(" ".join(reply.message.split())))
    if reply.code // 100 != 2:
        raise aiosmtplib.SMTPAuthenticationError(reply.code, reply.message)
    dialogue.check_sent()
    return reply


async def _quit(client: _Client) -> None:
    """QUIT, and close the connection after the answer or the time limit."""
    try:
        with suppress(Exception):
            async with asyncio.timeout(QUIT_LIMIT_S):
                await client.quit()
    finally:
        client.close()
        await asyncio.sleep(0)  # aborting takes effect in the loop's next turn


def _address_literal(client: _Client) -> str:
    """Return the client's address in the form of EHLO; the placeholder if the connection is already closed."""
    with suppress(aiosmtplib.SMTPException):
        host = str(client.get_transport_info("sockname")[0]).partition("%")[0]
        return f"[IPv6:{host}]" if ":" in host else f"[{host}]"
    return PLACEHOLDER_NAME
