"""One connection of a line-based protocol, with one command at a time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import LOOP, Arrival
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import Guard, again, failing_as, own_failure
from loadsim.protocols.line_based.wire import CHALLENGE, ERROR, LineDialect, LineResponse, LineWire
from loadsim.protocols.lines import KEPT_BYTES, unseen
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import handshakes_of, remember
from loadsim.protocols.transport import Transport

LARGEST_LIST_BYTES = 1 << 24
"""The most bytes of a list; 100,000 messages with POP3's longest unique-ids take half of it."""

Capabilities = Mapping[str, str]
"""Parameters by keyword, in capitals."""


@dataclass(slots=True)
class _UnderWay:
    """A command: when it began, its bytes, the server's wait for the driver, and its last response."""

    name: str
    since_ns: int
    sent_bytes: int = 0
    received_bytes: int = 0
    own_ns: int = 0
    response: LineResponse | None = None


class LineConnection(asyncio.Protocol):
    """A connection of a user; `failure` is why it ended, None until then. Errors never show the password.

    Between calls, when `at_rest`, its end is reported to the observer.
    """

    def __init__(self, dialect: LineDialect, account: Account, observer: Observer, limit_s: float) -> None:
        self.account = account
        self.failure: TaskFailed | None = None
        self.at_rest = False
        self._dialect, self._observer, self._limit_s = dialect, observer, limit_s
        self._wire = LineWire(dialect)
        self._transport: Transport | None = None
        self._arrival: Arrival = (0, LOOP)  # of the last bytes
        self._under_way: _UnderWay | None = None
        self._answer: asyncio.Future[LineResponse] | None = None
        self._guard = Guard(self._fail)

    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        """Connect, with implicit TLS (RFC 8314) if the endpoint has it, and wait for the greeting."""
        with self._reporting("CONNECT") as under_way:
            greeting = self._expect(0)
            try:
                async with asyncio.timeout(self._limit_s):
                    await connect(self, endpoint, self.account.number, context, self._observer.now)
                    assert self._transport is not None
                    under_way.since_ns = self._transport.began_ns
                    under_way.response = await greeting
            finally:
                greeting.cancel()
        self._accepted(under_way)

    async def ask(self, name: str, argument: bytes = b"", most_bytes: int = 0) -> bytes:
        """Send a command; return the lines of its response, at most so many bytes. Raises `TaskFailed`."""
        return (await self._ask(name, argument, most_bytes)).lines

    async def ask_line(self, name: str, argument: bytes = b"") -> bytes:
        """Send a command; return the text of its response's first line. Raises `TaskFailed`."""
        return (await self._ask(name, argument)).text

    async def capabilities(self, name: str, otherwise: Capabilities) -> Capabilities:
        """Ask for capabilities by this command. Return others if the server does not know it."""
        try:
            lines = await self.ask(name, most_bytes=LARGEST_LIST_BYTES)
        except ServerRefused:
            return otherwise
        words = (line.partition(" ") for line in lines.decode("utf-8", "replace").upper().splitlines())
        return {keyword: parameters for keyword, _, parameters in words}

    async def _ask(self, name: str, argument: bytes = b"", most_bytes: int = 0) -> LineResponse:
        line = b"%b %b\r\n" % (name.encode(), argument) if argument else name.encode() + b"\r\n"
        with self._reporting(name) as under_way:
            async with asyncio.timeout(self._limit_s):
                await self._send(line, line, most_bytes)
        return self._accepted(under_way)

    async def converse(self, name: str, words: bytes, respond: Callable[[str], Awaitable[bytes]]) -> None:
        """Send a command, and respond to each challenge (RFC 5034), such as that for an article (RFC 3977)."""
        with self._reporting(name) as under_way:
            async with asyncio.timeout(self._limit_s):
                line = shown = (b"%b %b\r\n" % (name.encode(), words)) if words else name.encode() + b"\r\n"
                while (await self._send(line, shown)).status == CHALLENGE:
                    assert under_way.response is not None
                    line = await respond(under_way.response.text.decode("utf-8", "replace")) + b"\r\n"
                    shown = unseen(len(line))
        self._accepted(under_way)

    async def start_tls(self, name: str, context: ssl.SSLContext, host: str) -> None:
        """Send STLS or STARTTLS, and perform the handshake (RFC 2595, RFC 4642), which counts as part of it."""
        with self._reporting(name) as under_way, handshakes_of(self.account.number):
            async with asyncio.timeout(self._limit_s):
                line = name.encode() + b"\r\n"
                if (await self._send(line, line)).status != ERROR:
                    assert self._transport is not None
                    self._transport.pause_reading()
                    if self.failure is not None:  # data in the clear behind the answer (CVE-2011-0411)
                        raise again(self.failure)
                    await self._transport.start_tls(context, host)
                    self._arrival = self._transport.arrival
                    self._transport.resume_reading()
        self._accepted(under_way)

    def remember_tls(self) -> None:
        remember(self.account.number, self._transport)

    def close(self) -> None:
        """Close after QUIT, or at once if a command is under way, which then fails."""
        if self._answer is None and self.failure is None and self._transport is not None:
            self.failure = ServerLost("closed")
            self._transport.close()
        self._fail(ServerLost("closed"))

    # --- out ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _reporting(self, name: str) -> Iterator[_UnderWay]:
        """Report the command of this block. A failure in it ends the connection."""
        if self.failure is not None:
            raise again(self.failure)
        self._under_way = under_way = _UnderWay(name, self._observer.now())
        outcome = "lost"
        try:
            with failing_as(name, f"lost at {name}"):
                yield under_way
            outcome = "refused" if under_way.response is not None and under_way.response.status == ERROR else "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            self._fail(failure)
            raise
        except BaseException:
            self._fail(ServerLost("closed"))
            raise
        finally:
            self._under_way = None
            arrival = self._arrival if outcome in ("ok", "refused") else (self._observer.now(), LOOP)
            sent, received = under_way.sent_bytes, under_way.received_bytes
            self._observer.command(
                f"{self._dialect.name} {name}", under_way.since_ns, outcome, sent, received, arrival, under_way.own_ns
            )

    async def _send(self, line: bytes, shown: bytes, most_bytes: int = 0) -> LineResponse:
        if self.failure is not None:
            raise again(self.failure)
        assert self._transport is not None and self._under_way is not None
        under_way, now_ns, answer = self._under_way, self._observer.now(), self._expect(most_bytes)
        if under_way.sent_bytes:  # the response to a challenge
            under_way.own_ns += now_ns - max(self._arrival[0], under_way.since_ns + under_way.own_ns)
        else:
            under_way.since_ns = now_ns
        under_way.sent_bytes += len(line)
        self._observer.lines.append(now_ns)
        self._observer.lines.append(shown[:KEPT_BYTES])
        self._transport.write(line)
        under_way.response = await answer
        return under_way.response

    def _expect(self, most_bytes: int) -> asyncio.Future[LineResponse]:
        self._wire.expect(most_bytes)
        self._answer = asyncio.get_running_loop().create_future()
        return self._answer

    def _accepted(self, under_way: _UnderWay) -> LineResponse:
        """Return a response that is no error. Raises `ServerRefused` for an error."""
        response = under_way.response
        assert response is not None
        if response.status == CHALLENGE:
            failure = ProtocolError("no such answer", "+")
            self._fail(failure)
            raise again(failure)
        if response.status == ERROR:
            text = self._shown(response.text)
            kind = self._dialect.kind(text, under_way.name)
            if self._dialect.farewell is not None and text.startswith(self._dialect.farewell):
                self._fail(ServerLost(kind, text))
                raise ServerLost(kind, text)
            raise ServerRefused(kind, text)
        return response

    def _shown(self, text: bytes) -> str:
        return " ".join(without_password(text.decode("utf-8", "replace"), self.account).split())

    # --- in -----------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(Transport, transport)
        if self.failure is not None:  # closed while connecting
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        with self._guard:
            assert self._transport is not None
            if self._under_way is not None:
                self._arrival = self._transport.arrival
                self._under_way.received_bytes += len(data)
            try:
                response = self._wire.feed(data)
                if self._wire.surplus_bytes:
                    raise ProtocolError("unasked response", "data behind the response")
            except ProtocolError as error:
                raise ProtocolError(f"{error.kind} at {self._at}", error.line) from None
            if response is None:
                return
            self._observer.lines.append((response.status + b" " + response.text)[:KEPT_BYTES])
            answer, self._answer = self._answer, None
            if answer is not None and not answer.done():
                answer.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(own_failure(error) or ServerLost(f"lost at {self._at}"))

    @property
    def _at(self) -> str:
        return "rest" if self._under_way is None else self._under_way.name

    def _fail(self, failure: TaskFailed) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        if self._transport is not None:
            self._transport.abort()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(again(failure))
        elif self.at_rest and self._under_way is None and failure.kind != "closed":
            self._observer.lost(again(failure))
