"""One connection through aioimaplib: commands within a limit, losses detected at once, and no tasks left after it.

The library is not patched. A reader in front of it limits its input (`framing`). Each call ends at a time limit or at
the loss of the connection, after which the library's callers would wait for ever. Announcements that the library loses
are read before it gets them, and the tasks that it leaves are cancelled.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from aioimaplib import aioimaplib as library

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.log_on import LOGIN_COMMAND
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.aioimaplib.framing import Framing
from loadsim.protocols.connect import connect
from loadsim.protocols.error_mapping import again, connection_failure, internal, own_failure
from loadsim.protocols.imap.authenticate import dialogue_of, method_of, offer_of
from loadsim.protocols.imap.connection import injected
from loadsim.protocols.imap.responses import REGISTERED
from loadsim.protocols.sasl import authenticate as sasl
from loadsim.protocols.sasl.channel_binding import binding_of
from loadsim.protocols.sasl.exchange import Exchange
from loadsim.protocols.tls import handshakes_of

_BYE = re.compile(rb"\* BYE\b *(.*)", re.IGNORECASE)
_CODE = re.compile(r"\[([A-Za-z0-9./-]+)")
_LIBRARY_ERRORS = (library.AioImapException, RecursionError, LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that the library raises for answers that it does not expect."""

T = TypeVar("T")


class _FetchCommand(library.FetchCommand):
    """The library's FETCH for answers that arrive whole.

    By itself the library counts the parentheses of all lines of the answer again at each line.
    """

    def wait_data(self) -> bool:
        return self.wait_literal_data()


class _AuthenticateCommand(library.Command):
    """AUTHENTICATE, which the library has for XOAUTH2 only. `challenged` gets the text of each continuation."""

    def __init__(self, tag: str, words: Sequence[str], challenged: Callable[[str], None]) -> None:
        super().__init__("AUTHENTICATE", tag, *words)
        self.challenged = challenged


