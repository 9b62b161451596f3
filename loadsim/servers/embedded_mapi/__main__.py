"""The embedded MAPI server's process: MAPI over HTTP on one event loop, with its sessions and address book.

`loadsim.servers.embedded` starts it like the other embedded server. Requests that [MS-OXCMAPIHTTP] forbids get the
X-ResponseCode that it prescribes.
"""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from loadsim.servers.child import BACKLOG, listen, run_child, until_end
from loadsim.servers.embedded_mapi.rops import Rops
from loadsim.servers.embedded_mapi.store import Store
from loadsim.servers.embedded_mapi.wire import STRING, Error, MalformedError, Reader, Values, encode
from loadsim.version import __version__

EMSMDB, NSPI = "/mapi/emsmdb", "/mapi/nspi"
LARGEST_BODY_BYTES = 0x50000
EXPIRY_S = 900.0
"""The time without requests after which a session ends."""
PENDING_S = 15.0
MOST_PENDING = 20
"""A waiting NotificationWait sends PENDING at this interval; without events, it ends after this many."""

INVALID_VERB, INVALID_HEADER, INVALID_TYPE, INVALID_COOKIE, MISSING_HEADER, TOO_LARGE = 2, 4, 5, 6, 7, 9
NO_CONTEXT, NO_PRIVILEGE, INVALID_BODY, MISSING_COOKIE, INVALID_SEQUENCE = 10, 11, 12, 13, 15
"""Values of X-ResponseCode ([MS-OXCMAPIHTTP] section 2.2.3.3.3)."""

CONTEXT, SEQUENCE = "MapiContext", "MapiSequence"
SERVER_GUID = uuid.uuid4().bytes_le
_REQUEST_ID = re.compile(r"\{[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\}:\d+")
_APPLICATION = re.compile(r"[^/]+/\d+(?:\.\d+){3}")


