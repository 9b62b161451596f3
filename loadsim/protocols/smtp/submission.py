"""SMTP submission (RFC 5321, RFC 6409): one command at a time, or sender, recipients and DATA together (RFC 2920)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.provisioning_ports import ServerOffer
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.connection import SmtpConnection


@dataclass(slots=True, eq=False, repr=False)
class SmtpSubmission:
    """Sends one user's messages, one at a time; implements `Probing`, which includes `ports.Submission`.

    With `pipelines`, a server that offers PIPELINING gets a message's commands in one packet, so the times of all start
    together.

    With `connection: per-message` each message has its own connection. Its QUIT runs concurrently with the user's next
    tasks, for at most `QUIT_LIMIT_S`; `close` waits for it, so that no socket outlives the user.

    With `connection: kept` a connection serves many messages. The server may end it between two of them, with or
    without a 421. The next MAIL then fails before any part of the message is sent, and the message goes over a new
    connection.
    """

    endpoint: Endpoint
    account: Account
    observer: Observer
    limit_s: float  # of each command
    tls_context: ssl.SSLContext | None  # shared: making one is slow
    pipelines: bool
    _kept: SmtpConnection | None = field(default=None, init=False)  # set only between two messages
    _open: list[SmtpConnection] = field(default_factory=list, init=False)
    _method: str = field(default="", init=False)  # the log-on method that was used last

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit one message (RFC 5322, CRLF), and wait until it is accepted for all recipients.

        Raises `ServerRefused` (kind "550 RCPT": code and command), `ServerLost` or `ServerSilent`. A refused recipient
        ends the transaction: no recipient gets the message.
        """
        kept, self._kept = self._kept, None
        if kept is not None and kept.failure is None:
            succeeded = kept.succeeded
            try:
                await self._transact(kept, sender, recipients, message)
            except (ServerLost, ServerRefused):
                if kept.failure is None or kept.succeeded > succeeded:
                    raise  # without success, the connection had ended before this message
            else:
                return
        await self._transact(await self._connect(), sender, recipients, message)

    async def check(self) -> None:
        """Connect, secure and authenticate as for a message, then QUIT. Raises as `send` does."""
        try:
            (await self._connect()).leave()
        finally:
            await self.close()

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """MAIL, RCPT and RSET, one at a time, on a separate connection, then QUIT; see `Probing`."""
        try:
            connection = await self._connect()
            try:
                for command in (commands.mail(sender, b"", {}), commands.rcpt(recipient), commands.RESET):
                    await connection.send(command)
            finally:
                connection.leave()
        finally:
            await self.close()
        features = (f"{name} {parameters}".strip() for name, parameters in connection.offered.items())
        return ServerOffer(frozenset(features), self._method)

    async def close(self) -> None:
        """QUIT a kept connection, and wait until it and those of earlier messages are closed."""
        if self._kept is not None:
            self._kept.leave()
            self._kept = None
        for connection in list(self._open):
            await connection.wait_closed()

    async def _transact(
        self, connection: SmtpConnection, sender: str, recipients: Sequence[str], message: bytes
    ) -> None:
        """Send one message, in one packet (RFC 2920 section 3.1) or one command at a time; then QUIT unless kept."""
        pieces = commands.wire_format(message)
        steps = [commands.mail(sender, message, connection.offered), *map(commands.rcpt, recipients), commands.DATA]
        try:
            if self.pipelines and "PIPELINING" in connection.offered:
                await connection.send(*steps)
            else:
                for step in steps:
                    await connection.send(step)
            await connection.go_on(*pieces)
        except ServerRefused:
            if self.endpoint.connection != "kept":
                connection.leave()
            elif connection.failure is None:
                await self._reset(connection)
            raise
        if self.endpoint.connection == "kept":
            self._kept = connection
        else:
            connection.leave()

    async def _reset(self, connection: SmtpConnection) -> None:
        """End a refused transaction, so that the connection can serve the next message."""
        try:
            await connection.send(commands.RESET)
        except TaskFailed:
            connection.abort()
        else:
            self._kept = connection

    async def _connect(self) -> SmtpConnection:
        """Return a connection, secured and authenticated as the endpoint requires. Sends QUIT after a refusal."""
        endpoint, context = self.endpoint, self.tls_context
        connection = SmtpConnection(self.account, self.observer, self.limit_s, self._open)
        try:
            await connection.connect(endpoint, context)
            await connection.send(commands.ehlo(connection.own_address))
            if endpoint.tls == "starttls":
                assert context is not None
                if "STARTTLS" not in connection.offered:
                    raise ServerRefused("no STARTTLS", "the server does not offer it")
                await connection.start_tls(context, endpoint.tls_name)
                await connection.send(commands.ehlo(connection.own_address))
            connection.remember_tls()
            offer = commands.offer_of(endpoint, connection.offered)
            if offer is not None:
                perform = partial(_authenticate, connection)
                self._method = await sasl.log_on("SMTP", endpoint, self.account, offer, "no AUTH", perform)
        except ServerRefused:
            connection.leave()
            raise
        except BaseException:
            connection.abort()
            raise
        return connection


async def _authenticate(connection: SmtpConnection, exchange: Exchange | None) -> None:
    """Send AUTH (RFC 4954), and respond to its challenges."""
    assert exchange is not None, "LOGIN is a command of IMAP"
    dialogue = commands.dialogue_of(exchange)
    challenge = await connection.send(commands.auth(dialogue.words))
    while challenge is not None:
        challenge = await connection.go_on(await dialogue.response(challenge), b"\r\n")
    dialogue.check_sent()
