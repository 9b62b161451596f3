"""SMTP servers that break the protocol at any point: no reply but that to the final dot accepts a message."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from imap_script import certificate, skip
from skipping import run_watched, turns, within
from smtp_peers import ACCOUNT, LIMIT_S, PASSWORD, Observed, small_heap

from loadsim.errors import GeneratorFailed, ProtocolError, ServerLost, ServerSilent, TaskFailed
from loadsim.model.ports import Endpoint
from loadsim.protocols.smtp.aiosmtplib import QUIT_LIMIT_S, LibrarySubmission
from loadsim.protocols.smtp.codes import accepts_message, kind_of
from loadsim.protocols.smtp.pipelining import PipeliningSubmission
from loadsim.protocols.smtp.wire import LONGEST_LINE_BYTES, LONGEST_REPLY_BYTES, Wire
from loadsim.protocols.tls import tls_context

__all__ = ["small_heap"]

pytestmark = pytest.mark.usefixtures("small_heap")

SENDER, RECIPIENTS = "user1@sim.test", ["user2@sim.test", "user3@sim.test"]
WAYS = {
    "aiosmtplib": (LibrarySubmission, True),
    "pipelining": (PipeliningSubmission, True),
    "step by step": (PipeliningSubmission, False),
}
POSITIONS = ["greeting", "EHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "RCPT 2", "DATA", "message", "RSET", "QUIT"]
SURPLUS = b"250 2.0.0 surplus\r\n"


class Fault:
    """The act of a server in place of one reply; `%b` stands for the reply that was due."""

    def __init__(self, said: bytes = b"", *, late: bytes = b"", end: str = "", forever: bytes = b"") -> None:
        self.said, self.late, self.end, self.forever = said, late, end, forever


FAULTS = {
    "none": Fault(b"%b"),
    "byte by byte": Fault(b"%b", end="trickle"),
    "bare LF": Fault(b"%b", end="bare"),
    "surplus behind": Fault(b"%b" + SURPLUS),
    "surplus before": Fault(SURPLUS + b"%b"),
    "surplus refusal behind": Fault(b"%b550 5.7.1 surplus\r\n"),
    "part of a surplus": Fault(b"%b250"),
    "surplus later": Fault(b"%b", late=SURPLUS),
    "twice": Fault(b"%b%b"),
    "421 behind": Fault(b"%b421 4.3.2 closing\r\n", end="close"),
    "missing": Fault(),
    "1yz": Fault(b"150 wait\r\n"),
    "2yz": Fault(b"259 odd\r\n"),
    "221": Fault(b"221 bye\r\n"),
    "3yz": Fault(b"350 more\r\n"),
    "4yz": Fault(b"450 later\r\n"),
    "421": Fault(b"421 closing\r\n", end="close"),
    "5yz": Fault(b"550 never\r\n"),
    "000": Fault(b"000 nothing\r\n"),
    "999": Fault(b"999 nothing\r\n"),
    "four digits": Fault(b"2500 odd\r\n"),
    "no code": Fault(b"OK accepted\r\n"),
    "empty line": Fault(b"\r\n"),
    "differing codes": Fault(b"250-yes\r\n550 no\r\n"),
    "differing codes, 2yz": Fault(b"250-yes\r\n251 yes\r\n"),
    "several lines without end": Fault(b"250-yes\r\n250-yes\r\n"),
    "endless lines": Fault(forever=b"250-yes\r\n" * 5000),
    "an endless line": Fault(forever=b"250 yes" * 5000),
    "a long line": Fault(b"250 " + b"x" * 100_000 + b"\r\n"),
    "10,000 lines": Fault(b"250-yes\r\n" * 10_000 + b"250 yes\r\n"),
    "garbage": Fault(bytes(range(256)) * 4 + b"\r\n"),
    "NUL": Fault(b"250 \0\0\r\n250\0yes\r\n"),
    "TLS record": Fault(b"\x15\x03\x03\x00\x02\x02\x28"),
    "close": Fault(end="close"),
    "reset": Fault(end="reset"),
    "half a reply, then close": Fault(b"250 ye", end="close"),
    "half of several lines, then reset": Fault(b"250-yes\r\n", end="reset"),
}

ENDS = {"close": (ServerLost, "lost"), "missing": (ServerSilent, "timeout"), "no code": (ProtocolError, "lost")}
"""The failure of the message after these faults, and the outcome of its last command."""


@dataclass
class Server:
    """A server that commits one fault, on its first connection; it keeps what it truly said to each final dot."""

    position: str
    fault: Fault
    pipelining: bool
    context: ssl.SSLContext | None = None
    committed: bool = False
    acceptances: dict[bytes, bytes] = field(default_factory=dict)
    steps: int = 0
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        self._open.add(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await self._converse(reader, writer)
        writer.close()
        self._open.discard(writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        secured = False
        recipients = 0
        verb, due = "greeting", b"220 mail.sim.test\r\n"
        while True:
            said, over = await self._reply(writer, verb, due)
            if over or (verb == "QUIT" and said):
                return
            if verb == "STARTTLS" and said.startswith(b"220") and said.count(b"\n") == 1:
                await writer.start_tls(self.context)
                secured = True
            if verb == "DATA" and said.startswith(b"3"):
                message = await reader.readuntil(b"\r\n.\r\n")
                verb, due = "message", b"250 2.0.0 queued\r\n"
                said, over = await self._reply(writer, verb, due)
                self.acceptances[message.partition(b"\r\n")[0]] = said
                if over:
                    return
            line = await reader.readuntil(b"\r\n")
            self.steps += 1
            verb, due = line.split()[0].decode("latin-1").upper(), b"250 2.0.0 OK\r\n"
            match verb:
                case "EHLO":
                    recipients = 0
                    offered = [b"250-mail.sim.test\r\n", b"250-AUTH PLAIN\r\n"]
                    offered += [b"250-PIPELINING\r\n"] * self.pipelining
                    offered += [b"250-STARTTLS\r\n"] * (self.context is not None and not secured)
                    due = b"".join(offered) + b"250 SIZE 1000000\r\n"
                case "AUTH":
                    due = b"235 2.7.0 welcome\r\n"
                case "MAIL":
                    recipients = 0
                case "RCPT":
                    recipients += 1
                    if recipients == 2:
                        verb = "RCPT 2"
                        if self.position == "RSET" and not self.committed:
                            due = b"550 5.1.1 unknown\r\n"
                case "DATA":
                    due = b"354 go\r\n"
                    if self.position == "RSET" and not self.committed:
                        due = b"554 no\r\n"
                case "STARTTLS":
                    due = b"220 go\r\n"
                case "QUIT":
                    due = b"221 bye\r\n"

    async def _reply(self, writer: asyncio.StreamWriter, verb: str, due: bytes) -> tuple[bytes, bool]:
        """Answer, as it is due or with the fault; what was said, and whether the connection is over."""
        if verb != self.position or self.committed:
            writer.write(due)
            return due, False
        self.committed = True
        fault = self.fault
        said = fault.said.replace(b"%b", due)
        if fault.end == "trickle":
            for byte in said:
                writer.write(bytes([byte]))
                self.steps += 1
                await turns(2)
        else:
            writer.write(said.replace(b"\r\n", b"\n") if fault.end == "bare" else said)
        while fault.forever:
            writer.write(fault.forever)
            self.steps += 1
            await writer.drain()
        if fault.late:
            await turns()
            writer.write(fault.late)
        if fault.end == "reset":
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()
        return said, fault.end in ("close", "reset")

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Endpoint]:
        """Serve on a port of the kernel's choice."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 21)
        try:
            yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        finally:
            server.close()
            await server.wait_closed()
            for writer in list(self._open):
                writer.transport.abort()
            while self._open:
                await turns()

    def accepted(self, message: bytes) -> bool:
        """Return whether the first whole reply to this message's final dot was a 2yz that may accept a message."""
        said = self.acceptances.get(message.partition(b"\r\n")[0], b"")
        whole = [*itertools.islice(replies(said), 1)]
        return bool(whole) and accepts_message(whole[0])


