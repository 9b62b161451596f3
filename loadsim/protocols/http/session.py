"""A user's session over HTTP: a connection for requests, and one to wait for what the server announces."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.host_port import bracketed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.error_mapping import again, internal
from loadsim.protocols.http.channel import HttpChannel, HttpDialect
from loadsim.protocols.sasl.masking import without_password

S = TypeVar("S")


@dataclass(slots=True, eq=False, repr=False)
class HttpSession(Generic[S]):
    """The common parts of JMAP's and MAPI's sessions, across lost and re-established ones.

    `with session:` surrounds each of the port's calls. If the session ends during a call, the call fails; between
    calls, the observer gets the loss.
    """

    dialect: ClassVar[HttpDialect]
    endpoint: Endpoint
    context: ssl.SSLContext | None
    account: Account
    observer: Observer
    limit_s: float  # of each request
    logon: S | None = field(default=None, init=False)  # what the log-on returned; None: no session
    failure: TaskFailed | None = field(default=None, init=False)  # why it ended
    _channel: HttpChannel = field(init=False)
    _waiting: HttpChannel = field(init=False)
    _waits: list[asyncio.Task[None]] = field(default_factory=list, init=False)
    _in_call: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        parts = (self.endpoint, self.context, self.account, self.observer, self.dialect, self.limit_s)
        self._channel, self._waiting = HttpChannel(*parts), HttpChannel(*parts)

    @property
    def is_on(self) -> bool:
        return self.logon is not None and self.failure is None

    @property
    def current(self) -> S:
        """The result of the log-on. Raises `ServerLost` if there is no session, or the failure that broke it."""
        if self.failure is not None:
            raise again(self.failure)
        if self.logon is None:
            raise ServerLost("not logged on")
        return self.logon

    def __enter__(self) -> S:
        """Begin a call. Raises as `current` does."""
        logon = self.current
        self._in_call = True
        return logon

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._in_call = False
        if error is None and self.failure is not None:  # the wait failed, but this call succeeded
            self.observer.lost(self.failure)

    async def log_off(self) -> None:
        with self:
            self.abandon()

    def abandon(self) -> None:
        """Close at once; only a log-on makes a new session."""
        self._stop()
        self.logon = None

    def _end(self, failure: TaskFailed) -> None:
        """End the session by a failure, once."""
        if self.failure is None and self.logon is not None:
            self.failure = failure
            self._stop()

    def _stop(self) -> None:
        self._stop_waiting()
        self._channel.close()

    def _stop_waiting(self) -> None:
        waits, self._waits = self._waits, []
        for wait in waits:
            if wait is not asyncio.current_task():
                wait.cancel()
        self._waiting.close()

    def _request(self, method: str, at: str, lines: str, body: bytes = b"") -> bytes:
        """Return a request with these further header lines."""
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        host = f"{bracketed(self.endpoint.host)}:{self.endpoint.port}"
        head = f"{method} {at} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: loadsim\r\n{length}{lines}\r\n"
        return head.encode() + body

    def _refused(self, kind: str, line: str, ends: bool) -> TaskFailed:
        """Return the failure for a refused request, which may end the session."""
        return (ServerLost if ends else ServerRefused)(kind, without_password(line, self.account))

    async def _wait(self, *works: Callable[[asyncio.Future[None]], Awaitable[None]]) -> None:
        """Begin to wait, until the session ends; return once `works` have settled the future that they get.

        A failure of theirs ends the session.
        """
        if self._waits:
            return
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[None] = loop.create_future()
        self._waits = [loop.create_task(self._guarded(work(accepted), accepted)) for work in works]
        await accepted

    async def _guarded(self, work: Awaitable[None], accepted: asyncio.Future[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - an error in loadsim ends only this session
            failure = error if isinstance(error, TaskFailed) else internal(error)
            self._end(failure)
            if not accepted.done():
                accepted.set_exception(failure)
            elif self.logon is not None and not self._in_call:
                self.observer.lost(failure)
        finally:
            if not accepted.done():
                accepted.set_result(None)


def settle(accepted: asyncio.Future[None]) -> None:
    """Note that the server has accepted a wait."""
    if not accepted.done():
        accepted.set_result(None)