class _Protocol(library.IMAP4ClientProtocol):
    """The library's protocol. It also counts bytes, passes untagged lines on, and ends the connection on an error."""

    transport: Any

    def __init__(self, on_lost: Callable[[Exception | None], None], on_line: Callable[[bytes], None]) -> None:
        super().__init__(asyncio.get_running_loop(), on_lost)
        self.sent_bytes = self.received_bytes = 0
        self.failure: TaskFailed | None = None
        self._framing = Framing()
        self._greeted = False
        self._on_line = on_line
        self._sealed = False  # after the OK to STARTTLS: no more may come in the clear

    def data_received(self, data: bytes) -> None:
        if self.failure is not None:
            return
        self.received_bytes += len(data)
        with self._breaking_off():
            for response in self._framing.feed(data):
                if self._sealed:
                    raise injected()
                self._take(response)
            if self._sealed and self._framing.held_bytes:
                raise injected()

    def send(self, line: str, scrub: str | None = None) -> None:
        self.sent_bytes += len(line.encode()) + 2
        self._framing.begin(line)
        super().send(line, cast(str, scrub))

    async def fetch(
        self, message_set: str, message_parts: str, by_uid: bool = False, timeout: float | None = None
    ) -> library.Response:
        prefix = "UID" if by_uid else ""
        return await self.execute(_FetchCommand(self.new_tag(), message_set, message_parts, prefix=prefix))

    async def authenticate(self, words: Sequence[str], challenged: Callable[[str], None]) -> library.Response:
        """Send AUTHENTICATE; `send_response` answers its challenges."""
        response = await self.execute(_AuthenticateCommand(self.new_tag(), words, challenged))
        if response.result == "OK":
            self.state = library.AUTH
        return response

    def send_response(self, line: bytes) -> None:
        """Send the response to a challenge. The framing keeps counting: the answer is that to AUTHENTICATE."""
        self.sent_bytes += len(line) + 2
        self.transport.write(line + b"\r\n")

    async def start_tls(self, context: ssl.SSLContext, host: str, user: int, limit_s: float) -> library.Response:
        """Send STARTTLS, which the library lacks, and make the handshake (RFC 9051 section 6.2.1)."""
        response = await self.execute(library.Command("STARTTLS", self.new_tag()))
        if response.result == "OK" and self.failure is None:
            with handshakes_of(user):
                transport = await asyncio.get_running_loop().start_tls(
                    self.transport, self, context, server_hostname=host, ssl_handshake_timeout=limit_s
                )
            if transport is None:
                raise ServerLost("connection lost")
            self.transport, self._sealed = transport, False
        return response

    def _response_done(self, line: bytes) -> None:
        securing = self.pending_sync_command is not None and self.pending_sync_command.name == "STARTTLS"
        super()._response_done(line)
        if securing and line.split(b" ", 2)[1:2] == [b"OK"]:
            self._sealed = True
            self.transport.pause_reading()

    def _continuation(self, line: bytes) -> None:
        command = self.pending_sync_command
        if isinstance(command, _AuthenticateCommand):
            command.challenged(line[1:].decode("utf-8", "replace").strip())
        else:
            super()._continuation(line)

    async def welcome(self, command: bytes) -> None:
        with self._breaking_off():
            if _BYE.match(command):
                self._on_line(command)
                self.transport.abort()
            else:
                await super().welcome(command)

    def _take(self, response: bytes) -> None:
        if self.state == library.CONNECTED:
            if self._greeted:  # the library would take each line for another greeting
                return
            self._greeted = True
        super().data_received(response)
        while not self.idle_queue.empty():
            self.idle_queue.get_nowait()  # `_untagged_response` has passed it on

    def _untagged_response(self, line: bytes) -> library.Command:
        # The library loses EXISTS and EXPUNGE while it waits for the answer to a FETCH.
        try:
            self._on_line(line)
        except TaskFailed:
            raise
        except Exception as error:  # noqa: BLE001  the observer is ours, not the library's
            raise internal(error) from None
        return super()._untagged_response(line)

    @contextmanager
    def _breaking_off(self) -> Iterator[None]:
        """End the connection on any exception: asyncio would only log it, and callers would wait."""
        try:
            yield
        except TaskFailed as failure:
            self._break_off(failure)
        except Exception as error:  # noqa: BLE001  the library meets malformed data with any exception
            # Its text may quote the command, and so the password.
            self._break_off(ProtocolError("aioimaplib gave up", type(error).__name__))

    def _break_off(self, failure: TaskFailed) -> None:
        self.failure = failure
        self.transport.abort()


