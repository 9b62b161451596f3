"""One SMTP connection on asyncio: packets of commands out, replies in, one future for a whole conversation.

A conversation is an iterator of packets: commands that are written together (RFC 2920). The iterator advances when all
commands of a packet have succeeded; it may use the server's extensions by then. The caller is resumed once, at the end
of the conversation.

A reply belongs to a command that was written before the reply arrived. An early or surplus reply ends the connection:
otherwise each later reply would be assigned to the next command.

There is one timer per connection. Commands do not move it; when it fires, it checks for overdue commands.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import again, failing_as, internal, own_failure
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.smtp.codes import SERVICE_CLOSING, accepts_message, kind_of
from loadsim.protocols.smtp.commands import QUIT, STARTTLS, SmtpCommand, extensions
from loadsim.protocols.smtp.wire import Reply, SmtpWire
from loadsim.protocols.tls import handshakes_of, remember

QUIT_LIMIT_S = 10.0
"""The time limit of the server's close after QUIT, after which the connection is dropped."""

NOTHING: Mapping[str, str] = MappingProxyType({})
"""The extensions before EHLO."""

Conversation = Iterator[Sequence[SmtpCommand]]

OVER: Conversation = iter(())
"""The conversation of a connection that has none."""


@dataclass(slots=True)
class _Pending:
    """A command that was sent and not yet answered."""

    verb: str
    further: tuple[tuple[bytes, ...], ...]
    since_ns: int
    sent_bytes: int
    challenged: Callable[[str], None] | None
    received_bytes: int = 0


