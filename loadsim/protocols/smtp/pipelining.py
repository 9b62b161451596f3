"""loadsim's own SMTP submission (RFC 5321, RFC 6409): sender, recipients and DATA in one packet (RFC 2920)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.commands import Command
from loadsim.protocols.smtp.connection import Connection, Conversation


@dataclass(slots=True, eq=False, repr=False)
class PipeliningSubmission:
    """Sends the messages of one user, one at a time; implements `ports.Submission`.

    Without PIPELINING it sends one command at a time. It makes, keeps and ends connections as `LibrarySubmission` does,
    and sub-timings have the same names; each of a packet's commands counts from its write.
    """

    endpoint: Endpoint
    account: Account
    observer: Observer
    limit_s: float  # of each command
    tls_context: ssl.SSLContext | None  # shared: making one is slow
    _kept: Connection | None = field(default=None, init=False)  # set only between two messages
    _open: list[Connection] = field(default_factory=list, init=False)

    async def send(self, sender: str, recipients: Sequence[str], message: bytes) -> None:
        """Submit one message (RFC 5322, CRLF), and wait until it is accepted for all recipients.

        Raises `ServerRefused` (kind "550 RCPT": code and command), `ServerLost` or `ServerSilent`. A refused recipient
        ends the transaction: no recipient gets the message.
        """
        kept, self._kept = self._kept, None
        if kept is not None and kept.failure is None:
            try:
                await kept.converse(_transaction(kept, sender, recipients, message), last=False)
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
        transaction = _transaction(connection, sender, recipients, message)
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

    async def _reset(self, connection: Connection) -> None:
        """End a refused transaction, so that the connection can serve the next message."""
        try:
            await connection.converse(iter([[commands.RESET]]), last=False)
        except TaskFailed:
            connection.abort()
        else:
            self._kept = connection

    def _connection(self) -> Connection:
        return Connection(self.account, self.observer, self.limit_s, self._open)

    async def _connect(self, connection: Connection, then: Conversation, *, last: bool) -> None:
        """Connect, secure and authenticate as the endpoint states, then run a conversation. After a refusal, QUIT."""
        endpoint, context = self.endpoint, self.tls_context
        try:
            if endpoint.tls != "starttls":
                await connection.connect(endpoint, context, chain(self._welcome(connection), then), last=last)
            else:
                assert context is not None
                await connection.connect(endpoint, None, _until_tls(connection), last=False)
                await connection.secure(context, endpoint.host)
                await connection.converse(chain(self._introduction(connection), then), last=last)
            connection.remember_tls()
        except ServerRefused:
            connection.leave()
            raise

    def _welcome(self, connection: Connection) -> Iterator[Sequence[Command]]:
        yield [commands.GREETING]
        yield from self._introduction(connection)

    def _introduction(self, connection: Connection) -> Iterator[Sequence[Command]]:
        """Yield EHLO, and AUTH if it is offered (RFC 4954): PLAIN, one round trip, otherwise LOGIN."""
        yield [commands.ehlo(connection.own_address)]
        if not self.endpoint.auth or "AUTH" not in connection.offered:
            return
        mechanisms = connection.offered["AUTH"].split()
        if "PLAIN" in mechanisms:
            yield [commands.auth_plain(self.account)]
        elif "LOGIN" in mechanisms:
            yield [commands.auth_login(self.account)]
        else:
            raise ServerRefused("no AUTH", f"neither PLAIN nor LOGIN among {' '.join(mechanisms)}")


def _until_tls(connection: Connection) -> Iterator[Sequence[Command]]:
    yield [commands.GREETING]
    yield [commands.ehlo(connection.own_address)]
    if "STARTTLS" not in connection.offered:
        raise ServerRefused("no STARTTLS", "the server does not offer it")
    yield [commands.STARTTLS]


def _transaction(
    connection: Connection, sender: str, recipients: Sequence[str], message: bytes
) -> Iterator[Sequence[Command]]:
    """Yield the commands of one message: in one packet with PIPELINING (RFC 2920 section 3.1), otherwise one by one."""
    steps = [
        commands.mail(sender, message, connection.offered),
        *map(commands.rcpt, recipients),
        commands.data(message),
    ]
    if "PIPELINING" in connection.offered:
        yield steps
    else:
        for step in steps:
            yield [step]
