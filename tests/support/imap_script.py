"""A server that plays a script on a real loopback socket, and an observer that keeps the reports it gets."""

import asyncio
import re
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from loadsim.errors import TaskFailed
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.imap.authenticate import log_on
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.responses import Response
from loadsim.protocols.lines import NO_LINES
from loadsim.protocols.tls import tls_context

PATIENCE_S = 60.0


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward: no test waits for a limit, or meets one because the machine is busy."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


def skip(duration_s: float) -> None:
    """Put the clock of the running `SkippingLoop` forward; timers that are due then strike in the loop's next turn."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.ahead_s += duration_s


class Ear:
    def __init__(self) -> None:
        self.commands: list[tuple[str, str, int, int]] = []
        self.arrivals: list[int] = []
        self.losses: list[Exception] = []
        self.lines = NO_LINES
        self.news = asyncio.Event()

    def now(self) -> int:
        return time.monotonic_ns()

    def command(self, name: str, since: int, outcome: str, sent_bytes: int, received_bytes: int, *_: Any) -> None:
        assert 0 <= since <= self.now()
        self.commands.append((name, outcome, sent_bytes, received_bytes))

    def arrived(self, messages: int, *_: Any) -> None:
        self.arrivals.append(messages)
        self.news.set()

    def lost(self, failure: Exception) -> None:
        self.losses.append(failure)
        self.news.set()

    async def wait(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.news.wait()
        self.news.clear()


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *lines: bytes) -> None:
        self.writer.write(b"".join(line + b"\r\n" for line in lines))

    async def packet(self) -> bytes:
        """Return the next data, in one piece as it was written; b"" at the end."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.read(1 << 20)

    async def expect(self, pattern: bytes) -> bytes:
        """The tag of the next command, which must be this one and have come in a line of its own."""
        async with asyncio.timeout(PATIENCE_S):
            line = await self.reader.readline()
        found = re.fullmatch(rb"(\w+) " + pattern + rb"\r\n", line)
        assert found is not None, f"expected {pattern!r}, found {line!r}"
        return found[1]

    async def answer(self, pattern: bytes, *untagged: bytes, end: bytes = b"OK done") -> None:
        """Expect a command; send untagged lines and its end."""
        tag = await self.expect(pattern)
        self.say(*untagged, tag + b" " + end)

    async def greet(self, capabilities: bytes = b"IMAP4rev1 SASL-IR AUTH=PLAIN IDLE LITERAL+ MOVE UIDPLUS") -> None:
        """A log-on from the greeting to the second CAPABILITY, with AUTHENTICATE or LOGIN as the client likes."""
        self.say(b"* OK [CAPABILITY " + capabilities + b"] ready")
        await self.answer(rb"(AUTHENTICATE|LOGIN) .*")
        await self.answer(rb"CAPABILITY", b"* CAPABILITY " + capabilities)

    async def inbox(self, exists: int, uid_next: int, validity: int = 7) -> None:
        await self.answer(rb"SELECT INBOX", *self.opened(exists, uid_next, validity))

    def opened(self, exists: int, uid_next: int, validity: int = 7) -> tuple[bytes, ...]:
        """Return the untagged responses to SELECT."""
        return (
            b"* FLAGS (\\Answered \\Seen \\Deleted)",
            b"* %d EXISTS" % exists,
            b"* OK [UIDVALIDITY %d] valid" % validity,
            b"* OK [UIDNEXT %d] next" % uid_next,
        )

    async def end(self) -> None:
        while await self.packet():
            pass


Script = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def playing(
    *scripts: Script, context: ssl.SSLContext | None = None, tls: str = "none"
) -> AsyncIterator[Endpoint]:
    """A server whose first connection gets the first script, and so on; what fails in a script fails the test."""
    failures: list[BaseException] = []
    left = list(scripts)
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await left.pop(0)(Peer(reader, writer))
            await writer.drain()
        except ConnectionError:
            pass  # the client went first
        except (AssertionError, TimeoutError, IndexError) as failure:
            failures.append(failure)
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], tls=tls)
    finally:
        server.close()
        if running:
            await asyncio.wait(running, timeout=PATIENCE_S)
        if failures:
            raise failures[0]
    assert not left, f"{len(left)} connections were never made"


def certificate(directory: Path, names: str) -> tuple[Path, ssl.SSLContext]:
    """A new self-signed certificate for these subject alternative names; its file, and a server's context with it."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=loadsim test"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", str(key), "-out", str(cert)]
    for extension in (f"subjectAltName={names}", "keyUsage=critical,digitalSignature,keyCertSign"):
        command += ["-addext", extension]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return cert, context


class Client:
    def __init__(self) -> None:
        self.ear = Ear()
        self.received: list[Response] = []
        self.broken: list[TaskFailed] = []
        self.news = asyncio.Event()

    def hear(self, response: Response) -> None:
        """Untagged responses that a connection has reported."""
        self.received.append(response)
        self.news.set()

    async def until(self, kind: type[Response], count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while sum(isinstance(each, kind) for each in self.received) < count:
                self.news.clear()
                await self.news.wait()

    async def connect(self, endpoint: Endpoint, limit_s: float = PATIENCE_S) -> Connection:
        """Connect and take the greeting; the time limit counts from then on only."""
        connection = Connection(ACCOUNT, self.ear, PATIENCE_S, self.hear, self.broken.append)
        await connection.connect(endpoint, tls_context(endpoint))
        connection.limit_s = limit_s
        return connection

    async def log_on(self, endpoint: Endpoint, account: Account) -> tuple[Connection, frozenset[str]]:
        connection = Connection(account, self.ear, PATIENCE_S, self.hear, self.broken.append)
        return connection, await log_on(connection, endpoint, tls_context(endpoint))


ACCOUNT = Account(1, "user1", "user1@sim.test", 'se"cret-\\1')
