"""One IMAP connection on asyncio: it sends each command in one write, and returns each answer to its caller.

Commands may be sent while others are under way. Untagged data goes to each command under way that may have asked for
its kind, as the protocol does not state which command it answers (RFC 9051 section 5.5). Callers pick out their own
data; the rest is dropped. `states` defines when commands are held back.

Every command ends within its time limit, with an answer or a `TaskFailed`. An exception while reading an answer ends
the connection, and with it each command under way.

A long answer is read in portions, with the loop's other work in between, so that it does not delay other users.

There is at most one timer per connection. Commands do not move it; when it fires, it checks for overdue commands.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import BOUND, KERNEL, LOOP, Arrival
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import Guard, again, failing_as, loss
from loadsim.protocols.imap import states
from loadsim.protocols.imap.commands import Argument, encode
from loadsim.protocols.imap.responses import Condition, Continuation, Expunged, Response, Tagged
from loadsim.protocols.imap.state_rules import SessionCheck
from loadsim.protocols.imap.under_way import WANTED, Answer, ImapCommand, Untagged
from loadsim.protocols.imap.wire import ImapWire
from loadsim.protocols.lines import KEPT_BYTES, Asked, keeping, quoting, unfinished, unseen
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import handshakes_of, remember
from loadsim.protocols.transport import Transport

BEGUN = states.TRANSITIONS[states.READY]

HARMLESS = ("DONE", "STATUS")
"""Commands whose refusal leaves the session as it was, even if no caller waits for them."""

RESPONSES_A_TURN = 32
"""The most responses that a connection reads in one turn of the loop, which takes about a millisecond."""

SHORT_BYTES = 4096
"""All responses in pieces of up to this size are read in one turn."""

FULL_BYTES = 65536
"""After a piece of this size or more, the transport may have the next one ready in the same turn."""

LARGEST_ANSWER_BYTES = 192 << 20
"""The largest weight that may arrive while one command is under way: three of the largest literals, or 50,000 headers
with a tag. Above it the session ends, as a server can send 933 MB within eight seconds.
"""


@dataclass(slots=True, eq=False, repr=False)
class Connection(asyncio.Protocol):
    """A connection, from before it is made until after its end.

    `on_response` gets each untagged response at once, in order; `on_lost` gets the connection's failure. `close` and
    `abort` do not call `on_lost`. Errors never show the account's password.
    """

    account: Account
    observer: Observer
    limit_s: float
    on_response: Callable[[Response], None]
    on_lost: Callable[[TaskFailed], None]
    check: SessionCheck | None = field(default=None, init=False)  # from log-on, for users who are checked
    failure: TaskFailed | None = field(default=None, init=False)  # why it ended
    method: str = field(default="", init=False)  # the log-on method that was used
    free_literal_bytes: int = field(default=-1, init=False)  # literals up to this length need no wait (RFC 7888)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _wire: ImapWire = field(init=False)
    _guard: Guard = field(init=False)
    _state: states.State = field(default=states.GREETING, init=False)
    _spare_plus: bool = field(default=False, init=False)  # a second "+" may follow IDLE's: a busy James 3.8 sends it
    _bye: ServerLost | None = field(default=None, init=False)  # the failure after the server's BYE
    _greeting: asyncio.Future[Condition | None] = field(init=False)  # None: the connection is over
    _closed: asyncio.Future[None] = field(init=False)  # set when the socket is closed
    _transport: Transport | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _under_way: dict[str, ImapCommand] = field(default_factory=dict, init=False)
    _held_back: deque[ImapCommand] = field(default_factory=deque, init=False)
    _last_tag: int = field(default=0, init=False)
    _counted_bytes: int = field(default=0, init=False)  # received bytes already attributed to commands
    _arrived: deque[tuple[bytes, Arrival]] = field(default_factory=deque, init=False)  # pieces not fed to the wire yet
    _arrival: Arrival = field(default=(0, LOOP), init=False)  # of the piece that was fed last
    _rest: Iterator[Response] | None = field(default=None, init=False)  # responses left for the next turn

    def __post_init__(self) -> None:
        self._wire, self._guard = ImapWire(keep=keeping(self.observer.lines, self._asked)), Guard(self._fail_reading)
        self._greeting, self._closed = self._loop.create_future(), self._loop.create_future()

    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> Condition:
        """Connect, with implicit TLS (RFC 8314) if the endpoint has it. Return the greeting."""
        with self._reported("CONNECT") as command:
            try:
                with failing_as("connect"):
                    async with asyncio.timeout(self.limit_s):
                        await connect(self, endpoint, self.account.number, context, self.observer.now)
                        assert self._transport is not None
                        command.since_ns = self._transport.began_ns
                        greeting = await self._greeting
            except ServerSilent as silent:
                raise self._silent(silent.kind) from None
            if greeting is None:
                raise again(self.failure or ServerLost("closed"))
            return greeting

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Send STARTTLS and perform the handshake (RFC 9051 section 6.2.1).

        Cleartext after the server's OK is an error, since an attacker may have injected it (CVE-2011-0411). If it
        arrives later, it is read as part of the handshake, which then fails.
        """
        await self.send("STARTTLS", then=self._leave_socket)
        assert self._transport is not None
        with self._reported("TLS"):
            with failing_as("TLS handshake"), handshakes_of(self.account.number):
                async with asyncio.timeout(self.limit_s):
                    await self._transport.start_tls(context, host)
            if self._state is states.OVER:
                raise self.failure or ServerLost("connection lost")
            self._arrival, self._state = self._transport.arrival, self._state.after("secured")
            self._transport.resume_reading()

    @contextmanager
    def _reported(self, name: str) -> Iterator[ImapCommand]:
        """Report the block as the command that it gets; close unless it succeeds."""
        command, outcome = ImapCommand(name, since_ns=self.observer.now()), "lost"
        try:
            yield command
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        finally:
            self._report(command, outcome)
            if outcome != "ok":
                self.abort()

    def send(
        self,
        name: str,
        *arguments: Argument,
        challenged: Callable[[str], None] | None = None,
        then: Callable[[Answer], None] | None = None,
        resets: bool = False,
    ) -> asyncio.Future[Answer]:
        """Send a command, at once or as soon as it may be sent. The future gets the answer, or a `TaskFailed`.

        `challenged` gets the text of each "+" (SASL); the caller then calls `respond`. `then` is called on success,
        before any later response is read. `resets` means that data before the end of this command (SELECT) cannot
        belong to a later one. Raises `ServerLost` if the connection is over.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._submit(ImapCommand(name, future, then, resets, challenged, WANTED.get(name, ())), arguments)
        return future

    def respond(self, line: bytes) -> None:
        """Send the response to a challenge, unless AUTHENTICATE has already ended."""
        if self._state is states.RESPONSE:
            self._state = states.RESPONSE.after("respond")
            self._write(self._newest, line + b"\r\n")

    def send_quietly(self, name: str, *arguments: Argument) -> None:
        """Send a command for which no caller waits; a refusal ends the connection, unless it is one of `HARMLESS`."""
        if self.failure is None and self._bye is None:
            self._submit(ImapCommand(name), arguments)

    async def idle(self) -> None:
        """Begin IDLE (RFC 2177), and wait for the server's "+". The next command ends it."""
        await self.send("IDLE")

    def remember_tls(self) -> None:
        remember(self.account.number, self._transport)

    def close(self) -> None:
        """Close with TLS's close_notify. Nothing more is read, and `on_lost` is not called."""
        self._state = states.OVER
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once. Commands under way fail."""
        self._state = states.OVER
        self._fail(ServerLost("closed"))

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; abort it after a command's time limit."""
        if self._transport is not None:
            await asyncio.wait((self._closed,), timeout=self.limit_s)
            if not self._closed.done():
                self._transport.abort()

    def _asked(self) -> Asked:
        if self._state is states.GREETING:
            return None
        return self._under_way, any(command.name.endswith("FETCH") for command in self._under_way.values())

    # --- out ---

    @property
    def _newest(self) -> ImapCommand:
        """The last command sent, to which the state refers."""
        return next(reversed(self._under_way.values()))

    def _submit(self, command: ImapCommand, arguments: Sequence[Argument]) -> None:
        if (end := self.failure or self._bye) is not None:
            raise again(end)
        self._last_tag += 1
        command.tag = f"t{self._last_tag}"
        command.pieces = encode(command.tag.encode(), command.name.encode(), arguments, self.free_literal_bytes)
        if self._state is states.READY:
            self._begin(command)
        else:
            self._held_back.append(command)
            self._send_held_back()

    def _send_held_back(self) -> None:
        """Send held-back commands as far as the state allows; end IDLE for them."""
        while self._held_back:
            future = self._held_back[0].future
            if future is not None and future.cancelled():
                self._held_back.popleft()
            elif self._state is states.READY:
                self._begin(self._held_back.popleft())
            elif self._state is states.IDLING:
                self._state = states.IDLING.after("DONE")
                if self.check is not None:
                    self.check(b"DONE")
                self._start(self._newest, b"DONE\r\n")
            else:
                break

    def _begin(self, command: ImapCommand) -> None:
        command.since_weight = self._wire.weight
        if not self._under_way:
            self._counted_bytes = self._wire.taken_bytes
        self._under_way[command.tag] = command
        if self.check is not None:
            self.check(command.pieces[0])
        self._start(command, command.pieces.pop(0))
        self._state = BEGUN.get("literal" if command.pieces else command.name, states.READY)

    def _start(self, command: ImapCommand, data: bytes) -> None:
        """Write a command's first bytes, and start timing it."""
        assert self._transport is not None
        command.sent_bytes, command.deadline_s = len(data), self._loop.time() + self.limit_s
        command.since_ns = self.observer.now()
        self._transport.write(data)
        if self._wire.keep is not None:
            self.observer.lines.append(command.since_ns)
            self.observer.lines.append(data[:KEPT_BYTES])
        if self._timer is None:
            self._timer = self._loop.call_at(command.deadline_s, self._check_deadlines)

    def _write(self, command: ImapCommand, data: bytes) -> None:
        assert self._transport is not None
        command.sent_bytes += len(data)
        now_ns = self.observer.now()
        self._transport.write(data)
        # Since the server asked for it; if the wall clock was set, it may seem to have asked before it got the command.
        command.own_ns += now_ns - max(self._arrival[0], command.since_ns + command.own_ns)
        self.observer.lines.append(now_ns)
        self.observer.lines.append(unseen(len(data)))

    def _unanswered(self) -> list[ImapCommand]:
        """Return the commands to which the server owes an answer."""
        return [command for command in self._under_way.values() if command.deadline_s < math.inf]

    def _check_deadlines(self) -> None:
        self._timer = None
        command = min(self._unanswered(), key=lambda command: command.deadline_s, default=None)
        if command is not None and command.deadline_s <= self._loop.time():
            self._fail(self._silent(f"no answer to {command.name}"))
        elif command is not None:
            self._timer = self._loop.call_at(command.deadline_s, self._check_deadlines)

    def _silent(self, kind: str) -> ServerSilent:
        return ServerSilent(kind, unfinished(self._wire.unfinished, self._asked(), self.account))

    # --- in ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        if self.failure is not None:  # aborted while connecting
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._state is states.OVER:
            return
        assert self._transport is not None
        with self._guard:
            if len(data) <= SHORT_BYTES and self._rest is None:
                self._arrival = self._transport.arrival
                for response in self._wire.feed(data):
                    self._take(response)
                    if self._state is states.OVER:
                        return
            else:
                self._arrived.append((data, self._transport.arrival))
                if self._rest is None:  # else a paused transport still had data
                    self._take_some(self._responses(), full=len(data) >= FULL_BYTES)
            self._check_weight()

    def _responses(self) -> Iterator[Response]:
        """Yield the responses in `_arrived`, including those that arrive meanwhile."""
        while self._arrived:
            data, self._arrival = self._arrived.popleft()
            yield from self._wire.feed(data)

    @property
    def arrival(self) -> Arrival:
        """When the response that is being taken arrived."""
        at_ns, clock = self._arrival
        return (at_ns, BOUND) if clock == KERNEL and self._wire.held_bytes else self._arrival

    def _check_weight(self) -> None:
        """Check the limits for the oldest command under way, which has the largest answer."""
        first = next(iter(self._under_way.values()), None)
        if first is not None:
            check_answer(self._wire.weight - first.since_weight)

    def _take_some(self, responses: Iterator[Response], full: bool = False, paused: bool = False) -> None:
        """Read `RESPONSES_A_TURN` responses, and continue in the loop's next turn if there may be more.

        Reading from the socket pauses until then.
        """
        assert self._transport is not None
        left = RESPONSES_A_TURN
        for response in responses:
            self._take(response)
            if self._state is states.OVER:
                return
            left -= 1
            if left <= 0:
                break
        else:
            if not full:
                if paused and self._state is not states.HANDSHAKE and not self._transport.is_closing():
                    self._transport.resume_reading()
                return
            responses = self._responses()  # this iterator is exhausted; more may arrive before the next turn
        self._rest = responses
        if not paused:
            self._transport.pause_reading()
        self._loop.call_soon(self._resume_taking)

    def _resume_taking(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None and self._state is not states.OVER:
            with self._guard:
                self._take_some(rest, paused=True)
                self._check_weight()

    def connection_lost(self, error: Exception | None) -> None:
        rest, self._rest = self._rest or iter(()), None
        with self._guard:  # what arrived before the end
            while self._state is not states.OVER and (response := next(rest, None)) is not None:
                self._take(response)
        if not self._closed.done():
            self._closed.set_result(None)
        self._fail(self._bye or loss(error))

    def _take(self, response: Response) -> None:
        kind = type(response)
        if kind is Tagged:
            self._end(cast(Tagged, response))
        elif kind is Continuation:
            self._continue(cast(Continuation, response))
        elif self._state is states.GREETING:
            self._greet(response)
        else:
            for command in self._under_way.values():
                if kind in command.wanted:
                    command.data.take(response)
                elif kind is Expunged:
                    command.data.renumber()
            if kind is Condition and cast(Condition, response).status == "BYE":
                self._take_bye(cast(Condition, response))
            self.on_response(response)
            if self.check is not None:
                self.check(response)

    def _greet(self, response: Response) -> None:
        status = response.status if isinstance(response, Condition) else ""
        if status == "BYE":
            self._take_bye(cast(Condition, response))
            return
        self._state = states.GREETING.after(status)
        if not self._greeting.done():
            self._greeting.set_result(cast(Condition, response))

    def _take_bye(self, response: Condition) -> None:
        """End the session unless answers are due, as a server may send BYE without closing."""
        self._bye = ServerLost("BYE", without_password(response.text, self.account))
        if not self._unanswered():
            self._fail(self._bye)

    def _continue(self, response: Continuation) -> None:
        state = self._state
        if self._spare_plus and "+" not in states.TRANSITIONS[state]:
            self._spare_plus = False
            return
        self._state, command = state.after("+"), self._newest
        if state is states.CHALLENGE:
            assert command.challenged is not None
            command.challenged(response.text)
        elif state is states.IDLE:
            self._spare_plus = True
            self._report(command, "ok")
            command.name, command.deadline_s = "DONE", math.inf
            if command.future is not None and not command.future.done():
                command.future.set_result(Answer(Tagged(command.tag, "OK", None, ""), []))
        else:
            self._write(command, command.pieces.pop(0))
            if command.pieces:
                self._state = states.READY.after("literal")
        if self._held_back:
            self._send_held_back()

    def _end(self, tagged: Tagged) -> None:
        """End a command. It stays under way until its whole answer is parsed."""
        command = self._under_way.get(tagged.tag)
        if command is None:
            raise ProtocolError("IMAP tag", "an answer to no command under way")
        if self._state is not states.READY and command is self._newest:
            self._state = self._state.after(tagged.status)
        # The callback, before any later response is read.
        answer, refused = Answer(tagged, command.data.responses), None
        if tagged.status != "OK":
            refused = refusal(command.name, tagged, self.account)
        elif command.then is not None:
            command.then(answer)
        del self._under_way[tagged.tag]
        if command.resets:
            for later in self._under_way.values():
                later.data = Untagged()
                later.since_weight = self._wire.weight
        # The caller.
        future = command.future
        if future is not None and not future.done():
            if refused is None:
                future.set_result(answer)
            else:
                future.set_exception(refused)
        self._report(command, "ok" if refused is None else "refused")
        if self.check is not None:
            self.check(tagged)
        # Its consequences.
        if refused is not None and future is None and command.name not in HARMLESS:
            self._fail(refused)
        elif self._bye is not None and command.name != "LOGOUT" and not self._unanswered():
            self._fail(self._bye)
        elif self._held_back:
            self._send_held_back()

    def _leave_socket(self, _: Answer) -> None:
        """Stop reading before the handshake. Raises `ProtocolError` for data after STARTTLS's OK."""
        if self._wire.held_bytes or self._arrived:
            raise injected()
        assert self._transport is not None
        self._transport.pause_reading()

    # --- ends ---

    def _report(self, command: ImapCommand, outcome: str) -> None:
        received = self._wire.taken_bytes - self._counted_bytes
        self._counted_bytes = self._wire.taken_bytes
        arrival = self.arrival if outcome == "ok" or outcome == "refused" else None
        name = f"IMAP {command.name}"
        self.observer.command(name, command.since_ns, outcome, command.sent_bytes, received, arrival, command.own_ns)

    def _fail_reading(self, failure: TaskFailed) -> None:
        self._fail(quoting(failure, self._wire.malformed, self._asked(), self.account))

    def _fail(self, failure: TaskFailed) -> None:
        """End the connection: commands under way fail, others are never sent."""
        if self.failure is not None:
            return
        is_news = self._state is not states.OVER
        self._state, self.failure = states.OVER, failure
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        if not self._greeting.done():
            self._greeting.set_result(None)
        unanswered = self._unanswered()
        for command in (*unanswered, *self._held_back):
            if command.future is not None and not command.future.done():
                command.future.set_exception(again(failure))
        self._under_way.clear()
        self._held_back.clear()
        self._arrived.clear()
        for command in unanswered:
            self._report(command, failure.outcome)
        if is_news:
            self.on_lost(failure)


def check_answer(taken_bytes: int) -> None:
    """Raise `ProtocolError` for an answer that exceeds the limit."""
    if taken_bytes > LARGEST_ANSWER_BYTES:
        raise ProtocolError("IMAP answer too large", f"more than {LARGEST_ANSWER_BYTES} bytes")


def refusal(command: str, tagged: Tagged, account: Account) -> ServerRefused:
    """Return the failure for a command answered with NO or BAD, by its registered response code."""
    kind, code = (f"[{tagged.code.kind}] ", f"[{tagged.code.name}] ") if tagged.code else ("", "")
    line = without_password(f"{tagged.status} {code}{tagged.text}", account)
    return ServerRefused(f"{tagged.status} {kind}{command}", line)


def injected() -> ProtocolError:
    """Return the failure for cleartext after STARTTLS's OK (CVE-2011-0411)."""
    return ProtocolError(states.HANDSHAKE.kind, states.HANDSHAKE.line)