@dataclass(slots=True, eq=False, repr=False)
class SmtpConnection(asyncio.Protocol):
    """A connection, also before it is made and after its end; `failure` is the reason of its end, None before.

    `offered` has the extensions of the last EHLO by their keywords. `succeeded` counts the successful commands of the
    present or last conversation. `open_connections` holds this one while it has a socket. The account's password is
    removed from errors.
    """

    account: Account
    observer: Observer
    limit_s: float
    open_connections: list[SmtpConnection]
    failure: TaskFailed | None = field(default=None, init=False)
    offered: Mapping[str, str] = field(default_factory=lambda: NOTHING, init=False)
    succeeded: int = field(default=0, init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _wire: SmtpWire = field(default_factory=SmtpWire, init=False)
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _deadline_s: float = field(default=math.inf, init=False)
    _closed: asyncio.Future[None] | None = field(default=None, init=False)
    _conversation: Conversation = field(default=OVER, init=False)
    _end: asyncio.Future[None] | None = field(default=None, init=False)  # of the conversation under way
    _due: Callable[[], None] | None = field(default=None, init=False)  # sends the next packet after all data is read
    _pending: list[_Pending] = field(default_factory=list, init=False)
    _refusal: ServerRefused | None = field(default=None, init=False)  # the first one of the present packet
    _challenged: bool = field(default=False, init=False)  # a command owes the response to a challenge (SASL)
    _last: bool = field(default=False, init=False)  # the connection ends with this conversation
    _leaving: bool = field(default=False, init=False)  # further replies are ignored
    _sealed: bool = field(default=False, init=False)  # after the OK to STARTTLS: no more may come in the clear

    async def connect(
        self, endpoint: Endpoint, context: ssl.SSLContext | None, conversation: Conversation, *, last: bool
    ) -> None:
        """Connect, with implicit TLS if the endpoint states it (RFC 8314), and `converse`, with `GREETING` first."""
        implicit = context if endpoint.tls == "implicit" else None
        end = self._begin(conversation, last)
        try:
            with failing_as("CONNECT", "lost at CONNECT"):
                async with asyncio.timeout(self.limit_s):
                    await connect(lambda: self, endpoint, self.account.number, implicit, self.limit_s)
        except TaskFailed as failure:
            self._fail(failure)
        except asyncio.CancelledError:
            end.cancel()
            self.abort()
            raise
        await self._over(end)

    async def converse(self, conversation: Conversation, *, last: bool) -> None:
        """Run a conversation; after the `last` one, also if it fails, QUIT.

        Raises `TaskFailed`. After `ServerRefused` the connection stays open unless `failure` is set: if the server is
        closing, or if only closing keeps it from delivering to some of the recipients.
        """
        await self._over(self._begin(conversation, last))

    async def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Make the TLS handshake after the server has agreed to STARTTLS (RFC 3207). `SMTP STARTTLS` includes it.

        Data in the clear behind the server's agreement is an error, since an attacker may have injected it
        (CVE-2011-0411). Such data that arrives later is read as part of the handshake, which then fails.
        """
        if self.failure is not None:
            raise again(self.failure)
        agreed = self._pending[0]
        assert self._transport is not None
        transport = None
        try:
            with failing_as("STARTTLS", "lost at STARTTLS"), handshakes_of(self.account.number):
                async with asyncio.timeout(self.limit_s):
                    transport = await self._loop.start_tls(
                        self._transport, self, context, server_hostname=host, ssl_handshake_timeout=self.limit_s
                    )
            if transport is None or self.failure is not None:
                raise ServerLost("lost at STARTTLS") if self.failure is None else again(self.failure)
        except BaseException as error:
            self._fail(error if isinstance(error, TaskFailed) else ServerLost("closed"))
            self._end_socket()  # asyncio does not report a connection that is lost in the handshake
            raise
        self._transport = transport
        self._sealed = False
        self.offered = NOTHING  # discard what was sent in the clear (RFC 3207 section 4.2)
        self._pending.clear()
        self._report(agreed, "ok")

    def keep_open(self) -> None:
        """Do not QUIT after the present conversation: another follows."""
        self._last = False

    def respond(self, line: bytes) -> None:
        """Send the response to a challenge (RFC 4954 section 4)."""
        if not self._challenged or self._transport is None:
            return  # the connection has ended meanwhile
        self._challenged = False
        self._pending[0].sent_bytes += len(line) + 2
        self._transport.write(line + b"\r\n")
        self._wait()

    @property
    def own_address(self) -> str:
        assert self._transport is not None
        return str(self._transport.get_extra_info("sockname")[0])

    def remember_tls(self) -> None:
        """Keep the TLS session, if there is one, for the user's next connection."""
        remember(self.account.number, self._transport)

    def leave(self) -> None:
        """Send QUIT (RFC 5321 section 4.1.1.10); the server closes the connection, or we do after the time limit."""
        if self.failure is not None or self._leaving:
            return
        self._leaving = True
        assert self._transport is not None
        self._transport.write(QUIT)
        self._deadline_s = self._loop.time() + QUIT_LIMIT_S
        if self._timer is None:
            self._set_timer()

    def abort(self) -> None:
        """Close at once. Commands under way fail."""
        self._fail(ServerLost("closed"))

    async def wait_closed(self) -> None:
        """Wait until the socket is closed."""
        if self in self.open_connections:
            self._closed = self._closed or self._loop.create_future()
            await asyncio.shield(self._closed)

    # --- out ---

    def _begin(self, conversation: Conversation, last: bool) -> asyncio.Future[None]:
        assert self._end is None
        if self.failure is not None:
            raise again(self.failure)
        self._end = end = self._loop.create_future()
        self._conversation = conversation
        self._last = last
        self._refusal = None
        self.succeeded = 0
        try:
            self._go_on()
            self._send_due()
        except Exception as error:  # noqa: BLE001  asyncio would only log it, and the conversation never end
            self._fail(internal(error))
        return end

    async def _over(self, end: asyncio.Future[None]) -> None:
        """Wait for the end of a conversation; if the wait is cancelled, close."""
        try:
            await end
        except asyncio.CancelledError:
            self.abort()
            raise

    def _go_on(self) -> None:
        """Schedule the next packet; without one, end the conversation."""
        try:
            packet = next(self._conversation, None)
        except ServerRefused as refusal:
            self._finish(refusal)
            return
        if packet is None:
            self._finish(None)
        else:
            self._due = partial(self._send, packet)

    def _send_due(self) -> None:
        due, self._due = self._due, None
        if due is not None:
            due()

    def _send(self, packet: Sequence[SmtpCommand]) -> None:
        now = self.observer.now()
        for command in packet:
            self._pending.append(_Pending(command.verb, command.further, now, len(command.line), command.challenged))
        if self._transport is not None:  # GREETING comes before there is one, and sends nothing
            lines = [command.line for command in packet]
            self._transport.write(lines[0] if len(lines) == 1 else b"".join(lines))
        self._wait()

    def _send_more(self, pending: _Pending) -> None:
        """Send what the server asks for.

        QUIT is never in the same packet, although RFC 2920 section 3.1 allows it: its reply could be taken for the
        acceptance.
        """
        pieces, *further = pending.further
        pending.further = tuple(further)
        pending.sent_bytes += sum(map(len, pieces))
        assert self._transport is not None
        self._transport.writelines(pieces)
        self._wait()

    def _wait(self) -> None:
        """Restart the time limit for the next reply."""
        self._deadline_s = self._loop.time() + self.limit_s
        if self._timer is None:
            self._set_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        """Set the timer to the present deadline, or to that of a QUIT if it comes first."""
        at_s = min(self._deadline_s, self._loop.time() + QUIT_LIMIT_S)
        self._timer = self._loop.call_at(at_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline_s > self._loop.time():
            if self._deadline_s < math.inf:
                self._set_timer()
        elif self._leaving:
            self._fail(ServerSilent("no answer to QUIT"))
        else:
            self._fail(ServerSilent(f"no answer to {self._at}"))

    # --- in ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, for which asyncio has switched Nagle's algorithm off."""
        self._transport = cast(asyncio.Transport, transport)
        self.open_connections.append(self)
        if self.failure is not None:  # aborted before it was made
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.failure is not None or self._leaving:
            return
        try:
            if self._sealed:
                raise _injected()
            for reply in self._wire.feed(data):
                self._take(reply)
                if self.failure is not None or self._leaving:
                    return
            if self._wire.held_bytes and (self._sealed or self._due or self._challenged or not self._pending):
                raise _injected() if self._sealed else ProtocolError("unasked reply")
            self._send_due()
        except ProtocolError as error:
            line = self._wire.rejected.decode("utf-8", "replace")
            text = f"{error.line}: {line}" if line else error.line
            self._fail(ProtocolError(f"{error.kind} at {self._at}", without_password(text, self.account)))
        except Exception as error:  # noqa: BLE001  asyncio would only log it, and the conversation never end
            self._fail(internal(error))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._leaving:
            why = error.strerror if isinstance(error, OSError) and error.strerror else ""
            self._fail(own_failure(error) or ServerLost(f"lost at {self._at}", why))
        self._end_socket()

    def _take(self, reply: Reply) -> None:
        if self._sealed:
            raise _injected()
        if self._due is not None or self._challenged or not self._pending:
            if reply.code != SERVICE_CLOSING:
                raise ProtocolError("unasked reply", self._text_of(reply))
            self._fail(ServerLost(str(SERVICE_CLOSING), self._text_of(reply)))
            return
        pending = self._pending[0]
        pending.received_bytes += reply.size_bytes
        kind = reply.code // 100
        if kind >= 4:
            refusal = ServerRefused(kind_of(reply.code, pending.verb), self._text_of(reply))
            if self._refusal is None:
                self._refusal = refusal
            if reply.code == SERVICE_CLOSING or self._unsent(pending):
                self._fail(self._refusal)
                return
            self._report(self._pending.pop(0), "refused")
        elif kind == 3 and pending.challenged is not None:
            self._challenged = True
            self._deadline_s = self._loop.time() + self.limit_s
            pending.challenged(b" ".join(reply.lines).decode("utf-8", "replace"))
            return
        elif kind == 3 and pending.further:
            if self._refusal is not None:
                # Some recipients were accepted, others refused. The accepted ones would get the message, or an empty
                # one (RFC 2920 section 3.1); only closing the connection prevents both.
                self._fail(self._refusal)
            else:
                self._due = partial(self._send_more, pending)
            return
        elif kind == 2 and not pending.further and self._answers(reply, pending):
            self.succeeded += 1
            self._accepted(reply)
        else:
            raise ProtocolError("no such answer", self._text_of(reply))
        if self._sealed:
            self._finish(None)
        elif self._pending:
            self._wait()
        elif self._refusal is not None:
            self._finish(self._refusal)
        else:
            self._go_on()

    def _answers(self, reply: Reply, pending: _Pending) -> bool:
        """Return False for a 2yz that cannot accept a message: a 221, or one before the whole message is sent."""
        return pending.verb != "DATA" or (accepts_message(reply.code) and not self._unsent(pending))

    def _unsent(self, pending: _Pending) -> bool:
        """Return True if the end of a message, with the final dot, still waits in the transport."""
        assert self._transport is not None
        return pending.verb == "DATA" and self._transport.get_write_buffer_size() > 0

    def _accepted(self, reply: Reply) -> None:
        pending = self._pending[0]
        if pending.verb == "EHLO":
            self.offered = extensions(reply.lines)
        elif pending.verb == STARTTLS.verb:  # it stays pending until it is done
            self._sealed = True
            assert self._transport is not None
            self._transport.pause_reading()
            return
        self._report(self._pending.pop(0), "ok")

    # --- ends ---

    @property
    def _at(self) -> str:
        """The name in errors of the awaited reply."""
        return self._pending[0].verb if self._pending else "QUIT" if self._leaving else "rest"

    def _report(self, pending: _Pending, outcome: str) -> None:
        self.observer.command(
            f"SMTP {pending.verb}", pending.since_ns, outcome, pending.sent_bytes, pending.received_bytes
        )

    def _text_of(self, reply: Reply) -> str:
        return " ".join(without_password(reply.text, self.account).split())

    def _finish(self, refusal: ServerRefused | None) -> None:
        """End the conversation, with success or with a refusal."""
        end, self._end = self._end, None
        self._conversation = OVER
        self._deadline_s = math.inf
        if end is not None and not end.done():
            if refusal is None:
                end.set_result(None)
            else:
                end.set_exception(refusal)
        if self._last:
            self.leave()

    def _fail(self, failure: TaskFailed) -> None:
        """End the connection: commands under way fail, others are never sent."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._transport is not None:
            self._transport.abort()
        self._stop_timer()
        self._challenged = False
        pending, self._pending = self._pending, []
        for command in pending:
            self._report(command, failure.outcome)
        self._conversation = OVER
        end, self._end = self._end, None
        if end is not None and not end.done():
            end.set_exception(again(failure))

    def _end_socket(self) -> None:
        self._stop_timer()
        if self in self.open_connections:
            self.open_connections.remove(self)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)


def _injected() -> ProtocolError:
    return ProtocolError("data in the clear behind the answer")
