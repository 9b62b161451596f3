"""SMTP submission (RFC 5321, RFC 6409), and LMTP (RFC 2033): when users connect, keep a connection, and leave."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.mail_program import AIOSMTPLIB, PIPELINING
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.provisioning_ports import ServerOffer
from loadsim.protocols.smtp.connection import Closing, SmtpConnection
from loadsim.protocols.smtp.session import OwnSession


class SmtpSession(Protocol):
    """One connection, for one message at a time. Methods raise `TaskFailed`."""

    @property
    def is_usable(self) -> bool:
        """False before the connection is made, and after its end."""
        ...

    @property
    def succeeded(self) -> int:
        """The number of successful commands."""
        ...

    @property
    def offered(self) -> Mapping[str, str]:
        """The extensions of the last EHLO, by keyword."""
        ...

    @property
    def method(self) -> str:
        """The log-on method that was used; "" if users do not log on."""
        ...

    async def open(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """Connect, secure and authenticate as the endpoint requires."""

    async def transact(self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None) -> None:
        """Send one message, with a request for a delivery receipt unless the ID is None.

        After `ServerRefused`, only its `accepted` get it.
        """

    async def ask(self, sender: str, recipient: str) -> None:
        """MAIL, RCPT and RSET, one at a time."""

    async def reset(self) -> None:
        """End a refused transaction."""

    def leave(self) -> None:
        """Send QUIT if the connection is usable, and close in the background."""

    def abort(self) -> None:
        """Close at once."""


@dataclass(slots=True, eq=False, repr=False)
class SmtpSubmission:
    """Sends one user's messages, one at a time; implements `Probing`, which includes `ports.Submission`.

    `way` is one of `SUBMISSIONS`.

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
    way: str
    _kept: SmtpSession | None = field(default=None, init=False)  # set only between two messages
    _open: list[Closing] = field(default_factory=list, init=False)

    async def send(
        self, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None = None
    ) -> bool:
        """Submit one message (RFC 5322, CRLF), and wait until it is accepted for all recipients.

        Return whether a delivery receipt was requested: with `envelope_id`, if the server offers DSN.

        Raises `ServerRefused` (kind "550 RCPT": code and command), `ServerLost` or `ServerSilent`. A refused recipient
        ends the transaction: no recipient gets the message. By LMTP, the failure's `accepted` do.
        """
        kept, self._kept = self._kept, None
        if kept is not None and kept.is_usable:
            succeeded = kept.succeeded
            try:
                return await self._transact(kept, sender, recipients, message, envelope_id)
            except (ServerLost, ServerRefused):
                if kept.is_usable or kept.succeeded > succeeded:
                    raise  # without success, the connection had ended before this message
        if kept is not None:
            kept.abort()
        return await self._transact(await self._connect(), sender, recipients, message, envelope_id)

    async def check(self) -> None:
        """Connect, secure and authenticate as for a message, then QUIT. Raises as `send` does."""
        try:
            (await self._connect()).leave()
        finally:
            await self.close()

    async def ask(self, sender: str, recipient: str) -> ServerOffer:
        """MAIL, RCPT and RSET, one at a time, on a separate connection, then QUIT; see `Probing`."""
        try:
            session = await self._connect()
            try:
                await session.ask(sender, recipient)
            finally:
                session.leave()
        finally:
            await self.close()
        features = (f"{name} {parameters}".strip() for name, parameters in session.offered.items())
        return ServerOffer(frozenset(features), session.method)

    async def close(self) -> None:
        """QUIT a kept connection, and wait until it and those of earlier messages are closed."""
        if self._kept is not None:
            self._kept.leave()
            self._kept = None
        for connection in list(self._open):
            await connection.wait_closed()

    async def _transact(
        self, session: SmtpSession, sender: str, recipients: Sequence[str], message: bytes, envelope_id: str | None
    ) -> bool:
        """Send one message; then QUIT unless the connection is kept. Return whether a receipt was requested."""
        requested = envelope_id if "DSN" in session.offered else None
        try:
            await session.transact(sender, recipients, message, requested)
        except ServerRefused:
            if self.endpoint.connection == "kept" and session.is_usable:
                await self._reset(session)
            else:
                session.leave()
            raise
        if self.endpoint.connection == "kept":
            self._kept = session
        else:
            session.leave()
        return requested is not None

    async def _reset(self, session: SmtpSession) -> None:
        """End a refused transaction, so that the connection can serve the next message."""
        try:
            await session.reset()
        except TaskFailed:
            session.abort()
        else:
            self._kept = session

    async def _connect(self) -> SmtpSession:
        """Return a session, secured and authenticated as the endpoint requires. Sends QUIT after a refusal."""
        session = self._new_session()
        try:
            await session.open(self.endpoint, self.tls_context)
        except ServerRefused:
            session.leave()
            raise
        except BaseException:
            session.abort()
            raise
        return session

    def _new_session(self) -> SmtpSession:
        if self.way == AIOSMTPLIB and not self.endpoint.lmtp:
            # Importing it takes 30 ms, which other submissions need not wait for.
            from loadsim.protocols.smtp.library import LibrarySession

            return LibrarySession(self.account, self.observer, self.limit_s, self._open)
        connection = SmtpConnection(self.account, self.observer, self.limit_s, self._open, self.endpoint.lmtp)
        return OwnSession(connection, self.way == PIPELINING)