def replies(said: bytes) -> Iterator[int]:
    """The codes of the whole replies, by our own reader, up to what is no reply."""
    with contextlib.suppress(ProtocolError):
        for reply in Wire().feed(said):
            yield reply.code


@pytest.fixture(scope="module")
def localhost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return certificate(tmp_path_factory.mktemp("smtp"), "IP:127.0.0.1")


async def outcome(
    driver: LibrarySubmission | PipeliningSubmission, message: bytes, server: Server
) -> TaskFailed | None:
    """Return the failure of a message, None if it is accepted. Only a `TaskFailed` may be raised, none of our own."""
    sending = asyncio.create_task(driver.send(SENDER, RECIPIENTS, message))
    await within(8 * LIMIT_S, sending, lambda: server.steps)
    failure = sending.exception()
    assert failure is None or isinstance(failure, TaskFailed), repr(failure)
    assert not isinstance(failure, GeneratorFailed), repr(failure)
    return failure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("position", "connection"),
    [(each, "kept") for each in POSITIONS] + [(each, "per-message") for each in POSITIONS if each != "RSET"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_message_counts_as_accepted_only_if_its_final_dot_was(
    way: str, connection: str, position: str, localhost: tuple[Path, ssl.SSLContext]
) -> None:
    """One fault at any point of the dialogue: nothing hangs, no later message suffers, and no reply is misread."""
    kind, pipelining = WAYS[way]
    ca_file, context = localhost

    async def one(name: str) -> None:
        server = Server(position, FAULTS[name], pipelining, context if position == "STARTTLS" else None)
        async with server.listening() as plain:
            tls = "starttls" if server.context else "none"
            endpoint = replace(plain, tls=tls, ca_file=str(ca_file) if server.context else None, connection=connection)
            observer = Observed()
            driver = kind(endpoint, ACCOUNT, observer, LIMIT_S, tls_context(endpoint))
            first, *others = messages = [b"Subject: %d\r\n\r\nbody\r\n" % number for number in range(3)]
            failures = [await outcome(driver, first, server)]
            end = type(failures[0]), observer.commands[-1][1]
            failures += [await outcome(driver, message, server) for message in others]
            await within(2 * QUIT_LIMIT_S, asyncio.create_task(driver.close()))
        said = f"{name}: {failures}, {server.acceptances}"
        assert server.committed, said
        assert [failure is None for failure in failures] == [server.accepted(message) for message in messages], said
        assert failures[2] is None, said
        in_packet = way == "pipelining" and position in ("MAIL", "RCPT", "RCPT 2")  # the next reply takes its place
        if position not in ("RSET", "QUIT") and not (name == "missing" and in_packet):
            assert end == ENDS.get(name, end), said
        if name in ("none", "byte by byte", "bare LF") and position != "RSET":
            assert failures == [None] * 3, said

    every = 1 if connection == "kept" else 3  # each fault at a third of the points, which differ between the ways
    begin = POSITIONS.index(position) + list(WAYS).index(way)

    async def scenario() -> None:
        for name in list(FAULTS)[begin % every :: every]:
            if (name, position) != ("surplus later", "DATA"):  # it arrives before the dot: undetectable
                await one(name)

    run_watched(scenario)


# --- beyond the exhaustive test -----------------------------------------------------------------------


@asynccontextmanager
async def playing(
    script: list[bytes | None], context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Endpoint, bytearray]]:
    """A server that sends the next piece for each packet that it gets, None for nothing; and all that it was sent.

    Behind "220 TLS" it goes on inside TLS.
    """
    taken = bytearray()
    connected: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.add(writer)
        with contextlib.suppress(OSError):
            for piece in script:
                writer.write(piece or b"")
                if piece == b"220 TLS\r\n":
                    assert context is not None
                    await writer.start_tls(context)
                if not (data := await reader.read(1 << 20)):
                    break
                taken.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), taken
    finally:
        server.close()
        for writer in connected:
            writer.transport.abort()
        await server.wait_closed()
        await turns()


