"""A session of loadsim's own client: the log-on, and messages one command at a time or pipelined (RFC 2920)."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from loadsim.errors import TaskFailed
from loadsim.model.ports import Endpoint
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.connection import SmtpConnection


@dataclass(slots=True, eq=False, repr=False)
class OwnSession:
    """Implements `SmtpSession`. With `pipelines`, a server that offers PIPELINING gets a message's commands together.

    The times of all commands in a packet start together. LMTP's always are in one packet; accepted recipients get the
    message even if others are refused.
    """

    connection: SmtpConnection
    pipelines: bool
    method: str = field(default="", init=False)

    @property
    def is_usable(self) -> bool:
        return self.connection.failure is None

    @property
    def succeeded(self) -> int:
        return self.connection.succeeded

    @property
    def offered(self) -> Mapping[str, str]:
        return self.connection.offered

    async def open(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        connection = self.connection
        await connection.connect(endpoint, context)
        hello = commands.LHLO if connection.lmtp else commands.EHLO
        await connection.send(commands.ehlo(connection.own_address, hello))
        if endpoint.tls == "starttls":
            assert context is not None
            if "STARTTLS" not in connection.offered:
                raise commands.no_starttls()
            await connection.start_tls(context, endpoint.tls_name)
            await connection.send(commands.ehlo(connection.own_address, hello))
        connection.remember_tls()
        offer = commands.offer_of(endpoint, connection.offered)
        if offer is not None:
            perform = partial(_authenticate, connection)
            self.method = await sasl.log_on("SMTP", endpoint, connection.account, offer, "no AUTH", perform)

    async def transact(self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None) -> None:
        try:
            await self._transact(sender, recipients, message, envelope_id)
        except TaskFailed as failure:
            failure.accepted = self.connection.reached(recipients)
            raise

    async def _transact(self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None) -> None:
        """Send one message, in one packet (RFC 2920 section 3.1) or one command at a time."""
        connection, pieces = self.connection, commands.wire_format(message)
        mail = commands.mail(sender, message, connection.offered, envelope_id)
        named = [commands.rcpt(recipient, envelope_id is not None) for recipient in recipients]
        steps = [mail, *named, commands.DATA]
        if connection.lmtp or (self.pipelines and "PIPELINING" in connection.offered):  # RFC 2033 section 5 demands it
            await connection.send(*steps)
        else:
            for step in steps:
                await connection.send(step)
        await connection.go_on(*pieces)

    async def ask(self, sender: str, recipient: str) -> None:
        for command in (commands.mail(sender, b"", {}), commands.rcpt(recipient)):
            await self.connection.send(command)
        await self.reset()

    async def reset(self) -> None:
        await self.connection.send(commands.RESET)

    def leave(self) -> None:
        self.connection.leave()

    def abort(self) -> None:
        self.connection.abort()


async def _authenticate(connection: SmtpConnection, exchange: Exchange | None) -> None:
    """Send AUTH (RFC 4954), and respond to its challenges."""
    assert exchange is not None, "LOGIN is a command of IMAP"
    dialogue = commands.dialogue_of(exchange)
    challenge = await connection.send(commands.auth(dialogue.words))
    while challenge is not None:
        challenge = await connection.go_on(await dialogue.response(challenge), b"\r\n")
    dialogue.check_sent()
