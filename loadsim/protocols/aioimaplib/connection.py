"""One connection through aioimaplib. It runs one command at a time, within limits, and each caller notices a loss.

The library sends all commands and reads all responses. It is fed whole responses, since it recurses once per line.
loadsim parses the same responses itself, since the library's lines are missing parts of some values. The library does
not report a lost connection to its callers, so each call also watches for that.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from aioimaplib import aioimaplib as library

from loadsim.errors import ProtocolError, ServerLost, ServerRefused, ServerSilent, TaskFailed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols import connect
from loadsim.protocols.error_mapping import Guard, again, failing_as, internal, loss
from loadsim.protocols.imap.commands import Argument, Literal
from loadsim.protocols.imap.connection import check_answer, injected, refusal
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import Condition, Continuation, Expunged, Response, Tagged
from loadsim.protocols.imap.under_way import WANTED, Answer, ImapCommand
from loadsim.protocols.imap.wire import ImapWire
from loadsim.protocols.lines import KEPT_BYTES, Asked, keeping, quoting, unfinished, unseen
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import handshakes_of, remember
from loadsim.protocols.transport import acknowledge_at_once

library.Commands.setdefault("UNSELECT", library.Cmd("UNSELECT", (library.SELECTED,), library.Exec.is_sync))
"""The only command of the mailbox that the library's table does not have (RFC 9051 section 6.4.2)."""

RESPONSE_BYTES = 2048
"""A response's weight beyond its bytes: reading it takes about 40 us, and the library keeps its lines."""

MOST_COPIED_BYTES = 256 << 20
"""The limit on a response's bytes times literals: at each literal, the library recurses and copies the rest."""

_LITERAL = re.compile(rb"\{(\d+)\}\r\n")


class _ImapProtocol(library.IMAP4ClientProtocol):
    """The library's side of the connection. `on_data` gets the stream, and calls `read` with each response."""

    transport: Any
    sock: socket.socket

    def __init__(
        self, observer: Observer, on_data: Callable[[bytes], None], on_lost: Callable[[Exception | None], None]
    ) -> None:
        super().__init__(asyncio.get_running_loop(), on_lost)
        self.sent_bytes = 0
        self.tag = ""  # of the last command
        self._observer = observer
        self._on_data = on_data

    def data_received(self, data: bytes) -> None:
        acknowledge_at_once(self.sock)  # not when sending, as uvloop sends later
        self._on_data(data)

    def send(self, line: str, scrub: str | None = None) -> None:
        self.sent_bytes += len(line.encode()) + 2
        self._observer.lines.append(self._observer.now())
        self._observer.lines.append(line.encode()[:KEPT_BYTES])
        self.tag = line.partition(" ")[0] if line != "DONE" else self.tag
        super().send(line, cast(str, scrub))

    def read(self, response: bytes) -> None:
        """Have the library read a whole response. Raises `ProtocolError` if it cannot, or expects more."""
        literals, at = 0, 0
        while mark := _LITERAL.search(response, at):
            literals, at = literals + 1, mark.end() + int(mark[1])
        if literals * len(response) > MOST_COPIED_BYTES:
            raise ProtocolError("IMAP literals", f"{literals} in a response of {len(response)} bytes")
        try:
            super().data_received(response + library.CRLF)
        except Exception as error:  # noqa: BLE001 - the library raises anything on malformed data
            # Its text may quote the command, and so the password.
            raise ProtocolError("aioimaplib gave up", type(error).__name__) from None
        if self.incomplete_line or self.current_command is not None:
            raise ProtocolError("IMAP literal", "in a response that has none")
        while not self.idle_queue.empty():
            self.idle_queue.get_nowait()  # IDLE's announcements would pile up


