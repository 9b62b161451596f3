"""An HTTP/1.1 connection kept for many requests, one at a time, and replaced if the server has ended it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.model.records import LOOP, Arrival
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import Guard, failing_as, loss
from loadsim.protocols.http.log_on import MOST_STEPS, Handshake, authorized, credentials, logs_on_connection
from loadsim.protocols.http.responses import LARGEST_BODY_BYTES, Response, ResponseParser
from loadsim.protocols.lines import KEPT_BYTES
from loadsim.protocols.tls import remember
from loadsim.protocols.transport import Transport

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HttpDialect:
    """The differences between the protocols over HTTP.

    `name` begins the names of commands. `period_s` returns the longest silence within a response that has begun,
    according to its header. `whole` reads a complete response; `shown` is its line in the report of a failure.
    """

    name: str
    period_s: Callable[[Response], float]
    whole: Callable[[Response], Response] = lambda response: response
    shown: Callable[[Response], str] = lambda response: f"{response.status}, {len(response.body)} bytes"


@dataclass(slots=True, eq=False, repr=False)
class _Connection(asyncio.Protocol):
    """One connection, and the exchange under way on it, if any. `on_piece` is called for each piece of its response."""

    is_open: bool = field(default=False, init=False)
    is_logged_on: bool = field(default=False, init=False)  # by NTLM or Negotiate
    is_remembered: bool = field(default=False, init=False)  # its TLS session, if any
    received_bytes: int = field(default=0, init=False)  # of this exchange
    on_piece: Callable[[Response | None], None] | None = field(default=None, init=False)
    most_bytes: int = field(default=LARGEST_BODY_BYTES, init=False)
    take: Callable[[bytes], None] | None = field(default=None, init=False)
    transport: Transport | None = field(default=None, init=False)
    arrival: Arrival = field(default=(0, LOOP), init=False)  # of the last bytes
    _parser: ResponseParser | None = field(default=None, init=False)
    _ended: asyncio.Future[Response] | None = field(default=None, init=False)
    _guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        self._guard = Guard(self._fail)

    async def exchange(self, request: bytes) -> Response:
        """Send a request, and return its response. Raises `TaskFailed`."""
        assert self.transport is not None
        self._parser = ResponseParser(self.most_bytes, self.take)
        self._ended = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await self._ended
        finally:
            self._ended = None  # an idle user keeps no response

    def close(self) -> None:
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.is_open = cast(Transport, transport), True

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.received_bytes += len(data)
        self.arrival = self.transport.arrival
        with self._guard:
            parser = self._parser
            if parser is None:
                raise ProtocolError("HTTP response", "bytes without a request")
            parser.feed(data)
            if self.on_piece is not None:
                self.on_piece(parser.head)
            if parser.response is not None:
                self._settle(parser)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        parser = self._parser
        if parser is not None and error is None and self.received_bytes:
            with self._guard:
                parser.end()
                self._settle(parser)
        else:
            self._fail(loss(error))

    def _settle(self, parser: ResponseParser) -> None:
        self._parser = None
        if not parser.keeps_connection:
            self.close()
        if self._ended is not None and not self._ended.done():
            assert parser.response is not None
            self._ended.set_result(parser.response)

    def _fail(self, failure: TaskFailed) -> None:
        self._parser = None
        self.close()
        if self._ended is not None and not self._ended.done():
            self._ended.set_exception(failure)


class _Busy(ServerRefused):
    """The server has refused a request, and wants it again after `wait_s`."""

    def __init__(self, wait_s: int) -> None:
        super().__init__("busy")
        self.wait_s = wait_s


@dataclass(slots=True, eq=False, repr=False)
class HttpChannel:
    """Sends a user's requests over one connection, one at a time, and reports each to the observer.

    A server may end a connection between two requests: the next request gets a new one. A loss, silence or a protocol
    violation closes the connection. If a server refuses a request and states when it may be repeated
    (`Response.wait_s`), the user waits and repeats it, unless this would begin later than `limit_s` after the first.
    """

    endpoint: Endpoint
    context: ssl.SSLContext | None
    account: Account
    observer: Observer
    dialect: HttpDialect
    limit_s: float  # of a request, from its first byte to the last of its response
    _connection: _Connection | None = field(default=None, init=False)
    _closed: asyncio.Future[None] | None = field(default=None, init=False)  # of a wait as the server demands

    async def ask(
        self,
        name: str,
        request: bytes,
        read: Callable[[Response], R],
        begun: Callable[[], None] | None = None,
        longest_s: float | None = None,
        most_bytes: int = LARGEST_BODY_BYTES,
        take: Callable[[bytes], None] | None = None,
    ) -> R:
        """Send a request, and return `read`'s result for the response. Raises `TaskFailed`, as `read` may.

        With `begun`, the response may take `longest_s`, and silence may last `limit_s` longer than the dialect's
        period. When the response begins, the request is reported and `begun` called. `most_bytes` and `take` are
        `ResponseParser`'s.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.limit_s

        def read_or_wait(response: Response) -> R:
            wait_s = response.wait_s
            if wait_s is None or loop.time() + wait_s > until_s:
                return read(response)
            raise _Busy(wait_s)

        while True:
            try:
                return await self._ask(name, request, read_or_wait, begun, longest_s, most_bytes, take)
            except _Busy as busy:
                await self._wait(busy.wait_s)

    async def _wait(self, wait_s: int) -> None:
        """Wait as the server demands, until `close`. A command reports it, so that its time is the task's."""
        since, outcome = self.observer.now(), "lost"
        until = since + wait_s * 10**9
        self._closed = asyncio.get_running_loop().create_future()
        try:
            if (await asyncio.wait([self._closed], timeout=wait_s))[0]:
                raise ServerLost("closed")
            outcome = "ok"
        finally:
            self._closed = None
            arrival = min(self.observer.now(), until), LOOP  # a late event loop is not the server's doing
            self.observer.command(f"{self.dialect.name} Retry-After", since, outcome, 0, 0, arrival)

    async def _ask(
        self,
        name: str,
        request: bytes,
        read: Callable[[Response], R],
        begun: Callable[[], None] | None,
        longest_s: float | None,
        most_bytes: int,
        take: Callable[[bytes], None] | None,
    ) -> R:
        """Send a request once."""
        connection = await self._connected()
        since, outcome, is_reported = self.observer.now(), "lost", False

        def report() -> None:
            arrival = connection.arrival if outcome in ("ok", "refused") else None
            self.observer.command(name, since, outcome, len(request), connection.received_bytes, arrival)

        def on_piece(head: Response | None) -> None:
            nonlocal outcome, is_reported
            if head is None or head.status != 200:  # a response that never begins has the usual limit
                return
            limit.reschedule(asyncio.get_running_loop().time() + self.limit_s + self.dialect.period_s(head))
            if begun is not None and not is_reported:
                read(head)
                outcome, is_reported = "ok", True
                report()
                begun()

        try:
            with failing_as(name):
                async with asyncio.timeout(longest_s), asyncio.timeout(self.limit_s) as limit:
                    connection.received_bytes, connection.on_piece = 0, on_piece if begun else None
                    connection.most_bytes, connection.take = most_bytes, take
                    self.observer.lines.append(since)
                    self.observer.lines.append(f"{name}, {len(request)} bytes".encode())
                    response = self.dialect.whole(await self._authorized(connection, request))
            self.observer.lines.append(self.dialect.shown(response).encode()[:KEPT_BYTES])
            answer = read(response)
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        except BaseException:
            outcome = "lost"
            raise
        finally:
            if outcome not in ("ok", "refused"):
                self._drop(connection)
            if not is_reported:
                report()
        if not connection.is_remembered:
            connection.is_remembered = True
            remember(self.account.number, connection.transport)
        return answer

    async def _authorized(self, connection: _Connection, request: bytes) -> Response:
        """Send a request with credentials. With NTLM or Negotiate, a connection's first request logs on."""
        if not logs_on_connection(self.endpoint):
            return await connection.exchange(authorized(request, credentials(self.endpoint, self.account)))
        if connection.is_logged_on:
            response = await connection.exchange(request)
            if response.status == 401:
                scheme = self.endpoint.methods[0].upper()
                why = f"401 on a connection that had logged on by {scheme}: a proxy may pass on each request apart"
                raise ServerRefused("log-on not kept", why)
            return response
        assert connection.transport is not None
        handshake = Handshake(self.endpoint, self.account, connection.transport)
        value = handshake.answer()
        for _ in range(MOST_STEPS):
            response = await connection.exchange(authorized(request, value or ""))
            value = handshake.answer(response.fields.get("www-authenticate", "none"))
            if response.status != 401 or value is None or not connection.is_open:
                break
        connection.is_logged_on = response.status != 401
        return response

    async def _connected(self) -> _Connection:
        """Return the open connection, or make a new one."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        made = self._connection = _Connection()
        since, outcome = self.observer.now(), "lost"
        try:
            with failing_as("connect"):
                async with asyncio.timeout(self.limit_s):
                    await connect(made, self.endpoint, self.account.number, self.context, self.observer.now)
                    assert made.transport is not None
                    since = made.transport.began_ns
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            raise
        finally:
            if outcome != "ok":
                self._drop(made)
            self.observer.command(f"{self.dialect.name} connection", since, outcome, 0, 0, (self.observer.now(), LOOP))
        if not made.is_open:  # `close` was called meanwhile
            made.close()
            raise ServerLost("closed")
        return made

    @property
    def arrival_ns(self) -> int | None:
        """The instant at which the last bytes arrived; None without a connection."""
        return None if self._connection is None else self._connection.arrival[0]

    def _drop(self, connection: _Connection) -> None:
        """Close a connection; when a cancelled request ends, there may already be another one."""
        connection.close()
        if self._connection is connection:
            self._connection = None

    def close(self) -> None:
        """Close the connection at once; a request under way fails."""
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        if self._connection is not None:
            self._drop(self._connection)
