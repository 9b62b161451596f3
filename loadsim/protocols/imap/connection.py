"""One IMAP connection on asyncio: it sends each command in one write, and returns each answer to its caller.

Commands may be sent while others are under way. Untagged data goes to each command under way that may have asked for
data of its kind: the protocol does not state which command it answers (RFC 9051 section 5.5). The caller picks its
own data; other data is not kept. A command waits behind a literal or an IDLE, until the server sends "+", and behind
DONE, until IDLE has ended.

Every command ends within its time limit, with an answer or a `TaskFailed`. An exception while an answer is read ends
the connection, and with it each command under way.

A long answer is read in portions, with the loop's other work in between: one user's answer does not delay others.

There is at most one timer per connection. Commands do not move it; when it fires, it checks for overdue commands.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import again, failing_as, internal, own_failure
from loadsim.protocols.imap.commands import Argument, encode
from loadsim.protocols.imap.responses import Condition, Continuation, Expunged, Response, Tagged
from loadsim.protocols.imap.under_way import WANTED, Answer, Command, Untagged
from loadsim.protocols.imap.wire import Wire
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import handshakes_of, remember

RESPONSES_A_TURN = 32
"""The most responses of one connection that are read in one turn of the loop; they take about a millisecond."""

DONE = b"DONE\r\n"

SHORT_BYTES = 4096
"""All responses in pieces of up to this size are read in one turn."""

FULL_BYTES = 65536
"""After a piece of this size or more, the transport may have the next one ready in the same turn."""

LARGEST_ANSWER_BYTES = 192 << 20
"""The most that may arrive while one command is under way, by weight: three of the largest literals, or 50,000 headers
with evidence. Above it the session ends: a server can send 933 MB within eight seconds."""

LINE_WEIGHT = 4
"""The weight of a byte outside literals: flags, addresses and parts take ten times their size, text its size."""

RESPONSE_BYTES = 256
"""The weight of a response in addition to its bytes: a short response takes more memory than its size."""


@dataclass(slots=True, eq=False, repr=False)
class Connection(asyncio.Protocol):
    """A connection, also before it is made and after its end.

    `on_response` gets each untagged response at once, in order; `on_lost` gets the failure of the connection. `close`
    and `abort` do not call `on_lost`. The account's password is removed from all errors.
    """

    account: Account
    observer: Observer
    limit_s: float
    on_response: Callable[[Response], None]
    on_lost: Callable[[TaskFailed], None]
    failure: TaskFailed | None = field(default=None, init=False)  # the reason of its end
    method: str = field(default="", init=False)  # the log-on method that was used
    free_literal_bytes: int = field(default=-1, init=False)  # literals up to this length need no waiting (RFC 7888)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _wire: Wire = field(default_factory=Wire, init=False)
    _guard: Guard = field(init=False)
    _greeting: asyncio.Future[Condition] | None = field(default=None, init=False)  # while it is awaited
    _gone: bool = field(default=False, init=False)  # the socket is closed
    _closed: asyncio.Future[None] | None = field(default=None, init=False)  # is set when the socket is closed
    _transport: asyncio.Transport | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _under_way: dict[str, Command] = field(default_factory=dict, init=False)
    _held_back: list[Command] = field(default_factory=list, init=False)
    _awaiting: Command | None = field(default=None, init=False)  # the command that waits for "+", or DONE
    _idling: Command | None = field(default=None, init=False)  # an IDLE after its "+"
    _second_plus: bool = field(default=False, init=False)  # one may follow the "+" to IDLE: busy, James 3.8 sends it
    _challenged: Command | None = field(default=None, init=False)  # the command that owes a response (SASL)
    _last_tag: int = field(default=0, init=False)
    _counted_bytes: int = field(default=0, init=False)  # received bytes that were counted for a command
    _bye: str | None = field(default=None, init=False)
    _leaving: bool = field(default=False, init=False)
    _taken: int = field(default=0, init=False)  # untagged responses so far
    _arrived: deque[bytes] = field(default_factory=deque, init=False)  # pieces that the wire has not got yet
    _rest: Iterator[Response] | None = field(default=None, init=False)  # responses that wait for the next turn
    _sealed: bool = field(default=False, init=False)  # after the OK to STARTTLS: no more may come in the clear

    def __post_init__(self) -> None:
        self._guard = Guard(self._fail)

    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> Condition:
        """Connect, with implicit TLS if the endpoint states it (RFC 8314). Return the greeting."""
        implicit = context if endpoint.tls == "implicit" else None
        greeting: asyncio.Future[Condition] = self._loop.create_future()
        self._greeting = greeting
        with self._reported("CONNECT"):
            try:
                with failing_as("connect"):
                    async with asyncio.timeout(self.limit_s):
                        await connect(lambda: self, endpoint, self.account.number, implicit, self.limit_s)
                        return await greeting
            finally:
                if greeting.done() and not greeting.cancelled():
                    greeting.exception()  # retrieved, or asyncio complains
                self._greeting = None

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Send STARTTLS and make the handshake (RFC 9051 section 6.2.1).

        Data in the clear behind the server's OK is an error, since an attacker may have injected it (CVE-2011-0411).
        Such data that arrives later is read as part of the handshake, which then fails.
        """
        await self.send("STARTTLS")
        assert self._transport is not None
        with self._reported("TLS"):
            with failing_as("TLS handshake"), handshakes_of(self.account.number):
                async with asyncio.timeout(self.limit_s):
                    transport = await self._loop.start_tls(
                        self._transport, self, context, server_hostname=host, ssl_handshake_timeout=self.limit_s
                    )
            if transport is None or self.failure is not None:
                raise self.failure or ServerLost("connection lost")
            self._transport = transport

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Report the block as a command; close unless it succeeds."""
        since, outcome = self.observer.now(), "lost"
        try:
            yield
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        finally:
            received = self._wire.taken_bytes - self._counted_bytes
            self._counted_bytes = self._wire.taken_bytes
            self.observer.command(f"IMAP {name}", since, outcome, 0, received)
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
        """Send a command at once, or behind the one that waits for "+". The future gets the answer, or a `TaskFailed`.

        `challenged` gets the text of each "+" (SASL); the caller then calls `respond`. `then` is called on success,
        before any later response is read. `resets` means that data before the end of this command (SELECT) cannot
        belong to a later one. Raises `ServerLost` if the connection is over.
        """
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._submit(name, arguments, future, challenged, then, resets)
        return future

    def respond(self, line: bytes) -> None:
        """Send the response to a challenge."""
        command = self._challenged
        if command is None or self._transport is None:
            return  # the command has ended meanwhile
        self._challenged = None
        command.sent_bytes += len(line) + 2
        self._transport.write(line + b"\r\n")

    def send_quietly(self, name: str) -> None:
        """Send a command without a waiting caller; if it is refused, the connection ends."""
        if self.failure is None and self._bye is None:
            self._submit(name, (), None)

    async def idle(self) -> None:
        """Begin IDLE (RFC 2177), and wait for the server's "+". The next command ends it."""
        await self.send("IDLE")

    def remember_tls(self) -> None:
        """Keep the TLS session, if there is one, for the user's next connection."""
        remember(self.account.number, self._transport)

    def close(self) -> None:
        """Close with TLS's close_notify; `on_lost` is not called.

        A transport that the server has closed already is left: asyncio cannot abort a TLS transport that is closed
        twice.
        """
        self._leaving = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close at once. Commands under way fail."""
        self._leaving = True
        self._fail(ServerLost("closed"))

    async def wait_closed(self) -> None:
        """Wait until the socket is closed; abort it after a command's time limit."""
        if self._transport is None or self._gone:
            return
        self._closed = self._closed or self._loop.create_future()
        try:
            async with asyncio.timeout(self.limit_s):
                await asyncio.shield(self._closed)
        except TimeoutError:
            self._transport.abort()

    # --- out ---

    def _submit(
        self,
        name: str,
        arguments: Sequence[Argument],
        future: asyncio.Future[Answer] | None,
        challenged: Callable[[str], None] | None = None,
        then: Callable[[Answer], None] | None = None,
        resets: bool = False,
    ) -> None:
        if self.failure is not None:
            raise again(self.failure)
        if self._bye is not None:
            raise ServerLost("BYE", self._bye)
        self._last_tag += 1
        tag = f"t{self._last_tag}"
        pieces = encode(tag.encode(), name.encode(), arguments, self.free_literal_bytes)
        command = Command(name, tag, pieces, future, then, resets, WANTED.get(name, ()), challenged)
        if self._idling is not None:
            self._end_idle(self._idling)
        if self._awaiting is None:
            self._begin(command)
        else:
            self._held_back.append(command)

    def _begin(self, command: Command) -> None:
        line = command.pieces.pop(0)
        command.since_ns = self.observer.now()
        command.deadline_s = self._loop.time() + self.limit_s
        command.sent_bytes = len(line)
        command.since_weight = self._weight
        if not self._under_way:
            self._counted_bytes = self._wire.taken_bytes
        self._under_way[command.tag] = command
        if command.pieces or command.name == "IDLE" or command.challenged is not None:
            self._awaiting = command
        self._write(command, line)

    def _end_idle(self, command: Command) -> None:
        """Send DONE. Commands wait for its answer: not all servers expect one right behind it (RFC 2177 section 3)."""
        self._idling, self._awaiting = None, command
        command.since_ns = self.observer.now()
        command.deadline_s = self._loop.time() + self.limit_s
        command.sent_bytes = len(DONE)
        self._write(command, DONE)

    def _write(self, command: Command, line: bytes) -> None:
        assert self._transport is not None
        self._transport.write(line)
        if self._timer is None:
            self._timer = self._loop.call_at(command.deadline_s, self._check_deadlines)

    def _send_held_back(self) -> None:
        """Send the commands that were held back, up to the next that waits for "+"."""
        while self._held_back and self._awaiting is None and self.failure is None:
            command = self._held_back[0]
            if command.future is not None and command.future.cancelled():
                del self._held_back[0]
            elif self._idling is not None:
                self._end_idle(self._idling)
            else:
                self._begin(self._held_back.pop(0))

    def _check_deadlines(self) -> None:
        self._timer = None
        due_s = min((command.deadline_s for command in self._under_way.values()), default=math.inf)
        if due_s <= self._loop.time():
            late = next(command for command in self._under_way.values() if command.deadline_s == due_s)
            self._fail(ServerSilent(f"no answer to {late.name}"))
        elif due_s < math.inf:
            self._timer = self._loop.call_at(due_s, self._check_deadlines)

    # --- in ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Switch Nagle's algorithm off, for small packets."""
        self._transport = cast(asyncio.Transport, transport)
        if self.failure is not None:  # aborted before it was made
            self._transport.abort()
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        with self._guard:
            if len(data) <= SHORT_BYTES and self._rest is None:
                for response in self._wire.feed(data):
                    self._take(response)
                    if self.failure is not None:
                        return
                if self._sealed:
                    self._unseal()
            else:
                self._arrived.append(data)
                if self._rest is None:  # else a paused transport still had data
                    self._take_some(self._responses(), full=len(data) >= FULL_BYTES)
            self._check_weight()

    def _responses(self) -> Iterator[Response]:
        """Yield the responses in `_arrived`, also those that arrive meanwhile."""
        while self._arrived:
            yield from self._wire.feed(self._arrived.popleft())

    @property
    def _weight(self) -> int:
        """The weight of all received data, an estimate of the memory that it takes."""
        literal_bytes = self._wire.taken_literal_bytes
        line_bytes = self._wire.taken_bytes - literal_bytes
        return literal_bytes + line_bytes * LINE_WEIGHT + self._taken * RESPONSE_BYTES

    def _check_weight(self) -> None:
        """Check the limits for the oldest command under way, which has the largest answer."""
        first = next(iter(self._under_way.values()), None)
        taken_bytes = 0 if first is None else self._weight - first.since_weight
        check_answer(taken_bytes)

    def _take_some(self, responses: Iterator[Response], full: bool = False, paused: bool = False) -> None:
        """Read `RESPONSES_A_TURN` responses; continue in the loop's next turn if there are or may be more.

        Reading from the socket pauses until then, and after STARTTLS until its handshake.
        """
        assert self._transport is not None
        left = RESPONSES_A_TURN
        for response in responses:
            self._take(response)
            if self.failure is not None:
                return
            left -= 1
            if left <= 0 and not self._sealed:  # data behind STARTTLS is checked before its caller resumes
                break
        else:
            if self._sealed:
                self._unseal()
                return
            if not full:
                if paused and not self._transport.is_closing():
                    self._transport.resume_reading()
                return
            responses = self._responses()  # this iterator is exhausted; more may arrive before the next turn
        self._rest = responses
        if not paused:
            self._transport.pause_reading()
        self._loop.call_soon(self._resume_taking)

    def _resume_taking(self) -> None:
        rest, self._rest = self._rest, None
        if rest is not None and self.failure is None:
            with self._guard:
                self._take_some(rest, paused=True)
                self._check_weight()

    def _unseal(self) -> None:
        """Accept the OK to STARTTLS. Raises `ProtocolError` for data behind it."""
        if self._wire.held_bytes:
            raise injected()
        self._sealed = False

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        self._take_rest()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._fail(loss(self._bye, error))

    def _take_rest(self) -> None:
        """Read the responses that arrived before the end of the connection."""
        rest, self._rest = self._rest, None
        with self._guard:
            while rest is not None and self.failure is None and (response := next(rest, None)) is not None:
                self._take(response)

    def _take(self, response: Response) -> None:
        if self._sealed:
            raise injected()
        kind = type(response)
        if kind is Tagged:
            self._end(cast(Tagged, response))
        elif kind is Continuation:
            self._continue(cast(Continuation, response))
        elif self._greeting is not None and not self._greeting.done():
            self._greet(response)
        else:
            self._taken += 1
            for command in self._under_way.values():
                if kind in command.wanted:
                    command.data.take(response)
                elif kind is Expunged:
                    command.data.renumber()
            if kind is Condition and cast(Condition, response).status == "BYE":
                self._take_bye(cast(Condition, response))
            self.on_response(response)

    def _take_bye(self, response: Condition) -> None:
        """End the session, unless commands are under way: a server may send BYE and not close."""
        self._bye = self._clean(response.text)
        if all(command is self._idling for command in self._under_way.values()):
            self._fail(ServerLost("BYE", self._bye))

    def _greet(self, response: Response) -> None:
        assert self._greeting is not None
        if not isinstance(response, Condition) or response.status not in ("OK", "PREAUTH", "BYE"):
            raise ProtocolError("IMAP greeting", "expected OK, PREAUTH or BYE")
        if response.status == "BYE":
            self._fail(ServerLost("BYE", self._clean(response.text)))
        else:
            self._greeting.set_result(response)

    def _end(self, tagged: Tagged) -> None:
        """End a command. It stays under way until its whole answer is parsed."""
        command = self._under_way.get(tagged.tag)
        if command is None:
            raise ProtocolError("IMAP tag", "an answer to no command under way")
        if command is self._idling:
            raise ProtocolError("IMAP IDLE", "the server ended it before DONE")
        done = tagged.status == "OK"
        if command is self._awaiting:
            if done and self._challenged is not None:
                raise ProtocolError("IMAP AUTHENTICATE", "OK before the response to a challenge")
            self._challenged = None
            if done and command.challenged is None and command.name != "DONE":
                kind = "IMAP IDLE" if command.name == "IDLE" else "IMAP literal"
                raise ProtocolError(kind, "OK to a command that was not complete")
            self._awaiting = None
        answer = Answer(tagged, command.data.responses)
        if done and command.then is not None:
            command.then(answer)
        del self._under_way[tagged.tag]
        if command.resets:
            for later in self._under_way.values():
                later.data = Untagged()
                later.since_weight = self._weight
        if done and command.name == "STARTTLS":
            self._sealed = True
            assert self._transport is not None
            self._transport.pause_reading()
        future = command.future
        if future is not None and not future.done():
            if done:
                future.set_result(answer)
            else:
                future.set_exception(refusal(command.name, tagged, self.account))
        self._report(command, "ok" if done else "refused")
        if future is None and not done and command.name != "DONE":
            self._fail(refusal(command.name, tagged, self.account))
        elif self._bye is not None and not self._under_way and command.name != "LOGOUT":
            self._fail(ServerLost("BYE", self._bye))
        elif self._held_back:
            self._send_held_back()

    def _continue(self, response: Continuation) -> None:
        command = self._awaiting
        if self._second_plus and (command is None or command.name == "DONE"):
            self._second_plus = False
            return
        if command is None or command.name == "DONE" or self._challenged is not None:
            raise ProtocolError("IMAP continuation", "no command waits for it")
        if command.challenged is not None:
            self._challenged = command
            command.challenged(response.text)
            return
        if command.name == "IDLE":
            self._awaiting, self._second_plus = None, True
            self._report(command, "ok")
            self._idling, command.name, command.deadline_s = command, "DONE", math.inf
            if command.future is not None and not command.future.done():
                command.future.set_result(Answer(Tagged(command.tag, "OK", None, ""), []))
        else:
            line = command.pieces.pop(0)
            command.sent_bytes += len(line)
            if not command.pieces:
                self._awaiting = None
            assert self._transport is not None
            self._transport.write(line)
        self._send_held_back()

    # --- ends ---

    def _report(self, command: Command, outcome: str) -> None:
        received = self._wire.taken_bytes - self._counted_bytes
        self._counted_bytes = self._wire.taken_bytes
        self.observer.command(f"IMAP {command.name}", command.since_ns, outcome, command.sent_bytes, received)

    def _clean(self, text: str) -> str:
        return without_password(text, self.account)

    def _fail(self, failure: TaskFailed) -> None:
        """End the connection: commands under way fail, others are never sent."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        if self._greeting is not None and not self._greeting.done():
            self._greeting.set_exception(again(failure))
        commands, idling = list(self._under_way.values()), self._idling
        for command in (*commands, *self._held_back):
            if command.future is not None and not command.future.done():
                command.future.set_exception(again(failure))
        self._under_way.clear()
        self._held_back.clear()
        self._arrived.clear()
        self._awaiting = self._idling = self._challenged = None
        for command in commands:
            if command is not idling:
                self._report(command, failure.outcome)
        if not self._leaving:
            self.on_lost(failure)


@dataclass(frozen=True, slots=True)
class Guard:
    """Ends a connection on an exception. An error in loadsim ends this session only, and is a `GeneratorFailed`."""

    fail: Callable[[TaskFailed], None]

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, Exception):
            self.fail(error if isinstance(error, TaskFailed) else internal(error))
        return isinstance(error, Exception)


def check_answer(taken_bytes: int) -> None:
    """Raise `ProtocolError` for an answer above the limit."""
    if taken_bytes > LARGEST_ANSWER_BYTES:
        raise ProtocolError("IMAP answer too large", f"more than {LARGEST_ANSWER_BYTES} bytes")


def refusal(command: str, tagged: Tagged, account: Account) -> ServerRefused:
    """Return the failure for NO or BAD to a command, by its registered response code."""
    kind, code = (f"[{tagged.code.kind}] ", f"[{tagged.code.name}] ") if tagged.code else ("", "")
    line = without_password(f"{tagged.status} {code}{tagged.text}", account)
    return ServerRefused(f"{tagged.status} {kind}{command}", line)


def loss(bye: str | None, error: Exception | None) -> TaskFailed:
    """Return the failure for the loss of a connection, after this BYE or by this error."""
    if bye is not None:
        return ServerLost("BYE", bye)
    if isinstance(error, ConnectionError):
        return ServerLost("connection reset")
    return own_failure(error) or ServerLost("connection lost")


def injected() -> ProtocolError:
    """Return the failure for data that follows the OK to STARTTLS in the clear (CVE-2011-0411)."""
    return ProtocolError("IMAP STARTTLS", "data in the clear behind the server's OK")
