"""The transport on loopback: what it delivers, when that arrived, how it ends; asyncio's own is the oracle."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import patch

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from imap_script import certificate
from loopback import PATIENCE_S, connected, pure_acknowledgements, there
from paths import SUPPORT

from loadsim.model.records import BOUND, KERNEL, LOOP, Arrival
from loadsim.protocols import transport as transports
from loadsim.protocols.transport import BUFFER_BYTES, OLDEST_NS, Transport

T = TypeVar("T")

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]

PIECES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=6)


@dataclass
class Told(asyncio.Protocol):
    """A protocol that keeps what it is told."""

    pieces: list[tuple[bytes, Arrival]] = field(default_factory=list)
    lost: "asyncio.Future[Exception | None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    news: asyncio.Event = field(default_factory=asyncio.Event)
    transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.news.set()
        self.pieces.append((data, getattr(self.transport, "arrival", (0, ""))))

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)

    @property
    def data(self) -> bytes:
        return b"".join(data for data, _ in self.pieces)

    async def received(self, size: int) -> None:
        """Wait for this many bytes."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.data) < size:
                self.news.clear()
                await self.news.wait()


def on(loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(main)


@asynccontextmanager
async def open_transport(
    now: Callable[[], int] = time.monotonic_ns,
) -> AsyncIterator[tuple[Told, Transport, socket.socket]]:
    client, server = connected()
    told = Told()
    transport = Transport(client, told, now)
    transport.begin()
    with closing(server):
        yield told, transport, server
        transport.abort()
        await told.lost


@given(pieces=PIECES)
def test_an_arrival_is_when_the_last_byte_came_however_late_it_is_read(pieces: list[bytes]) -> None:
    """The pieces come one after the other, and are read together later: the arrival is that of the last one."""

    async def main() -> None:
        async with open_transport() as (told, transport, server):
            for piece in pieces[:-1]:
                server.send(piece)
            size = len(b"".join(pieces))
            if size > len(pieces[-1]):
                there(transport._sock, size - len(pieces[-1]))
            began_ns = time.monotonic_ns()
            server.send(pieces[-1])
            ended_ns = there(transport._sock, size)
            await told.received(size)
            assert told.data == b"".join(pieces)
            at_ns, clock = told.pieces[-1][1]
            assert clock == KERNEL
            assert began_ns - 50_000 <= at_ns <= ended_ns + 50_000

    on(asyncio.SelectorEventLoop, main())


@pytest.mark.parametrize(("off_ns", "clock"), [(0, KERNEL), (OLDEST_NS, LOOP), (-(10**9), LOOP)])
def test_a_wall_clock_that_was_set_is_not_believed(off_ns: int, clock: str) -> None:
    async def main() -> Arrival:
        async with open_transport() as (told, _, server):
            with patch.object(transports.time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + off_ns):
                server.send(b"x")
                await told.received(1)
            return told.pieces[0][1]

    began_ns = time.monotonic_ns()
    at_ns, found = on(asyncio.SelectorEventLoop, main())
    assert found == clock
    assert began_ns - 50_000 <= at_ns <= time.monotonic_ns()


DISTURBANCE_NS = OLDEST_NS // 3


@given(disturbed=st.sets(st.integers(0, 4), max_size=2))
def test_disturbed_readings_of_the_clocks_make_no_arrival_early(disturbed: set[int]) -> None:
    """Something comes before one or two of the readings. One alone does not make the arrival late, either."""
    readings, lost_ns = 0, 0

    def disturb() -> int:
        nonlocal readings, lost_ns
        lost_ns += DISTURBANCE_NS * (readings in disturbed)
        readings += 1
        return lost_ns

    async def main() -> Arrival:
        async with open_transport(lambda: time.monotonic_ns() + disturb()) as (told, _, server):
            wall = lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + disturb()  # noqa: E731
            with patch.object(transports.time, "time_ns", wall):
                server.send(b"x")
                await told.received(1)
            return told.pieces[0][1]

    began_ns = time.monotonic_ns()
    at_ns, clock = on(asyncio.SelectorEventLoop, main())
    assert clock == KERNEL
    assert began_ns <= at_ns
    assert at_ns <= time.monotonic_ns() or len(disturbed) == 2


def test_a_read_that_fills_the_buffer_is_a_bound() -> None:
    """There may be more behind it, and the note may be that of the rest."""

    async def main() -> list[tuple[int, str]]:
        async with open_transport() as (told, transport, server):
            transport.pause_reading()
            transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * BUFFER_BYTES)
            server.setblocking(False)
            rest = bytes(BUFFER_BYTES + 1)
            while rest:
                try:
                    rest = rest[server.send(rest) :]
                except BlockingIOError:
                    transport.resume_reading()
                    await asyncio.sleep(0)
                    transport.pause_reading()
            transport.resume_reading()
            await told.received(BUFFER_BYTES + 1)
            return [(len(data), clock) for data, (_, clock) in told.pieces]

    reads = on(asyncio.SelectorEventLoop, main())
    assert all((clock == BOUND) == (size == BUFFER_BYTES) for size, clock in reads)
    assert reads[-1][1] == KERNEL


