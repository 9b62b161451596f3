"""One SMTP or LMTP connection on asyncio: packets of commands out, replies in, one future per packet.

A packet is a group of commands written together (RFC 2920). Its caller resumes when all of them are answered, or when
the server asks for more.

A reply belongs to a command that was written before the reply arrived. An early or surplus reply ends the connection:
otherwise each later reply would be matched with the wrong command.

There is one timer per connection. Commands do not move it; when it fires, it checks for overdue commands.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from types import MappingProxyType
from typing import Protocol, cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import BOUND, KERNEL, LOOP, Arrival
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import again, failing_as, internal, own_failure
from loadsim.protocols.lines import KEPT_BYTES, NO_LINES, unseen
from loadsim.protocols.sasl.masking import MASK, without_password
from loadsim.protocols.smtp import commands
from loadsim.protocols.smtp.commands import DATA, GREETING, QUIT, STARTTLS, SmtpCommand, extensions
from loadsim.protocols.smtp.wire import SERVICE_CLOSING, Reply, SmtpWire, accepts_message, kind_of
from loadsim.protocols.tls import handshakes_of, remember
from loadsim.protocols.transport import Transport

QUIT_LIMIT_S = 10.0
"""The time that a server has to close after QUIT, before the connection is dropped."""

NOTHING: Mapping[str, str] = MappingProxyType({})
"""The extensions before EHLO."""


class Closing(Protocol):
    """A connection that has a socket."""

    async def wait_closed(self) -> None:
        """Wait until the socket is closed. After QUIT, this is a wait for the server, and reported."""


@dataclass(slots=True)
class _Pending:
    """A command that was sent but not answered yet."""

    verb: str
    since_ns: int
    sent_bytes: int
    received_bytes: int = 0
    asked: bool = False  # the server has asked for more
    own_ns: int = 0  # the server waited for it


@dataclass(slots=True, eq=False, repr=False)
class SmtpConnection(asyncio.Protocol):
    """A connection, from before it is made until after its end; `failure` is why it ended, None until then.

    `offered` has the last EHLO's extensions by keyword. `succeeded` counts successful commands. `open_connections`
    includes this one while it has a socket. Errors never show the account's password.
    """

    account: Account
    observer: Observer
    limit_s: float
    open_connections: list[Closing]
    lmtp: bool = False
    failure: TaskFailed | None = field(default=None, init=False)
    offered: Mapping[str, str] = field(default_factory=lambda: NOTHING, init=False)
    succeeded: int = field(default=0, init=False)
    own_address: str = field(default="127.0.0.1", init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _wire: SmtpWire = field(default_factory=SmtpWire, init=False)
    _transport: Transport | None = field(default=None, init=False)
    _arrival: Arrival = field(default=(0, LOOP), init=False)  # of the last bytes
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _deadline_s: float = field(default=math.inf, init=False)
    _closed: asyncio.Future[None] | None = field(default=None, init=False)
    _pending: list[_Pending] = field(default_factory=list, init=False)
    _answer: asyncio.Future[str | None] | None = field(default=None, init=False)  # None: no reply is due
    _refusal: ServerRefused | None = field(default=None, init=False)  # the current packet's first
    _said: Sequence[bytes] = field(default=(), init=False)  # sent by the last `go_on`: a message, or a response
    _leaving: bool = field(default=False, init=False)  # further replies are ignored
    # By LMTP, for each recipient: accepted; and for each accepted one: when the server took the message, or 0 if it did
    # not (RFC 2033 section 4.2).
    _named: list[bool] = field(default_factory=list, init=False)
    _delivered_ns: list[int] = field(default_factory=list, init=False)
    _unanswered: int = field(default=0, init=False)  # accepted recipients whose reply to the message is due

    @property
    def service(self) -> str:
        """The protocol, as commands' names begin."""
        return "LMTP" if self.lmtp else "SMTP"

    def reached(self, recipients: Sequence[str]) -> Mapping[str, int]:
        """Return the recipients who, by LMTP, get the last message, with the instants of the replies for them.

        The others were refused, or not answered for.
        """
        answered = zip(compress(recipients, self._named), self._delivered_ns, strict=False)
        return {recipient: at_ns for recipient, at_ns in answered if at_ns}

    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """Connect, with implicit TLS (RFC 8314) if the endpoint has it, and wait for the greeting."""
        greeting = self._begin((GREETING,))
        try:
            with failing_as("CONNECT", "lost at CONNECT"):
                async with asyncio.timeout(self.limit_s):
                    await connect(self, endpoint, self.account.number, context, self.observer.now)
        except TaskFailed as failure:
            self._fail(failure)
        except asyncio.CancelledError:
            greeting.cancel()
            self.abort()
            raise
        await self._end_of(greeting)

    async def send(self, *packet: SmtpCommand) -> str | None:
        """Send commands together. Return the server's text if it asks for more (3yz), None if all succeeded.

        Raises `TaskFailed`. After `ServerRefused` the connection stays open unless `failure` is set: when the server is
        closing, or when only closing prevents delivery to some of the recipients.
        """
        return await self._end_of(self._begin(packet))

    async def go_on(self, *pieces: bytes) -> str | None:
        """Send what the server has asked for (a message, or the response to a challenge). Return as `send` does.

        QUIT is never in the same packet, although RFC 2920 section 3.1 allows it: its reply could be mistaken for the
        acceptance.
        """
        if self.failure is not None:
            raise again(self.failure)
        assert self._transport is not None
        self._said, data = pieces, b"".join(pieces)
        size_bytes, now_ns = len(data), self.observer.now()
        self._transport.write(data)
        pending = self._pending[0]
        pending.sent_bytes += size_bytes
        pending.own_ns += now_ns - max(self._arrival[0], pending.since_ns + pending.own_ns)  # see `imap.connection`
        self.observer.lines.append(now_ns)
        self.observer.lines.append(unseen(size_bytes))
        return await self._end_of(self._wait_for_replies())

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Send STARTTLS and perform the handshake (RFC 3207), which counts as part of `SMTP STARTTLS`.

        Cleartext after the server's agreement is an error, since an attacker may have injected it (CVE-2011-0411). If
        it arrives later, it is read as part of the handshake, which then fails.
        """
        await self.send(STARTTLS)
        if self.failure is not None:
            raise again(self.failure)
        agreed = self._pending[0]
        assert self._transport is not None
        try:
            with failing_as("STARTTLS", "lost at STARTTLS"), handshakes_of(self.account.number):
                async with asyncio.timeout(self.limit_s):
                    await self._transport.start_tls(context, host)
            if self.failure is not None:
                raise again(self.failure)
        except BaseException as error:
            self._fail(error if isinstance(error, TaskFailed) else ServerLost("closed"))
            raise
        self._arrival = self._transport.arrival
        self._transport.resume_reading()
        self.offered = NOTHING  # discard what was sent in the clear (RFC 3207 section 4.2)
        self._pending.clear()
        self._report(agreed, "ok")

    def remember_tls(self) -> None:
        remember(self.account.number, self._transport)

    def leave(self) -> None:
        """Send QUIT (RFC 5321 section 4.1.1.10); the server closes the connection, or we do after the time limit."""
        if self.failure is not None or self._leaving:
            return
        self._leaving = True
        assert self._transport is not None
        self._transport.write(QUIT)
        self._stop_timer()
        self._set_deadline(QUIT_LIMIT_S)

    def abort(self) -> None:
        """Close at once. Commands under way fail."""
        self._fail(ServerLost("closed"))

    async def wait_closed(self) -> None:
        if self in self.open_connections:
            since_ns = self.observer.now()
            self._closed = self._closed or self._loop.create_future()
            await asyncio.shield(self._closed)
            if self._leaving:
                outcome = "ok" if self.failure is None else self.failure.outcome
                self.observer.command(f"{self.service} QUIT", since_ns, outcome, 0, 0, (self.observer.now(), LOOP))

    # --- out ---

    def _begin(self, packet: Sequence[SmtpCommand]) -> asyncio.Future[str | None]:
        assert not self._pending
        if self.failure is not None:
            raise again(self.failure)
        self._refusal, self._said = None, ()
        if packet[0].verb == commands.MAIL:
            self._named, self._delivered_ns, self._unanswered = [], [], 0
        data = b"".join([command.line for command in packet])
        now_ns = self.observer.now()
        if self._transport is not None:  # GREETING precedes it, and sends nothing
            self._transport.write(data)
            for command in packet:
                self.observer.lines.append(now_ns)
                self.observer.lines.append(command.line[:KEPT_BYTES])
        self._pending += [_Pending(command.verb, now_ns, len(command.line)) for command in packet]
        return self._wait_for_replies()

    def _wait_for_replies(self) -> asyncio.Future[str | None]:
        self._set_deadline(self.limit_s)
        self._answer = answer = self._loop.create_future()
        return answer

    async def _end_of(self, answer: asyncio.Future[str | None]) -> str | None:
        """Wait for the answer to a packet; if the wait is cancelled, close."""
        try:
            return await answer
        except asyncio.CancelledError:
            self.abort()
            raise

    def _set_deadline(self, limit_s: float) -> None:
        """Restart the time limit for the next reply."""
        self._deadline_s = self._loop.time() + limit_s
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline_s <= self._loop.time():
            self._fail(ServerSilent(f"no answer to {self._at}"))
        elif self._deadline_s < math.inf:
            self._timer = self._loop.call_at(self._deadline_s, self._check_deadline)

    # --- in ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        self.open_connections.append(self)
        if self._pending:
            self._pending[0].since_ns = self._transport.began_ns
        if address := transport.get_extra_info("sockname"):
            self.own_address = str(address[0])
        if self.failure is not None:  # aborted while connecting
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.failure is not None or self._leaving:
            return
        assert self._transport is not None
        self._arrival = self._transport.arrival
        try:
            for reply in self._wire.feed(data):
                self._take(reply)
                if self.failure is not None:
                    return
            if self._wire.held_bytes and self._answer is None:
                raise self._unasked("")
        except ProtocolError as error:
            line = self._unrepeated(self._wire.rejected).decode("utf-8", "replace")
            text = f"{error.line}: {line}" if line else error.line
            self._fail(ProtocolError(f"{error.kind} at {self._at}", without_password(text, self.account)))
        except Exception as error:  # noqa: BLE001  asyncio would just log it, and the packet would never end
            self._fail(internal(error))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._leaving:
            why = error.strerror if isinstance(error, OSError) and error.strerror else ""
            self._fail(own_failure(error) or ServerLost(f"lost at {self._at}", why))
        self._end_socket()

    def _take(self, reply: Reply) -> None:
        if self.observer.lines is not NO_LINES:
            self.observer.lines.append(self._shown(reply).encode()[:KEPT_BYTES])
        if self._answer is None:
            if reply.code != SERVICE_CLOSING:
                raise self._unasked(self._text_of(reply))
            self._fail(ServerLost(str(SERVICE_CLOSING), self._text_of(reply)))
            return
        pending = self._pending[0]
        pending.received_bytes += reply.size_bytes
        match reply.code // 100:
            case 4 | 5:
                self._refusal = self._refusal or ServerRefused(kind_of(reply.code, pending.verb), self._text_of(reply))
                if reply.code == SERVICE_CLOSING or self._unsent(pending):
                    self._fail(self._refusal)
                    return
                self._answered(pending, "refused")
            case 3 if pending.verb == commands.AUTH or (pending.verb == DATA.verb and not pending.asked):
                if self._refusal is not None and not self._unanswered:
                    # Some recipients were accepted, others refused. The accepted ones would get the message, or an
                    # empty one (RFC 2920 section 3.1); only closing the connection prevents both.
                    self._fail(self._refusal)
                    return
                pending.asked = True
                self._resume(b" ".join(reply.lines).decode("utf-8", "replace"))
                return
            case 2 if pending.verb != DATA.verb or self._accepts(reply, pending):
                self.succeeded += 1
                if pending.verb == STARTTLS.verb:  # it stays pending until the handshake is done
                    assert self._transport is not None
                    self._transport.pause_reading()
                    self._resume(None)
                    return
                if pending.verb in (commands.EHLO, commands.LHLO):
                    self.offered = extensions(reply.lines)
                self._answered(pending, "ok")
            case _:
                raise ProtocolError("no such answer", self._text_of(reply))
        if self._pending:
            self._set_deadline(self.limit_s)
        else:
            self._resume(None, self._refusal)

    def _answered(self, pending: _Pending, outcome: str) -> None:
        """End the first command under way; by LMTP, a message ends with the reply for its last accepted recipient."""
        if self.lmtp and pending.verb == commands.RCPT:
            self._named.append(outcome == "ok")
            self._unanswered += outcome == "ok"
        elif self.lmtp and pending.verb == DATA.verb and pending.asked:
            self._delivered_ns.append(max(self._arrival[0], pending.since_ns) if outcome == "ok" else 0)
            self._unanswered -= 1
            if self._unanswered:
                return
            outcome = "ok" if any(self._delivered_ns) else "refused"
        self._report(self._pending.pop(0), outcome)

    def _accepts(self, reply: Reply, pending: _Pending) -> bool:
        """Return False for a 2yz that cannot accept a message: a 221, or one that precedes the message's end."""
        return pending.asked and accepts_message(reply.code) and not self._unsent(pending)

    def _unsent(self, pending: _Pending) -> bool:
        """Return True if a message's end, with the final dot, is still in the transport's buffer."""
        assert self._transport is not None
        return pending.verb == DATA.verb and self._transport.get_write_buffer_size() > 0

    def _unasked(self, text: str) -> ProtocolError:
        in_the_clear = self._pending and self._pending[0].verb == STARTTLS.verb
        return ProtocolError("data in the clear behind the answer" if in_the_clear else "unasked reply", text)

    # --- ends ---

    @property
    def _at(self) -> str:
        """The awaited reply's name in errors."""
        return self._pending[0].verb if self._pending else "QUIT" if self._leaving else "rest"

    def _report(self, pending: _Pending, outcome: str) -> None:
        arrival = None
        if outcome in ("ok", "refused"):
            at_ns, clock = arrival = self._arrival
            if clock == KERNEL and self._wire.held_bytes:
                arrival = at_ns, BOUND
        name, sent, received = f"{self.service} {pending.verb}", pending.sent_bytes, pending.received_bytes
        self.observer.command(name, pending.since_ns, outcome, sent, received, arrival, pending.own_ns)

    def _text_of(self, reply: Reply) -> str:
        return " ".join(without_password(self._shown(reply), self.account).split())

    def _shown(self, reply: Reply) -> str:
        return reply._replace(lines=tuple(map(self._unrepeated, reply.lines))).text

    def _unrepeated(self, line: bytes) -> bytes:
        """Return a server's line, masked if it repeats a message or response that was sent."""
        return MASK.encode() if line and any(line in piece for piece in self._said) else line

    def _resume(self, text: str | None, failure: TaskFailed | None = None) -> None:
        self._deadline_s = math.inf
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            if failure is None:
                answer.set_result(text)
            else:
                answer.set_exception(failure)

    def _fail(self, failure: TaskFailed) -> None:
        """End the connection: commands under way fail, others are never sent."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._transport is not None:
            self._transport.abort()
        self._stop_timer()
        pending, self._pending = self._pending, []
        for command in pending:
            self._report(command, failure.outcome)
        self._resume(None, again(failure))

    def _end_socket(self) -> None:
        self._stop_timer()
        if self in self.open_connections:
            self.open_connections.remove(self)
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