class RefusedError(Exception):
    """A request refused with an X-ResponseCode."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request, with header names in lower case. `login` is the user whose password it carries."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    login: str | None

    @property
    def kind(self) -> str:
        return self.headers.get("x-requesttype", "")

    @property
    def cookies(self) -> dict[str, str]:
        parts = (part.partition("=") for part in self.headers.get("cookie", "").split(";"))
        return {name.strip(): value.strip() for name, _, value in parts}

    def check(self) -> None:
        """Raise `RefusedError` unless method and headers are as section 2.2.3 requires."""
        if self.method != "POST":
            raise RefusedError(INVALID_VERB)
        required = [self.headers.get(name) for name in ("host", "x-requesttype", "x-requestid", "x-clientapplication")]
        if None in required:
            raise RefusedError(MISSING_HEADER)
        valid = _REQUEST_ID.fullmatch(required[2] or "") and _APPLICATION.fullmatch(required[3] or "")
        if not valid or self.headers.get("content-type", "").lower() != "application/mapi-http":
            raise RefusedError(INVALID_HEADER)
        if len(self.body) > LARGEST_BODY_BYTES:
            raise RefusedError(TOO_LARGE)


@dataclass(slots=True, eq=False)
class Session:
    """A session context for one path."""

    path: str
    login: str
    rops: Rops | None
    used_s: float
    cookie: str = field(default_factory=lambda: uuid.uuid4().hex)
    sequence: str = field(default_factory=lambda: uuid.uuid4().hex)
    news: asyncio.Event = field(default_factory=asyncio.Event)


Answer = tuple[Session | None, bytes]
"""The session whose cookies are sent, and the body without the auxiliary buffer."""


class MapiServer:
    """All users' sessions, and the connections that make requests in them."""

    def __init__(self, accounts: Sequence[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
        self.store = Store(accounts, lists)
        self.sessions: dict[str, Session] = {}
        self._passwords = {f"{login}:{password}".encode(): login for login, _, password in accounts}

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection's requests, one after another, until it ends."""
        ends = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)
        with suppress(*ends, asyncio.CancelledError):  # asyncio would log the cancellation when the server stops
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head[:-4].split("\r\n")
                method, path, _ = first.split(" ")
                headers = {
                    name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                scheme, _, encoded = headers.get("authorization", "").partition(" ")
                login = self._passwords.get(base64.b64decode(encoded)) if scheme.lower() == "basic" else None
                await self.respond(Request(method, path.partition("?")[0].rstrip("/"), headers, body, login), writer)
                await writer.drain()
        writer.close()

    async def respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        if request.login is None:
            writer.write(_plain(HTTPStatus.UNAUTHORIZED, {"WWW-Authenticate": 'Basic realm="loadsim"'}))
            return
        if request.path not in TYPES:
            writer.write(_plain(HTTPStatus.NOT_FOUND, {}))
            return
        try:
            request.check()
            if request.kind not in TYPES[request.path]:
                raise RefusedError(INVALID_TYPE)
            reader = Reader(request.body)
            session, answer = TYPES[request.path][request.kind](self, request, reader)
            reader.end()
        except (RefusedError, MalformedError) as refused:
            code = refused.code if isinstance(refused, RefusedError) else INVALID_BODY
            writer.write(_plain(HTTPStatus.OK, {"X-ResponseCode": str(code), "Content-Type": "text/html"}))
            return
        headers = {
            "Content-Type": "application/mapi-http",
            "X-ResponseCode": "0",
            "X-PendingPeriod": str(int(PENDING_S * 1000)),
            "Transfer-Encoding": "chunked",
        }
        pairs = ((CONTEXT, session.cookie), (SEQUENCE, session.sequence)) if session else ()
        cookies = [f"{name}={value}; path={request.path}" for name, value in pairs]
        writer.write(_head(HTTPStatus.OK, headers, cookies) + _chunk(b"PROCESSING\r\n"))
        if session is not None and request.kind == "NotificationWait":
            answer = await self._news(session, writer)
        done = b"DONE\r\nX-ResponseCode: 0\r\n\r\n"
        writer.write(_chunk(done + answer + _NO_AUXILIARY) + _chunk(b""))

    async def _news(self, session: Session, writer: asyncio.StreamWriter) -> bytes:
        """Wait for a notification, and return the body that states whether one came (section 2.2.4.4.2)."""
        for _ in range(MOST_PENDING):
            try:
                async with asyncio.timeout(PENDING_S):
                    await session.news.wait()
                break
            except TimeoutError:
                writer.write(_chunk(b"PENDING\r\n"))
                await writer.drain()
        session.used_s = self._now()
        return struct.pack("<3I", 0, 0, session.news.is_set())

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _begin(self, request: Request, rops: Callable[[Session], Rops | None]) -> Session:
        session = Session(request.path, request.login or "", None, self._now())
        session.rops = rops(session)
        self.sessions[session.cookie] = session
        return session

    def _end(self, session: Session) -> None:
        del self.sessions[session.cookie]
        if session.rops is not None:
            session.rops.close()
        session.news.set()

    def _session(self, request: Request, *, sequenced: bool = True) -> Session:
        """Return the session that a request's cookies name, with a new sequence cookie (section 3.2.5.1)."""
        cookies = request.cookies
        if CONTEXT not in cookies or (sequenced and SEQUENCE not in cookies):
            raise RefusedError(MISSING_COOKIE)
        session = self.sessions.get(cookies[CONTEXT])
        if session is not None and self._now() - session.used_s > EXPIRY_S:
            self._end(session)
            session = None
        if session is None:
            raise RefusedError(NO_CONTEXT)
        if session.login != request.login:
            raise RefusedError(NO_PRIVILEGE)
        if session.path != request.path:
            raise RefusedError(INVALID_COOKIE)
        session.used_s = self._now()
        if sequenced:
            if cookies[SEQUENCE] != session.sequence:
                raise RefusedError(INVALID_SEQUENCE)
            session.sequence = uuid.uuid4().hex
        return session

    def connect(self, request: Request, reader: Reader) -> Answer:
        """Begin a session with the mailbox (section 2.2.4.1)."""
        dn, *_ = reader.one("z"), *reader.unpack("4I")
        _auxiliary(reader)
        mailbox, named = self.store.mailboxes[request.login or ""], self.store.mailbox_at(dn)
        error = 0 if named is mailbox else Error.UNKNOWN_USER if named is None else Error.ACCESS_DENIED
        session = None if error else self._begin(request, lambda begun: Rops(self.store, mailbox, begun.news.set))
        limits = struct.pack("<5I", 0, error, 60_000, 3, 1_000)
        return session, limits + b"/o=loadsim\0" + encode(STRING, mailbox.login)

    def execute(self, request: Request, reader: Reader) -> Answer:
        """Perform ROPs (section 2.2.4.2)."""
        _, size = reader.unpack("II")
        buffer, most_bytes = reader.take(size), reader.one("I")
        _auxiliary(reader)
        session = self._session(request)
        assert session.rops is not None
        try:
            answered = session.rops.execute(buffer, most_bytes)
        except MalformedError:
            return session, struct.pack("<4I", 0, Error.RPC_FORMAT, 0, 0)
        if not session.rops.waiting:
            session.news.clear()
        return session, struct.pack("<4I", 0, 0, 0, len(answered)) + answered

    def disconnect(self, request: Request, reader: Reader) -> Answer:
        _auxiliary(reader)
        session = self._session(request)
        self._end(session)
        return session, struct.pack("<II", 0, 0)

    def wait(self, request: Request, reader: Reader) -> Answer:
        """Find the session; `respond` waits, out of sequence, while the session may make other requests."""
        reader.one("I")
        _auxiliary(reader)
        return self._session(request, sequenced=False), b""

    def bind(self, request: Request, reader: Reader) -> Answer:
        """Begin a session with the address book (section 2.2.5.1)."""
        reader.one("I")
        _check_state(reader)
        _auxiliary(reader)
        return self._begin(request, lambda _: None), struct.pack("<II", 0, 0) + SERVER_GUID

    def unbind(self, request: Request, reader: Reader) -> Answer:
        reader.one("I")
        session, _ = self.disconnect(request, reader)
        return session, struct.pack("<II", 0, 1)  # UnbindSuccess ([MS-OXNSPI] section 2.2.1.2)

    def resolve_names(self, request: Request, reader: Reader) -> Answer:
        """Resolve names to address book entries (section 2.2.5.14, [MS-OXNSPI] section 3.1.4.1.17)."""
        reader.one("I")
        _check_state(reader)
        if not reader.one("B"):
            raise MalformedError
        tags = reader.unpack(f"{reader.one('I')}I")
        names = [reader.text() for _ in range(reader.one("I"))] if reader.one("B") else []
        _auxiliary(reader)
        session = self._session(request)
        entries = [self.store.entries.get(name.lower()) for name in names]
        rows = [_address_book_row(entry, tags) for entry in entries if entry is not None]
        numbers = [_UNRESOLVED if entry is None else _RESOLVED for entry in entries]
        body = struct.pack(f"<IIIBI{len(numbers)}I", 0, 0, 1252, 1, len(numbers), *numbers)
        body += struct.pack(f"<BI{len(tags)}II", 1, len(tags), *tags, len(rows)) + b"".join(rows)
        return session, body


TYPES: dict[str, dict[str, Callable[[MapiServer, Request, Reader], Answer]]] = {
    EMSMDB: {
        "Connect": MapiServer.connect,
        "Execute": MapiServer.execute,
        "Disconnect": MapiServer.disconnect,
        "NotificationWait": MapiServer.wait,
    },
    NSPI: {"Bind": MapiServer.bind, "ResolveNames": MapiServer.resolve_names, "Unbind": MapiServer.unbind},
}
_NO_AUXILIARY = bytes(4)
_UNRESOLVED, _RESOLVED = 0, 2
"""Minimal identifiers that state how a name was resolved ([MS-OXNSPI] section 2.2.1.8)."""


def _auxiliary(reader: Reader) -> None:
    reader.take(reader.one("I"))


def _check_state(reader: Reader) -> None:
    """Raise `MalformedError` for a STAT with a code page other than 1252 ([MS-OXNSPI] section 2.2.8)."""
    if not reader.one("B") or reader.unpack("9I")[6] != 1252:
        raise MalformedError


def _address_book_row(entry: Values, tags: Sequence[int]) -> bytes:
    """Return an AddressBookPropertyRow ([MS-OXCMAPIHTTP] section 2.2.1.7). Raises `MalformedError` for other tags."""
    if not entry.keys() >= set(tags):
        raise MalformedError
    return b"\0" + b"".join(b"\xff" + encode(STRING, entry[tag]) for tag in tags)


def _head(status: HTTPStatus, headers: Mapping[str, str], cookies: Iterable[str] = ()) -> bytes:
    fields = [*headers.items(), *(("Set-Cookie", cookie) for cookie in cookies)]
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def _plain(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    return _head(status, {**headers, "Content-Length": "0"})


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


async def serve(accounts: Sequence[Sequence[str]], lists: Mapping[str, Sequence[str]]) -> None:
    server = MapiServer(accounts, lists)
    listening = listen()
    async with await asyncio.start_server(server.connection, sock=listening, backlog=BACKLOG):
        await until_end({"mapi": (listening, EMSMDB)}, {"loadsim": __version__})


if __name__ == "__main__":
    run_child(serve)