@pytest.mark.parametrize("loop", LOOPS)
def test_half_an_answer_is_acknowledged_before_it_is_read(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """In a dialogue, in which Linux delays it, and Nagle's algorithm keeps back the other half."""
    parts, rounds = [b"* 1 EXISTS\r\n", b"a1 OK\r\n"], 5

    async def main() -> list[int]:
        async with open_transport() as (told, transport, server):
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            counts = []
            for done in range(rounds):
                transport.write(b"a1 NOOP\r\n")
                assert server.recv(100)
                before = pure_acknowledgements(transport._sock)
                server.send(parts[0])
                there(transport._sock, len(parts[0]))
                counts.append(pure_acknowledgements(transport._sock) - before)
                server.send(parts[1])
                await told.received((done + 1) * len(b"".join(parts)))
            return counts

    assert on(loop, main()) == [1] * rounds


@pytest.mark.parametrize("loop", LOOPS)
def test_a_read_acknowledges_what_the_kernel_did_not(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """It delays again after some 16 segments: how many depends on the system, so the test switches it back."""
    rounds = 5

    async def main() -> list[int]:
        async with open_transport() as (told, transport, server):
            counts = []
            for done in range(rounds):
                transport.write(b"a1 NOOP\r\n")
                assert server.recv(100)
                transport._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                before = pure_acknowledgements(transport._sock)
                server.send(b"a1 OK\r\n")
                await told.received(7 * (done + 1))
                counts.append(pure_acknowledgements(transport._sock) - before)
            return counts

    assert on(loop, main()) == [1] * rounds


class Tls:
    """A server's part of TLS, in memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    async def shake_hands(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        while True:
            try:
                self.object.do_handshake()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(sock, self.outgoing.read())
                self.incoming.write(await loop.sock_recv(sock, 65536))
            else:
                await loop.sock_sendall(sock, self.outgoing.read())
                return

    def records(self, *pieces: bytes) -> list[bytes]:
        """Encrypt each piece as a record."""
        made = []
        for piece in pieces:
            self.object.write(piece)
            made.append(self.outgoing.read())
        return made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server and of a client that trusts it."""
    file, context = certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost")
    return context, ssl.create_default_context(cafile=str(file))


@asynccontextmanager
async def secured_transport(
    secured: tuple[ssl.SSLContext, ssl.SSLContext],
) -> AsyncIterator[tuple[Told, Transport, socket.socket, Tls]]:
    client, server = connected()
    told, tls = Told(), Tls(secured[0])
    transport = Transport(client, told, time.monotonic_ns)
    with closing(server):
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(tls.shake_hands(server))
            group.create_task(transport.start_tls(secured[1], "localhost"))
        transport.begin()
        yield told, transport, server, tls
        transport.abort()
        await told.lost


@given(pieces=PIECES, data=st.data())
def test_a_read_that_ends_inside_a_tls_record_is_a_bound(
    secured: tuple[ssl.SSLContext, ssl.SSLContext], pieces: list[bytes], data: st.DataObject
) -> None:
    """Records are cut in two anywhere: what the first half completes came before its end, the rest ends with it."""

    async def main() -> None:
        async with secured_transport(secured) as (told, transport, server, tls):
            await asyncio.sleep(0)
            records = tls.records(*pieces)
            stream = b"".join(records)
            ends = [sum(map(len, records[: count + 1])) for count in range(len(records))]
            cut = data.draw(st.integers(1, len(stream)))
            whole = sum(end <= cut for end in ends)
            for part, complete in ((stream[:cut], whole), (stream[cut:], len(pieces))):
                if not part:
                    continue
                began_ns = time.monotonic_ns()
                server.send(part)
                ended_ns = there(transport._sock, len(part))
                before = len(told.pieces)
                await told.received(len(b"".join(pieces[:complete])))
                for _ in range(3):
                    await asyncio.sleep(0)
                for at_ns, clock in (arrival for _, arrival in told.pieces[before:]):
                    assert clock == (KERNEL if cut in ends or part != stream[:cut] else BOUND)
                    assert began_ns - 50_000 <= at_ns <= ended_ns + 50_000
            assert told.data == b"".join(pieces)

    on(asyncio.SelectorEventLoop, main())


async def last_words(make: Callable[[socket.socket, Told], Coroutine[Any, Any, Any]], end: str) -> tuple[bytes, str]:
    """Return what a protocol is told of a server that says something and ends in this way."""
    client, server = connected()
    told = Told()
    await make(client, told)
    server.send(b"bye")
    await told.received(3)
    if end == "reset":
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    if end in ("closed", "reset"):
        server.close()
    elif end == "half-closed":
        server.shutdown(socket.SHUT_WR)
    else:
        getattr(told.transport, end)()
    async with asyncio.timeout(PATIENCE_S):
        error = await told.lost
    server.close()
    assert told.transport.is_closing()
    told.transport.write(b"ignored")
    return told.data, repr(error and type(error))


async def asyncios(sock: socket.socket, told: Told) -> None:
    await asyncio.get_running_loop().create_connection(lambda: told, sock=sock)


async def ours(sock: socket.socket, told: Told) -> None:
    Transport(sock, told, time.monotonic_ns).begin()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("end", ["closed", "half-closed", "reset", "close", "abort"])
def test_every_end_is_told_as_asyncio_tells_it(end: str, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    assert on(loop, last_words(ours, end)) == on(asyncio.SelectorEventLoop, last_words(asyncios, end))


@pytest.mark.parametrize("loop", LOOPS)
def test_what_the_socket_does_not_take_is_sent_later(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Megabytes to a server that does not read yet: all of it arrives, in order, before the end."""
    message = bytes(range(256)) * 65536

    async def main() -> bytes:
        client, server = connected()
        told = Told()
        transport = Transport(client, told, time.monotonic_ns)
        transport.begin()
        transport.writelines([message[:1000], message[1000:]])
        assert 0 < transport.get_write_buffer_size() < len(message)
        transport.write(b"end")
        transport.close()
        server.setblocking(False)
        taken = bytearray()
        while piece := await asyncio.get_running_loop().sock_recv(server, 1 << 20):
            taken += piece
        server.close()
        assert await told.lost is None
        return bytes(taken)

    assert on(loop, main()) == message + b"end"


@pytest.mark.nightly(part="hosts")
def test_an_answer_whose_segments_overtook_each_other_has_no_note() -> None:
    """In order; the last one first; the middle one last, after a read, as if it had been lost and was sent again."""
    words = ["unshare", "--net", sys.executable, str(SUPPORT / "overtaking.py")]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    first, second, third = "* 1 EXISTS\r\n", "* 2 EXISTS\r\n", "a1 OK\r\n"
    assert json.loads(ended.stdout) == [
        [[first + second + third, KERNEL]],
        [[first + second + third, LOOP]],
        [[first, LOOP], [second + third, LOOP]],
    ]


def test_connections_of_two_threads_do_not_mix() -> None:
    """Each of two loops, in a thread of its own, reads megabytes of one letter."""
    megabytes = 8

    async def read(letter: bytes) -> set[int]:
        async with open_transport() as (told, _, server):
            sending = asyncio.to_thread(server.sendall, letter * (megabytes << 20))
            await asyncio.gather(sending, told.received(megabytes << 20))
            return set(told.data)

    with ThreadPoolExecutor() as threads:
        seen = list(threads.map(lambda letter: asyncio.run(read(letter)), (b"a", b"b")))
    assert seen == [{ord("a")}, {ord("b")}]


@pytest.mark.parametrize("loop", LOOPS)
def test_no_byte_is_delivered_while_reading_is_paused(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        async with open_transport() as (told, transport, server):
            transport.pause_reading()
            server.send(b"now")
            there(transport._sock, 3)
            for _ in range(3):
                await asyncio.sleep(0)
            assert (told.data, transport.is_reading()) == (b"", False)
            transport.resume_reading()
            await told.received(3)

    on(loop, main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshakes_caller_gets_its_error_before_the_protocol(
    loop: Callable[[], asyncio.AbstractEventLoop], secured: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async def main() -> Exception | None:
        client, server = connected()
        told = Told()
        transport = Transport(client, told, time.monotonic_ns)
        server.close()
        transport.begin()
        transport.pause_reading()
        with pytest.raises(ConnectionError):
            await transport.start_tls(secured[1], "localhost")
        assert not told.lost.done()
        return await told.lost

    assert isinstance(on(loop, main()), ConnectionError)


@pytest.mark.parametrize("loop", LOOPS)
def test_bytes_behind_the_handshake_are_not_lost(
    loop: Callable[[], asyncio.AbstractEventLoop], secured: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    """A greeting in the same segment as the handshake's end, and the server's close_notify behind it."""

    async def main() -> tuple[bytes, Exception | None]:
        client, server = connected()
        told, tls = Told(), Tls(secured[0])

        async def serve() -> None:
            await tls.shake_hands(server)
            tls.object.write(b"220 ready\r\n")
            with pytest.raises(ssl.SSLWantReadError):
                tls.object.unwrap()
            await asyncio.get_running_loop().sock_sendall(server, tls.outgoing.read())

        transport = Transport(client, told, time.monotonic_ns)
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(serve())
            group.create_task(transport.start_tls(secured[1], "localhost"))
        transport.begin()
        error = await told.lost
        server.close()
        return told.data, error

    assert on(loop, main()) == (b"220 ready\r\n", None)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_protocol_that_fails_ends_its_connection_with_its_error(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> Exception | None:
        async with open_transport() as (told, _, server):
            with patch.object(told, "data_received", side_effect=ZeroDivisionError):
                server.send(b"x")
                async with asyncio.timeout(PATIENCE_S):
                    return await told.lost

    assert isinstance(on(loop, main()), ZeroDivisionError)
