"""The requests that arrive at mail servers, by name: proxies in front of all services, independent of the drivers.

Only remote operations of MAPI are read by the embedded server's own tables.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

from loadsim.model.ports import Endpoint, Services
from loadsim.servers.embedded_mapi.rops import OPERATIONS, ROP_RELEASE
from loadsim.servers.embedded_mapi.wire import Reader

Requests = AsyncGenerator[str, None]

LITERAL = re.compile(rb"\{(\d+)\+?\}\r\n$")
SMTP_VERBS = {"EHLO", "LHLO", "STARTTLS", "AUTH", "MAIL", "RCPT", "DATA", "RSET"}
POP3_VERBS = {"CAPA", "STLS", "AUTH", "USER", "PASS", "UIDL", "LIST", "TOP", "RETR", "DELE", "QUIT"}
LDAP_OPERATIONS = {0x60: "bind", 0x63: "search"}
"""Tags of RFC 4511 sections 4.2 and 4.5.1; no task waits for an unbind."""


async def imap(sent: asyncio.StreamReader) -> Requests:
    """Yield commands (RFC 9051) without their arguments and literals, but not what answers a challenge."""
    while line := await sent.readline():
        words = line.decode("latin-1").upper().split()
        while literal := LITERAL.search(line):
            await sent.readexactly(int(literal[1]))
            line = await sent.readline()
        if words == ["DONE"] or len(words) > 1:
            yield " ".join(words[1:3] if "UID" in words[1:2] else words[1:2] or words)


async def smtp(sent: asyncio.StreamReader) -> Requests:
    """Yield commands, but QUIT: no task waits for it unless the connection is kept."""
    while line := await sent.readline():
        verb = line.decode("latin-1").upper().split(maxsplit=1)[:1]
        if verb and verb[0].rstrip() in SMTP_VERBS:
            yield verb[0]
        if verb == ["DATA"]:
            await sent.readuntil(b"\r\n.\r\n")


async def pop3(sent: asyncio.StreamReader) -> Requests:
    while line := await sent.readline():
        verb = line.decode("latin-1").upper().split()[:1]
        if verb and verb[0] in POP3_VERBS:
            yield verb[0]


async def nntp(sent: asyncio.StreamReader) -> Requests:
    """Yield commands (RFC 3977, RFC 4643), without the articles behind POST."""
    while line := await sent.readline():
        words = line.decode("latin-1").upper().split()
        name = " ".join(words[: 2 if words[0] in ("MODE", "AUTHINFO") else 1])
        yield name
        if name == "POST":
            await sent.readuntil(b"\r\n.\r\n")


async def caldav(sent: asyncio.StreamReader) -> Requests:
    """Yield methods (RFC 4791), those of REPORT with the report."""
    async for method, _, _, body in _http(sent):
        report = re.search(rb"<(?:\w+:)?(sync-collection|calendar-multiget)\b", body)
        yield f"{method} {report[1].decode()}" if method == "REPORT" and report else method


async def ldap(sent: asyncio.StreamReader) -> Requests:
    """Yield operations (RFC 4511 section 4.1.1); message ids take one to four bytes."""
    while await sent.read(1):
        size = (await sent.readexactly(1))[0]
        if size & 0x80:
            size = int.from_bytes(await sent.readexactly(size & 0x7F), "big")
        content = await sent.readexactly(size)
        if (operation := content[2 + content[1]]) in LDAP_OPERATIONS:
            yield LDAP_OPERATIONS[operation]


async def _http(sent: asyncio.StreamReader) -> AsyncIterator[tuple[str, str, Mapping[str, str], bytes]]:
    """Yield the method, path, headers and body of requests."""
    while not sent.at_eof():
        try:
            head = (await sent.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return
        first, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, path, _ = first.split(" ")
        yield method, path, headers, await sent.readexactly(int(headers.get("content-length", "0")))


async def jmap(sent: asyncio.StreamReader) -> Requests:
    """Yield the methods of each request, or the kind of another resource (RFC 8620 section 2)."""
    async for _, path, _, body in _http(sent):
        kind = path.strip("/").partition("/")[0].partition("?")[0]
        other = {".well-known": "session", "session": "session", "events": "EventSource"}.get(kind, kind)
        yield "+".join(dict.fromkeys(name for name, *_ in json.loads(body)["methodCalls"])) if kind == "api" else other


async def mapi(sent: asyncio.StreamReader) -> Requests:
    """Yield the type of each request, or the operations of an Execute (MS-OXCRPC section 3.1.4.2) but releases."""
    async for _, _, headers, body in _http(sent):
        kind = headers["x-requesttype"]
        yield "+".join(dict.fromkeys(_operations(body))) if kind == "Execute" else kind


def _operations(body: bytes) -> list[str]:
    execute = Reader(body)
    *_, size = execute.unpack("IIHHHHH")
    requests, names = Reader(execute.take(size - 2)), []
    while requests.at < len(requests.data):
        number, _ = requests.unpack("BB")
        if number == ROP_RELEASE:
            requests.take(1)
            continue
        operation = OPERATIONS[number]
        requests.take(len(operation.indexes))
        for letter in operation.fields:
            requests.one(letter)
        name = operation.act.__name__.title().replace("_", "")
        names.append("SaveChangesMessage" if name == "SaveChanges" else name)
    return names


READERS: Mapping[str, Callable[[asyncio.StreamReader], Requests]] = {
    "imap": imap,
    "smtp": smtp,
    "outside": smtp,
    "pop3": pop3,
    "ldap": ldap,
    "nntp": nntp,
    "caldav": caldav,
    "jmap": jmap,
    "mapi": mapi,
}


class Sent:
    """The names of requests so far, each with the instant at which it arrived (ns)."""

    def __init__(self) -> None:
        self._requests: list[tuple[int, str]] = []

    def take(self, since_ns: int) -> list[str]:
        """Forget all, and return those since an instant."""
        names = [name for at_ns, name in self._requests if at_ns >= since_ns]
        self._requests.clear()
        return names

    @asynccontextmanager
    async def before(self, services: Services) -> AsyncIterator[Services]:
        """Yield the services through proxies."""
        async with AsyncExitStack() as stack:
            through: dict[str, Any] = {}
            for service, endpoint in services.endpoints.items():
                port = await stack.enter_async_context(self._proxy(endpoint, READERS[service]))
                through[service] = replace(endpoint, host="127.0.0.1", port=port)
            yield replace(services, **through)

    @asynccontextmanager
    async def _proxy(self, endpoint: Endpoint, read: Callable[[asyncio.StreamReader], Requests]) -> AsyncIterator[int]:
        ends: list[asyncio.StreamWriter] = []
        under_way: set[asyncio.Task[Any]] = set()

        async def note(sent: asyncio.StreamReader) -> None:
            async for name in read(sent):
                self._requests.append((time.monotonic_ns(), name))

        async def copy(
            source: asyncio.StreamReader, to: asyncio.StreamWriter, tee: asyncio.StreamReader | None
        ) -> None:
            try:
                while data := await source.read(1 << 16):
                    if tee is not None:
                        tee.feed_data(data)
                    to.write(data)
                    await to.drain()
            except ConnectionError:
                pass  # the other side went first
            finally:
                to.close()
                if tee is not None:
                    tee.feed_eof()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            under_way.add(task)
            back, onward = await asyncio.open_connection(endpoint.host, endpoint.port)
            ends.extend((writer, onward))
            tee = asyncio.StreamReader(limit=1 << 26)
            await asyncio.gather(copy(reader, onward, tee), copy(back, writer, None), note(tee))

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for end in ends:
                end.transport.abort()
            for ended in await asyncio.gather(*under_way, return_exceptions=True):
                assert not isinstance(ended, Exception) or isinstance(ended, asyncio.IncompleteReadError), ended
