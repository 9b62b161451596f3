"""SMTP submission (RFC 5321, RFC 6409): one command at a time, or sender, recipients and DATA together (RFC 2920)."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer, ServerOffer
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.commands import LONGEST_LINE_BYTES, SmtpCommand
from loadsim.protocols.smtp.connection import Conversation, SmtpConnection


@dataclass(slots=True, eq=False, repr=False)
class SmtpSubmission:
    """Sends the messages of one user, one at a time; implements `ports.Probing`, which includes `ports.Submission`.

    With `pipelines`, a server that offers PIPELINING gets the commands of a message in one packet. Each of them counts
    from its write.

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
            try:
                await kept.converse(self._transaction(kept, sender, recipients, message), last=False)
            except (ServerLost, ServerRefused):
                if kept.failure is None:
                    await self._reset(kept)
                    raise
                if kept.succeeded:
                    raise  # without success, the connection had ended before this message
            else:
                self._kept = kept
                return
        await self._send_over_new(sender, recipients, message)

    async def check(self) -> None:
        """Connect, secure and authenticate as for a message, then QUIT. Raises as `send` does."""
        connection = self._connection()
        try:
            await self._connect(connection, iter(()), last=True)
        finally:
            await self.close()

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """MAIL, RCPT and RSET on a connection of its own, one at a time, then QUIT; see `ports.Probing`."""
        connection = self._connection()
        steps = ([command] for command in (commands.mail(sender, b"", {}), commands.rcpt(recipient), commands.RESET))
        try:
            await self._connect(connection, steps, last=True)
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

    async def _send_over_new(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Send over a new connection, and keep it or QUIT as the endpoint states."""
        connection = self._connection()
        transaction = self._transaction(connection, sender, recipients, message)
        if self.endpoint.connection != "kept":
            await self._connect(connection, transaction, last=True)
            return
        await self._connect(connection, iter(()), last=False)
        try:
            await connection.converse(transaction, last=False)
        except ServerRefused:
            if connection.failure is None:
                await self._reset(connection)
            raise
        self._kept = connection

    def _transaction(
        self, connection: SmtpConnection, sender: str, recipients: Sequence[str], message: bytes
    ) -> Iterator[Sequence[SmtpCommand]]:
        """Yield the commands of one message, in one packet (RFC 2920 section 3.1) or one by one."""
        steps = [
            commands.mail(sender, message, connection.offered),
            *map(commands.rcpt, recipients),
            commands.data(message),
        ]
        if self.pipelines and "PIPELINING" in connection.offered:
            yield steps
        else:
            for step in steps:
                yield [step]

    async def _reset(self, connection: SmtpConnection) -> None:
        """End a refused transaction, so that the connection can serve the next message."""
        try:
            await connection.converse(iter([[commands.RESET]]), last=False)
        except TaskFailed:
            connection.abort()
        else:
            self._kept = connection

    def _connection(self) -> SmtpConnection:
        return SmtpConnection(self.account, self.observer, self.limit_s, self._open)

    async def _connect(self, connection: SmtpConnection, then: Conversation, *, last: bool) -> None:
        """Connect, secure and authenticate as the endpoint states, then run a conversation. After a refusal, QUIT.

        PLAIN, one round trip, is part of the conversation. Another method follows it, and the rest follows that.
        """
        endpoint, context = self.endpoint, self.tls_context
        chosen: list[str] = []  # a method other than PLAIN
        try:
            if endpoint.tls != "starttls":
                welcome = chain([[commands.GREETING]], self._introduction(connection, then, chosen))
                await connection.connect(endpoint, context, welcome, last=last)
            else:
                assert context is not None
                await connection.connect(endpoint, None, _until_tls(connection), last=False)
                await connection.secure(context, endpoint.tls_name)
                await connection.converse(self._introduction(connection, then, chosen), last=last)
            connection.remember_tls()
            for method in chosen:
                await self._authenticate(connection, method)
                await connection.converse(then, last=last)
        except ServerRefused:
            connection.leave()
            raise
        except BaseException:
            connection.abort()
            raise

    def _introduction(
        self, connection: SmtpConnection, then: Conversation, chosen: list[str]
    ) -> Iterator[Sequence[SmtpCommand]]:
        """Yield EHLO, and AUTH PLAIN (RFC 4954) and the rest; if another method is chosen, add it to `chosen`."""
        yield [commands.ehlo(connection.own_address)]
        offer = commands.offer_of(connection.offered, self.endpoint)
        method = commands.method_of(self.endpoint, self.account, connection.offered, offer)
        self._method = method or ""
        if method == "plain" and len((command := commands.auth_plain(self.account)).line) <= LONGEST_LINE_BYTES:
            yield [command]
        elif method is not None:
            chosen.append(method)
            connection.keep_open()
            return
        yield from then

    async def _authenticate(self, connection: SmtpConnection, method: str) -> None:
        """AUTH by a method of several messages, or with a token that may be renewed."""

        async def perform(exchange: Exchange) -> None:
            challenges: asyncio.Queue[str] = asyncio.Queue()
            dialogue = commands.dialogue_of(exchange)
            command = commands.auth(dialogue.words, challenges.put_nowait)
            end = asyncio.ensure_future(connection.converse(iter([[command]]), last=False))
            try:
                while (challenge := await sasl.next_challenge(challenges, end)) is not None:
                    connection.respond(await dialogue.response(challenge))
                await end
            finally:
                end.cancel()
            dialogue.check_sent()

        await sasl.log_on(method, self.endpoint, self.account, perform)


def _until_tls(connection: SmtpConnection) -> Iterator[Sequence[SmtpCommand]]:
    yield [commands.GREETING]
    yield [commands.ehlo(connection.own_address)]
    if "STARTTLS" not in connection.offered:
        raise ServerRefused("no STARTTLS", "the server does not offer it")
    yield [commands.STARTTLS]