@dataclass(slots=True, eq=False, repr=False)
class LibraryConnection:
    """A connection through the library; implements `connection_port.ImapConnection`."""

    account: Account
    observer: Observer
    limit_s: float
    on_response: Callable[[Response], None]
    on_lost: Callable[[TaskFailed], None]
    failure: TaskFailed | None = field(default=None, init=False)  # why it ended
    method: str = field(default="", init=False)
    free_literal_bytes: int = field(default=-1, init=False)  # the library waits before each literal
    _protocol: _ImapProtocol = field(init=False)
    _wire: ImapWire = field(init=False)
    _guard: Guard = field(init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _greeting: asyncio.Future[Condition] = field(init=False)
    _ended: asyncio.Future[None] = field(init=False)
    _under_way: ImapCommand | None = field(default=None, init=False)
    _tagged: Tagged | None = field(default=None, init=False)  # the end of the command under way
    _idling: asyncio.Future[Any] | None = field(default=None, init=False)  # the library's IDLE, until DONE
    _quiet: asyncio.Future[Answer] | None = field(default=None, init=False)  # a command without a caller
    _before: int = field(default=0, init=False)  # the weight at the last command
    _bye: ServerLost | None = field(default=None, init=False)  # the failure after the server's BYE
    _leaving: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._greeting, self._ended = loop.create_future(), loop.create_future()
        self._guard = Guard(self._fail_reading)
        self._wire = ImapWire(
            read=self._read, response_bytes=RESPONSE_BYTES, keep=keeping(self.observer.lines, self._asked)
        )
        self._protocol = _ImapProtocol(self.observer, self._on_data, lambda error: self._fail(self._bye or loss(error)))

    # --- the port ---

    async def connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> Condition:
        with self._reported("CONNECT"):
            try:
                with failing_as("connect"):
                    async with asyncio.timeout(self.limit_s):
                        await self._connect(endpoint, context)
                        await asyncio.wait((self._greeting, self._ended), return_when=asyncio.FIRST_COMPLETED)
            except ServerSilent as silent:
                raise self._silent(silent.kind) from None
            self._check()
            return self._greeting.result()

    async def _connect(self, endpoint: Endpoint, context: ssl.SSLContext | None) -> None:
        loop, sock = (
            asyncio.get_running_loop(),
            await connect.connected_socket(endpoint, endpoint.source(self.account.number)),
        )
        self._protocol.sock = sock
        tls: dict[str, Any] = {}
        if context and endpoint.tls == "implicit":
            tls = {"ssl": context, "server_hostname": endpoint.tls_name, "ssl_handshake_timeout": self.limit_s}
        try:
            with handshakes_of(self.account.number):
                await loop.create_connection(lambda: self._protocol, sock=sock, **tls)
        except BaseException:
            sock.close()
            raise

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Send STARTTLS, which the library does not offer, and perform the handshake (RFC 9051 section 6.2.1)."""
        await self.send("STARTTLS")
        self._check()
        protocol = self._protocol
        with self._reported("TLS"), failing_as("TLS handshake"), handshakes_of(self.account.number):
            async with asyncio.timeout(self.limit_s):
                transport = await asyncio.get_running_loop().start_tls(
                    protocol.transport, protocol, context, server_hostname=host, ssl_handshake_timeout=self.limit_s
                )
            self._check()
            if transport is None:
                raise ServerLost("connection lost")
            protocol.transport = transport

    @property
    def arrival(self) -> None:
        """Unknown: the library's transport is asyncio's."""

    def send(
        self,
        name: str,
        *arguments: Argument,
        challenged: Callable[[str], None] | None = None,
        then: Callable[[Answer], None] | None = None,
        resets: bool = False,
    ) -> asyncio.Future[Answer]:
        self._check()
        if self._bye is not None:
            raise again(self._bye)
        command = ImapCommand(name, then=then, wanted=WANTED.get(name, ()), challenged=challenged)
        return asyncio.get_running_loop().create_task(self._in_turn(command, arguments))

    def respond(self, line: bytes) -> None:
        self._protocol.sent_bytes += len(line) + 2
        self.observer.lines.append(self.observer.now())
        self.observer.lines.append(unseen(len(line)))
        self._protocol.transport.write(line + b"\r\n")

    def send_quietly(self, name: str, *arguments: Argument) -> None:
        if self.failure is None and self._bye is None:
            self._quiet = self.send(name, *arguments)
            self._quiet.add_done_callback(self._end_quietly)

    async def idle(self) -> None:
        await self.send("IDLE")

    def remember_tls(self) -> None:
        remember(self.account.number, self._protocol.transport)

    def close(self) -> None:
        self._leaving = True
        if self._protocol.transport is not None and not self._protocol.transport.is_closing():
            self._protocol.transport.close()

    def abort(self) -> None:
        self._leaving = True
        self._fail(ServerLost("closed"))

    async def wait_closed(self) -> None:
        await asyncio.wait((self._ended,), timeout=self.limit_s)
        self.abort()

    def _asked(self) -> Asked:
        if not self._greeting.done():
            return None
        return (self._protocol.tag,), self._under_way is not None and self._under_way.name.endswith("FETCH")

    def _silent(self, kind: str) -> ServerSilent:
        return ServerSilent(kind, unfinished(self._wire.unfinished, self._asked(), self.account))

    # --- commands ---

    def _end_quietly(self, quiet: asyncio.Future[Answer]) -> None:
        error = None if quiet.cancelled() else quiet.exception()
        if isinstance(error, TaskFailed):
            self._fail(error)

    async def _in_turn(self, command: ImapCommand, arguments: Sequence[Argument]) -> Answer:
        """End IDLE and send a command, once earlier ones have ended. Raises `TaskFailed`."""
        async with self._turn:
            if self._idling is not None:
                with suppress(ServerRefused):
                    await self._perform(ImapCommand("DONE"), ())
                self._idling = None
            return await self._perform(command, arguments)

    async def _perform(self, command: ImapCommand, arguments: Sequence[Argument]) -> Answer:
        self._check()
        self._under_way, self._tagged, self._before = command, None, self._wire.weight
        with self._reported(command.name):
            task = asyncio.ensure_future(self._call(command, arguments))
            try:
                async with asyncio.timeout(self.limit_s):
                    await asyncio.wait((task, self._ended), return_when=asyncio.FIRST_COMPLETED)
                    if self._under_way is command:
                        self._check()
                    await asyncio.wait((task,))
                return self._answer(command, task)
            except TimeoutError:
                raise self._silent(f"no answer to {command.name}") from None
            finally:
                self._under_way = None
                if not task.done():
                    task.cancel()
                    await asyncio.wait((task,))
                if not task.cancelled():
                    task.exception()  # retrieved, or asyncio would complain

    def _answer(self, command: ImapCommand, task: asyncio.Future[Any]) -> Answer:
        """Return the answer to a command whose call has ended. Raises `TaskFailed`."""
        if task.cancelled():
            self._check()
        error, tagged = task.exception(), self._tagged
        if isinstance(error, library.AioImapException | LookupError | TypeError | ValueError | AttributeError):
            raise ProtocolError("aioimaplib gave up", f"{type(error).__name__} at {command.name}")
        if error is not None:
            raise internal(error)
        if command.future is not None and command.future.done():
            return command.future.result()  # IDLE's, which continues
        unsent = command.name == "APPEND" and self._protocol.literal_data is not None
        if tagged is None or (tagged.status == "OK" and unsent):
            raise ProtocolError("IMAP literal", "OK to a command that was not complete")
        if tagged.status != "OK":
            raise refusal(command.name, tagged, self.account)
        return Answer(tagged, command.data.responses)

    async def _call(self, command: ImapCommand, arguments: Sequence[Argument]) -> None:
        """Have the library run a command; its result is not used."""
        protocol = self._protocol
        words = [argument.decode() for argument in arguments if isinstance(argument, bytes)]
        match command.name:
            case "CAPABILITY":
                await protocol.capability()
            case "LOGIN":
                await protocol.login(library.quoted(self.account.name), self.account.password)
            case "SELECT":
                await protocol.select(*words)
            case "LOGOUT":
                await protocol.logout()
            case "IDLE":
                await self._begin_idle(command)
            case "DONE":
                assert self._idling is not None
                protocol.idle_done()
                await self._idling
            case "APPEND":
                message = cast(Literal, arguments[-1]).data
                protocol.sent_bytes += len(message) + len(library.CRLF)
                await protocol.append(message, words[0], cast(str, words[1] if len(words) > 1 else None))
            case name:
                prefix, _, verb = name.rpartition(" ")
                await protocol.execute(library.Command(verb, protocol.new_tag(), *words, prefix=prefix))

    async def _begin_idle(self, command: ImapCommand) -> None:
        """Send IDLE, and wait for the server's "+"."""
        protocol = self._protocol
        command.future = asyncio.get_running_loop().create_future()
        idle = library.IdleCommand(protocol.new_tag(), protocol.idle_queue)
        self._idling = asyncio.ensure_future(protocol.execute(idle))
        await asyncio.wait((self._idling, command.future), return_when=asyncio.FIRST_COMPLETED)
        if not command.future.done():
            idling, self._idling = self._idling, None
            await idling

    # --- responses ---

    def _on_data(self, data: bytes) -> None:
        if self.failure is not None:
            return
        with self._guard:
            for response in self._wire.feed(data):
                self._take(response)
                if self.failure is not None:
                    return
            waits = self._under_way is not None or self._idling is not None
            check_answer(self._wire.weight - self._before if waits else 0)

    def _read(self, raw: bytes) -> Response | None:
        """Have the library read a response other than the greeting. Return the response's values."""
        if self._greeting.done():
            self._protocol.read(raw)
        return parse(raw)

    def _take(self, response: Response) -> None:
        command = self._under_way
        if not self._greeting.done():
            self._greet(response)
        elif isinstance(response, Tagged):
            self._end(command, response)
        elif isinstance(response, Continuation):
            self._continue(command, response)
        else:
            if command is not None and isinstance(response, command.wanted):
                command.data.take(response)
            elif command is not None and isinstance(response, Expunged):
                command.data.renumber()
            if isinstance(response, Condition) and response.status == "BYE":
                self._bye = ServerLost("BYE", without_password(response.text, self.account))
                if command is None:
                    self._fail(self._bye)
            self.on_response(response)

    def _greet(self, response: Response) -> None:
        """Read the greeting here, since the library would send CAPABILITY at once."""
        if not isinstance(response, Condition) or response.status not in ("OK", "PREAUTH", "BYE"):
            raise ProtocolError("IMAP greeting", "expected OK, PREAUTH or BYE")
        if response.status == "BYE":
            self._fail(ServerLost("BYE", without_password(response.text, self.account)))
            return
        self._protocol.state = library.AUTH if response.status == "PREAUTH" else library.NONAUTH
        self._greeting.set_result(response)

    def _end(self, command: ImapCommand | None, tagged: Tagged) -> None:
        if tagged.tag != f"{self._protocol.tagpre}{self._protocol.tagnum - 1}":
            raise ProtocolError("IMAP tag", "an answer to no command under way")
        if command is None:
            raise ProtocolError("IMAP IDLE", "the server ended it before DONE")
        if tagged.status == "OK":
            if command.name == "IDLE":
                raise ProtocolError("IMAP IDLE", "OK to a command that was not complete")
            if command.then is not None:
                command.then(Answer(tagged, command.data.responses))
            if command.name == "AUTHENTICATE":
                self._protocol.state = library.AUTH
            elif command.name == "STARTTLS":
                if self._wire.held_bytes:
                    raise injected()
                self._protocol.transport.pause_reading()
        self._under_way, self._tagged = None, tagged
        if self._bye is not None and command.name != "LOGOUT":
            self._fail(self._bye)

    def _continue(self, command: ImapCommand | None, response: Continuation) -> None:
        if command is not None and command.challenged is not None:
            command.challenged(response.text)
        elif command is not None and command.future is not None:
            self._under_way = None
            command.future.set_result(Answer(Tagged("", "OK", None, ""), []))

    # --- ends ---

    def _check(self) -> None:
        if self.failure is not None:
            raise again(self.failure)

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        """Report the block as a command; close unless it succeeds or is refused."""
        since, sent, received = self.observer.now(), self._protocol.sent_bytes, self._wire.taken_bytes
        outcome = "lost"
        try:
            yield
            outcome = "ok"
        except TaskFailed as failure:
            outcome = failure.outcome
            if not isinstance(failure, ServerRefused):
                self._fail(failure)
            raise
        finally:
            sent_bytes, received_bytes = self._protocol.sent_bytes - sent, self._wire.taken_bytes - received
            self.observer.command(f"IMAP {name}", since, outcome, sent_bytes, received_bytes)
            if outcome == "lost":
                self.abort()

    def _fail_reading(self, failure: TaskFailed) -> None:
        self._fail(quoting(failure, self._wire.malformed, self._asked(), self.account))

    def _fail(self, failure: TaskFailed) -> None:
        """End the connection: the command under way fails, others are never sent."""
        if self.failure is not None:
            return
        self.failure = failure
        if self._protocol.transport is not None:
            self._protocol.transport.abort()
        self._ended.set_result(None)
        if self._idling is not None:
            self._idling.cancel()
        if not self._leaving:
            self.on_lost(failure)