async def failure_of(
    kind: Any, endpoint: Endpoint, message: bytes = b"Subject: x\r\n\r\nbody\r\n"
) -> TaskFailed | None:
    """Return the failure of one message over one driver, None if it is accepted."""
    driver = kind(endpoint, ACCOUNT, Observed(), LIMIT_S, tls_context(endpoint))
    sending = asyncio.create_task(driver.send(SENDER, RECIPIENTS[:1], message))
    await within(8 * LIMIT_S, sending)
    await within(2 * QUIT_LIMIT_S, asyncio.create_task(driver.close()))
    error = sending.exception()
    assert error is None or isinstance(error, TaskFailed), repr(error)
    return error


@pytest.fixture(params=[LibrarySubmission, PipeliningSubmission])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


EHLO = b"250-mail.sim.test\r\n250 SIZE 1000000\r\n"
IN_THE_CLEAR = b"250-mail.sim.test\r\n250-AUTH PLAIN LOGIN\r\n250 STARTTLS\r\n"


def test_an_acceptance_while_the_message_is_under_way_is_none(kind: Any) -> None:
    """The server reads nothing more after its go-ahead: it cannot know how the message ends."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in (b"220 hi\r\n", EHLO, b"250 sender\r\n", b"250 recipient\r\n"):
            writer.write(reply)
            await reader.readline()
        writer.write(b"354 go\r\n")
        await reader.readline()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await turns(50)
        writer.write(b"250 queued\r\n")
        await writer.wait_closed()

    async def scenario() -> None:
        writers: set[asyncio.StreamWriter] = set()

        async def remembering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.add(writer)
            with contextlib.suppress(OSError):
                await serve(reader, writer)

        server = await asyncio.start_server(remembering, "127.0.0.1", 0)
        endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
        failure = await failure_of(kind, endpoint, b"Subject: x\r\n\r\n" + (b"x" * 998 + b"\r\n") * 16_000)
        assert isinstance(failure, ProtocolError), failure
        for writer in writers:
            writer.transport.abort()
        server.close()
        await server.wait_closed()
        await turns()

    run_watched(scenario)


@pytest.mark.parametrize(
    "behind",
    [
        b"250-mail.sim.test\r\n250-AUTH PLAIN LOGIN\r\n250 PIPELINING\r\n",
        b"250-mail.sim.test\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 ok\r\n250 ok\r\n354 go\r\n250 queued\r\n",
        b"250-mail",
        b"\r\n",
        b"x",
        b"421 closing\r\n",
    ],
)
def test_what_is_injected_behind_the_answer_to_starttls_ends_the_session(
    kind: Any, behind: bytes, localhost: tuple[Path, ssl.SSLContext]
) -> None:
    """Data in the clear is not taken for what the server says inside TLS, and no password is sent (CVE-2011-0411)."""

    async def scenario() -> None:
        script = [b"220 hi\r\n", IN_THE_CLEAR, b"220 go\r\n" + behind, None, None, None]
        async with playing([*script]) as (plain, taken):
            failure = await failure_of(kind, replace(plain, tls="starttls", ca_file=str(localhost[0])))
            assert isinstance(failure, ServerLost if behind.startswith(b"421") else ProtocolError), failure
            assert b"AUTH" not in taken
            assert PASSWORD.encode() not in taken

    run_watched(scenario)


def test_what_was_offered_in_the_clear_is_forgotten(kind: Any, localhost: tuple[Path, ssl.SSLContext]) -> None:
    """AUTH was offered before TLS and not inside: no password is sent (RFC 3207 section 4.2)."""

    async def scenario() -> None:
        inside = [EHLO, b"250 sender\r\n", b"250 recipient\r\n", b"354 go\r\n", b"250 queued\r\n", b"221 bye\r\n"]
        script = [b"220 hi\r\n", IN_THE_CLEAR, b"220 TLS\r\n", *inside]
        async with playing([*script], localhost[1]) as (plain, taken):
            failure = await failure_of(kind, replace(plain, tls="starttls", ca_file=str(localhost[0])))
            assert failure is None
            assert b"AUTH" not in taken
            assert taken.count(b"MAIL") == 1

    run_watched(scenario)


def test_kinds_of_refusals_are_bounded() -> None:
    """A server may invent codes; they are counted together, and the failure's line still has them."""
    assert kind_of(550, "RCPT") == "550 RCPT"
    assert kind_of(577, "RCPT") == "other 5yz RCPT"
    assert len({kind_of(code, "RCPT") for code in range(400, 600)}) < 40


