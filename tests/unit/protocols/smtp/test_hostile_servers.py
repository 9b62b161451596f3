"""SMTP servers that break the protocol: early acceptances, injected data, endless replies. `fuzz` has more."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from imap_script import certificate
from skipping import turns, within
from smtp_peers import ACCOUNT, LIMIT_S, PASSWORD, Observed, small_heap

from loadsim.errors import GeneratorFailed, ProtocolError, ServerLost, TaskFailed
from loadsim.model.mail_program import PIPELINING, SEQUENTIAL
from loadsim.model.ports import Endpoint
from loadsim.protocols.smtp.connection import QUIT_LIMIT_S
from loadsim.protocols.smtp.submission import SmtpSubmission
from loadsim.protocols.smtp.wire import LONGEST_LINE_BYTES, LONGEST_REPLY_BYTES, SmtpWire, kind_of
from loadsim.protocols.tls import tls_context

__all__ = ["small_heap"]

pytestmark = pytest.mark.usefixtures("small_heap")

SENDER, RECIPIENTS = "user1@sim.test", ["user2@sim.test", "user3@sim.test"]


@pytest.fixture(scope="module")
def localhost(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    return certificate(tmp_path_factory.mktemp("smtp"), "IP:127.0.0.1")


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


async def failure_of(way: str, endpoint: Endpoint, message: bytes = b"Subject: x\r\n\r\nbody\r\n") -> TaskFailed | None:
    driver = SmtpSubmission(endpoint, ACCOUNT, Observed(), LIMIT_S, tls_context(endpoint), way)
    sending = asyncio.create_task(driver.send(SENDER, RECIPIENTS[:1], message))
    await within(8 * LIMIT_S, sending)
    await within(2 * QUIT_LIMIT_S, asyncio.create_task(driver.close()))
    error = sending.exception()
    assert error is None or isinstance(error, TaskFailed), repr(error)
    return error


@pytest.fixture(params=[SEQUENTIAL, PIPELINING])
def way(request: pytest.FixtureRequest) -> str:
    """The ways of loadsim's own client; tests/hostile compares the library's."""
    return str(request.param)


EHLO = b"250-mail.sim.test\r\n250 SIZE 1000000\r\n"
IN_THE_CLEAR = b"250-mail.sim.test\r\n250-AUTH PLAIN LOGIN\r\n250 STARTTLS\r\n"


async def test_an_acceptance_before_the_messages_end_is_a_protocol_error(way: str) -> None:
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

    writers: set[asyncio.StreamWriter] = set()

    async def remembering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        with contextlib.suppress(OSError):
            await serve(reader, writer)

    server = await asyncio.start_server(remembering, "127.0.0.1", 0)
    endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1])
    failure = await failure_of(way, endpoint, b"Subject: x\r\n\r\n" + (b"x" * 998 + b"\r\n") * 16_000)
    assert isinstance(failure, ProtocolError), failure
    for writer in writers:
        writer.transport.abort()
    server.close()
    await server.wait_closed()
    await turns()


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
async def test_data_injected_after_starttls_ends_the_session(
    way: str, behind: bytes, localhost: tuple[Path, ssl.SSLContext]
) -> None:
    """Data in the clear is not taken for what the server says inside TLS, and no password is sent (CVE-2011-0411)."""
    script = [b"220 hi\r\n", IN_THE_CLEAR, b"220 go\r\n" + behind, None, None, None]
    async with playing([*script]) as (plain, taken):
        failure = await failure_of(way, replace(plain, tls="starttls", ca_file=str(localhost[0])))
        assert isinstance(failure, ServerLost if behind.startswith(b"421") else ProtocolError), failure
        assert b"AUTH" not in taken
        assert PASSWORD.encode() not in taken


async def test_extensions_offered_before_tls_are_discarded(way: str, localhost: tuple[Path, ssl.SSLContext]) -> None:
    """AUTH was offered before TLS and not inside: no password is sent (RFC 3207 section 4.2)."""
    inside = [EHLO, b"250 sender\r\n", b"250 recipient\r\n", b"354 go\r\n", b"250 queued\r\n", b"221 bye\r\n"]
    script = [b"220 hi\r\n", IN_THE_CLEAR, b"220 TLS\r\n", *inside]
    async with playing([*script], localhost[1]) as (plain, taken):
        failure = await failure_of(way, replace(plain, tls="starttls", ca_file=str(localhost[0])))
        assert failure is None
        assert b"AUTH" not in taken
        assert taken.count(b"MAIL") == 1


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
    wire, stream = SmtpWire(), text * ((4 * LONGEST_REPLY_BYTES) // len(text))
    with contextlib.suppress(ProtocolError):
        for begin in range(0, len(stream), piece):
            for reply in wire.feed(stream[begin : begin + piece]):
                assert reply.size_bytes <= LONGEST_REPLY_BYTES
            assert wire.held_bytes <= LONGEST_LINE_BYTES + LONGEST_REPLY_BYTES


async def test_an_internal_error_is_generator_failed(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends this user's connection, and escapes neither to the caller nor into asyncio."""

    def broken(*_: object) -> None:
        raise KeyError("secret of a message")

    monkeypatch.setattr("loadsim.protocols.smtp.connection.extensions", broken)

    async with playing([b"220 hi\r\n", EHLO, None]) as (endpoint, _):
        failure = await failure_of(way, endpoint)
        assert isinstance(failure, GeneratorFailed)
        assert failure.kind == "internal error: KeyError"