class _Client(library.IMAP4):
    """The library's client on our protocol, its own time limits switched off."""

    protocol: Any

    def __init__(self, endpoint: Endpoint, user: int, context: ssl.SSLContext | None, protocol: _Protocol) -> None:
        self._endpoint = endpoint
        self._user = user
        self._made = protocol
        super().__init__(
            endpoint.host, endpoint.port, timeout=cast(float, None), ssl_context=cast(ssl.SSLContext, context)
        )

    def create_client(
        self,
        host: str,
        port: int,
        loop: asyncio.AbstractEventLoop | None,
        conn_lost_cb: Callable[[Exception | None], None] | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.protocol = self._made
        implicit = ssl_context if self._endpoint.tls == "implicit" else None
        connecting = connect(lambda: self._made, self._endpoint, self._user, implicit, None)
        self._client_task = asyncio.get_running_loop().create_task(connecting)

    async def hello(self) -> None:
        """Wait for connection, greeting and capabilities. Before 2.0.3 the library forgets a connection that fails."""
        await self._client_task
        await self.wait_hello_from_server()


class Connection:
    """One connection through the library."""

    def __init__(
        self,
        endpoint: Endpoint,
        user: int,
        context: ssl.SSLContext | None,
        limit_s: float,
        observer: Observer,
        clean: Callable[[str], str],
        on_line: Callable[[bytes], None],
    ) -> None:
        """Begin to connect. `on_line` gets each untagged line; `clean` removes the password from a text."""
        self._endpoint = endpoint
        self._user = user
        self._context = context
        self._limit_s = limit_s
        self._observer = observer
        self._clean = clean
        self._on_line = on_line
        self._lost: asyncio.Future[TaskFailed] = asyncio.get_running_loop().create_future()
        self._waiting = False
        self._bye: str | None = None
        self._idling: asyncio.Future[library.Response] | None = None
        self.protocol = _Protocol(self._connection_lost, self._untagged)
        self.client = _Client(endpoint, user, context, self.protocol)

    @property
    def capabilities(self) -> set[str]:
        """The server's capabilities without those that the scenario ignores."""
        return self.protocol.capabilities - self._endpoint.ignored

    @property
    def has_idle(self) -> bool:
        return "IDLE" in self.capabilities

    def check(self) -> None:
        """Raise the failure that ended the connection, if it is over."""
        if self._lost.done():
            raise again(self._lost.result())

    async def run(self, name: str, command: Awaitable[T], more_bytes: int = 0) -> T:
        """Await one command of the library, report it, and return its response. Raises `TaskFailed`.

        `more_bytes` are sent in addition to its line. Without an answer the connection is closed.
        """
        observer, protocol = self._observer, self.protocol
        since, sent, received = observer.now(), protocol.sent_bytes, protocol.received_bytes
        failure: TaskFailed | None = None
        try:
            response = await self._answer(name, command)
            failure = self._refusal(name, response)
        except TaskFailed as broken:
            failure = broken
        except asyncio.CancelledError:
            self.close()
            raise
        outcome = "ok" if failure is None else failure.outcome
        sent_bytes = protocol.sent_bytes - sent + more_bytes
        observer.command(f"IMAP {name}", since, outcome, sent_bytes, protocol.received_bytes - received)
        if failure is None:
            return response
        if not isinstance(failure, ServerRefused):
            self.close()
        raise failure

    async def start_tls(self) -> None:
        """Secure the connection. The capabilities that the server sent in the clear are discarded."""
        if self.protocol.state != library.NONAUTH:
            raise ServerRefused("PREAUTH before STARTTLS", "this connection cannot be secured")
        if "STARTTLS" not in self.capabilities:
            raise ServerRefused("STARTTLS not offered")
        assert self._context is not None
        name = self._endpoint.tls_name
        await self.run("STARTTLS", self.protocol.start_tls(self._context, name, self._user, self._limit_s))
        await self.run("CAPABILITY", self.protocol.capability())

    async def log_on(self, account: Account) -> None:
        """Log on by the chosen method: the command LOGIN, or AUTHENTICATE."""
        if self.protocol.state != library.NONAUTH:
            return  # PREAUTH
        capabilities = frozenset(map(str.upper, self.capabilities))
        offer = offer_of(capabilities, self._endpoint, binding_of(self.protocol.transport))
        method = method_of(self._endpoint, account, capabilities, offer)
        if method == LOGIN_COMMAND:
            await self.run("LOGIN", self.client.login(library.quoted(account.name), account.password))
            return

        async def perform(exchange: Exchange) -> None:
            await self.run("AUTHENTICATE", self._exchange(dialogue_of(exchange, capabilities)))

        await sasl.log_on(method, self._endpoint, account, offer, perform)

    async def _exchange(self, dialogue: sasl.Dialogue) -> library.Response:
        """Send AUTHENTICATE and the responses to its challenges."""
        challenges: asyncio.Queue[str] = asyncio.Queue(1)
        words = [word.decode() for word in dialogue.words]
        end = asyncio.ensure_future(self.protocol.authenticate(words, challenges.put_nowait))
        try:
            while (challenge := await sasl.next_challenge(challenges, end)) is not None:
                self.protocol.send_response(await dialogue.response(challenge))
            answer = await end
        finally:
            end.cancel()
        if answer.result == "OK":
            dialogue.check_sent()
        return answer

    async def idle(self) -> None:
        """Begin IDLE (RFC 2177), which the server must offer, and wait for its "+"."""
        # The library's own timer only ends the wait for a queue, which this driver does not read.
        self._idling = await self.run("IDLE", self.client.idle_start())

    async def done(self) -> None:
        """End IDLE, and wait for its tagged answer."""
        idling, self._idling = self._idling, None
        if idling is None or idling.done():
            return
        self.client.idle_done()
        await self.run("DONE", idling, more_bytes=len("DONE\r\n"))

    @property
    def lost(self) -> bool:
        """True if the connection is over. The waiting caller, or else the observer, has got the failure."""
        return self._lost.done()

    def close(self) -> None:
        """Close at once, and cancel the library's tasks and timers, which would wait for ever."""
        client, protocol = self.client, self.protocol
        if not self._lost.done():
            self._lost.set_result(ServerLost("closed"))
        if protocol.transport is not None:
            protocol.transport.abort()
        for task in (client._client_task, *client.tasks, *protocol.tasks):
            task.cancel()
        if client._idle_waiter is not None:
            client._idle_waiter.cancel()

    async def _answer(self, name: str, command: Awaitable[T]) -> T:
        """Wait for the command's result, the loss of the connection, or the time limit."""
        task: asyncio.Future[T] = asyncio.ensure_future(command)
        either: set[asyncio.Future[Any]] = {task, self._lost}
        self._waiting = True
        try:
            async with asyncio.timeout(self._limit_s):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise ServerSilent(f"no answer to {name}") from None
        finally:
            self._waiting = False
            if not task.done():
                # Cancel the library's other tasks first: a task that waits for their lock cannot be cancelled.
                self.close()
                task.cancel()
                await asyncio.wait({task})
            error = None if task.cancelled() else task.exception()  # retrieved, or asyncio complains
        if task.cancelled():
            self.check()
            raise ServerLost("connection lost")
        if isinstance(error, TaskFailed):
            raise again(error) from None
        if isinstance(error, OSError):
            raise connection_failure(error, "connect" if name == "CONNECT" else "TLS handshake") from None
        if isinstance(error, _LIBRARY_ERRORS):
            raise ProtocolError("aioimaplib gave up", f"{type(error).__name__} at {name}") from None
        if error is not None:
            raise internal(error) from None
        return task.result()

    def _refusal(self, name: str, response: object) -> ServerRefused | None:
        """Return the failure for NO and BAD; None for OK."""
        if not isinstance(response, library.Response) or response.result == "OK":
            return None
        text = self._clean(bytes(response.lines[-1]).decode("utf-8", "replace") if response.lines else "")
        if response.result not in ("NO", "BAD"):
            raise ProtocolError("no such answer", f"{response.result} {text}")
        code = _CODE.match(text)
        named = f"{response.result} {name}"
        if code:
            named = f"{response.result} [{code[1] if code[1].upper() in REGISTERED else 'other'}] {name}"
        return ServerRefused(named, f"{response.result} {text}")

    def _connection_lost(self, error: Exception | None) -> None:
        if self._lost.done():
            return
        failure: TaskFailed
        if self.protocol.failure is not None:
            failure = self.protocol.failure
        elif self._bye is not None:
            failure = ServerLost("BYE", self._bye)
        elif isinstance(error, ConnectionError):
            failure = ServerLost("connection reset")
        else:
            failure = own_failure(error) or ServerLost("connection lost")
        self._lost.set_result(failure)
        if not self._waiting:
            self._observer.lost(failure)
        self.close()

    def _untagged(self, line: bytes) -> None:
        if match := _BYE.match(line):
            self._bye = self._clean(match[1].decode("utf-8", "replace"))
        self._on_line(line)