@pytest.mark.slow
@pytest.mark.parametrize("piece", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("text", [b"250-x\r\n", b"250-" + b"x" * 4000 + b"\r\n", b"x", b"250 ok\r\n", b"\r\n"])
def test_the_reader_holds_little_of_any_stream(text: bytes, piece: int) -> None:
    """At most one line and one reply are held of a stream in any pieces: each piece costs a bounded time."""
    wire, stream = Wire(), text * ((4 * LONGEST_REPLY_BYTES) // len(text))
    with contextlib.suppress(ProtocolError):
        for begin in range(0, len(stream), piece):
            for reply in wire.feed(stream[begin : begin + piece]):
                assert reply.size_bytes <= LONGEST_REPLY_BYTES
            assert wire.held_bytes <= LONGEST_LINE_BYTES + LONGEST_REPLY_BYTES


def test_a_silent_server_costs_one_limit(kind: Any) -> None:
    """A reply that trickles, a byte every second, does not extend the limit of its command."""

    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while True:
                    writer.write(b"2")
                    await writer.drain()
                    await asyncio.sleep(1)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        driver = kind(Endpoint("127.0.0.1", server.sockets[0].getsockname()[1]), ACCOUNT, Observed(), LIMIT_S, None)
        sending = asyncio.create_task(driver.send(SENDER, RECIPIENTS, b"x"))
        await within(LIMIT_S + 1, sending)
        assert isinstance(sending.exception(), ServerSilent | ProtocolError)
        await within(LIMIT_S, asyncio.create_task(driver.close()))
        server.close()
        await server.wait_closed()
        skip(2)  # until the server has noticed
        await turns()

    run_watched(scenario)


def test_an_error_of_ours_is_the_generators(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends this user's connection, and escapes neither to the caller nor into asyncio."""

    def broken(*_: object) -> None:
        raise KeyError("secret of a message")

    monkeypatch.setattr("loadsim.protocols.smtp.commands.extensions", broken)
    monkeypatch.setattr("loadsim.protocols.smtp.connection.extensions", broken)
    monkeypatch.setattr("loadsim.protocols.smtp.aiosmtplib._Protocol._take", broken)

    async def scenario() -> None:
        async with playing([b"220 hi\r\n", EHLO, None]) as (endpoint, _):
            failure = await failure_of(kind, endpoint)
            assert isinstance(failure, GeneratorFailed)
            assert failure.kind == "internal error: KeyError"

    run_watched(scenario)
