"""The server of the page: three paths, a token, and limits for everything that a client sends or delays.

A browser that watches a run also shows pages of others. So the page's data need a token, which no other page knows.
The server checks `Host` and `Origin`, too: a foreign name may resolve to this address (DNS rebinding).
"""

from __future__ import annotations

import hmac
import io
import json
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, cast
from urllib.parse import parse_qsl

from loadsim.cli.web.page import PAGE, POLICY
from loadsim.cli.web.view import Have, PageView
from loadsim.engine.signals import handled_by

MOST_CONNECTIONS = 32
"""The server closes further connections at once."""

LONGEST_HEAD_BYTES = 8192

LONGEST_WAIT_S = 10.0
"""A request for the state is answered when there is news, at the latest after this time."""

LEAST_WAIT_S = 0.5
"""A page that has the state gets the next one after this time at the earliest."""

LONGEST_CONNECTION_S = 20.0
"""The server closes a connection after this time, however slowly its client reads or writes."""

LOOK_S = 0.2
"""The time between two looks at connections whose time is over."""

LAST_WORD_S = 3.0
"""The longest wait at the end, until open pages have the result."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_QUERY = re.compile(r"-?\d{1,15}", re.ASCII)
_PAGE = re.compile(r"[A-Za-z0-9-]{0,40}", re.ASCII)


class PageServer(ThreadingHTTPServer):
    """Serves the page at one address, in threads; `hosts` are the accepted values of `Host`."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        family: int,
        view: PageView,
        token: str,
        stop: Callable[[], None],
        tls: ssl.SSLContext | None = None,
        longest_connection_s: float = LONGEST_CONNECTION_S,
    ) -> None:
        self.address_family = family
        self.view = view
        self.token = token
        self.stop = stop
        self.tls = tls
        self.hosts: frozenset[str] = frozenset()
        self._longest_connection_s = longest_connection_s
        self._lock = Lock()
        self._until_s: dict[socket.socket, float] = {}  # of open connections
        self._pages: dict[str, tuple[float, bool]] = {}  # the last request, and whether it got the last state
        super().__init__(address, PageHandler)

    # --- connections ---

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            return len(self._until_s) < MOST_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._until_s[request] = time.monotonic() + self._longest_connection_s
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer a request in the connection's thread, where a slow handshake delays no other client."""
        request.settimeout(self._longest_connection_s)
        if self.tls is None:
            PageHandler(request, client_address, self)
            return
        with self._lock:
            until_s = self._until_s.pop(request)
            secured = self.tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            self._until_s[secured] = until_s
        with secured:
            try:
                secured.do_handshake()
                PageHandler(secured, client_address, self)
            finally:
                with self._lock:
                    self._until_s.pop(secured, None)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._until_s.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close the connections whose time is over; the server calls this every `LOOK_S`."""
        now_s = time.monotonic()
        with self._lock:
            over = [connection for connection, until_s in self._until_s.items() if until_s <= now_s]
            for connection in over:
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)  # its thread then closes it

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that breaks its connection; show errors of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    # --- pages ---

    def asked(self, page: str, *, last: bool = False) -> None:
        """Note that a page asked for the state, and whether it got the last one. One without a name is not awaited."""
        if not page:
            return
        with self._lock:
            self._pages.pop(page, None)
            self._pages[page] = (time.monotonic(), last)
            while len(self._pages) > MOST_CONNECTIONS:
                del self._pages[next(iter(self._pages))]

    def _awaited(self) -> bool:
        since_s = time.monotonic() - LONGEST_WAIT_S - LAST_WORD_S
        with self._lock:
            return any(at_s > since_s and not last for at_s, last in self._pages.values())

    def await_pages(self, most_s: float = LAST_WORD_S) -> None:
        """Wait until all open pages have the last state, or a signal."""
        signalled = False

        def on_signal(_: bool) -> None:
            nonlocal signalled
            signalled = True

        until_s = time.monotonic() + most_s
        with handled_by(on_signal, even_if_ignored=True):
            while self._awaited() and not signalled and time.monotonic() < until_s:
                time.sleep(0.02)


@contextmanager
def serving(server: PageServer) -> Iterator[None]:
    """Serve in a thread; at the end, wait for pages that do not have the result yet."""
    thread = Thread(target=server.serve_forever, args=(LOOK_S,), name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.view.finish()
        server.await_pages()
        server.shutdown()
        server.server_close()
        thread.join()


# --- one request --------------------------------------------------------------------------------------------------


class _Head(io.BufferedIOBase):
    """The head of a request, as far as it may go."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left_bytes = LONGEST_HEAD_BYTES

    @property
    def too_long(self) -> bool:
        return self._left_bytes <= 0

    def readline(self, size: int | None = -1, /) -> bytes:
        most_bytes = self._left_bytes if size is None or size < 0 else min(size, self._left_bytes)
        line: bytes = self._stream.readline(most_bytes) if most_bytes > 0 else b""
        self._left_bytes -= len(line)
        return line

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Refused(Exception):
    """A request that is not answered; `status` and a line say why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request of a connection."""

    server: PageServer

    def setup(self) -> None:
        super().setup()
        self._head = _Head(self.rfile)
        self.rfile = cast(Any, self._head)

    def do_GET(self) -> None:
        self._answer({"/": self._page, "/state": self._state})

    def do_POST(self) -> None:
        self._answer({"/stop": self._stop})

    def _answer(self, of_path: dict[str, Callable[[str], None]]) -> None:
        try:
            self._check_request()
            path, _, query = self.path.partition("?")
            if path not in of_path:
                raise _Refused(HTTPStatus.NOT_FOUND, "no such page")
            of_path[path](query)
        except _Refused as refused:
            self.send_error(refused.status, str(refused))

    def _check_request(self) -> None:
        """Check size, host and origin. Raises `_Refused`."""
        if self._head.too_long:
            raise _Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
        if self.headers.get("Transfer-Encoding") or self.headers.get("Content-Length", "0") != "0":
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "expected a request without a body")
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
            raise _Refused(HTTPStatus.FORBIDDEN, "expected the host of the printed address")
        own = f"{'http' if self.server.tls is None else 'https'}://{hosts[0].lower()}"
        if any(origin.lower() != own for origin in origins) or (self.command == "POST" and not origins):
            raise _Refused(HTTPStatus.FORBIDDEN, "expected a request of this page")
        if self.path != "/" and self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise _Refused(HTTPStatus.FORBIDDEN, "expected a request of this page")

    def _check_token(self) -> None:
        """Check the token in constant time. Raises `_Refused`."""
        given = self.headers.get_all("Authorization", [])
        wanted = f"Bearer {self.server.token}".encode()
        if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "surrogateescape"), wanted):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "expected the token of the printed address")

    def _page(self, _query: str) -> None:
        self._send(HTTPStatus.OK, "text/html; charset=utf-8", PAGE)

    def _state(self, query: str) -> None:
        self._check_token()
        page, have = _asked_for(query)
        self.server.asked(page)
        view = self.server.view
        if have.version >= 0:
            end_s = time.monotonic() + LEAST_WAIT_S
            view.wait(have, LONGEST_WAIT_S)
            while not view.finished and (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.1))
        document = view.document(have)
        self._send(HTTPStatus.OK, "application/json", json.dumps(document, allow_nan=False).encode())
        if document["finished"]:
            self.server.asked(page, last=True)

    def _stop(self, _query: str) -> None:
        self._check_token()
        if not self.server.view.stop():
            raise _Refused(HTTPStatus.CONFLICT, "the run is ending already")
        self.server.stop()
        self._send(HTTPStatus.ACCEPTED, "application/json", b"{}")

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a line of plain text. An unknown method is 405: the base class says 501."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "expected GET, or POST to stop"
        with suppress(OSError) if code == HTTPStatus.REQUEST_TIMEOUT else nullcontext():
            self._send(status, "text/plain; charset=utf-8", f"{message or status.phrase}\n".encode())

    def version_string(self) -> str:
        return "loadsim"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing: the terminal shows the run."""


def _asked_for(query: str) -> tuple[str, Have]:
    """Return the page's own name and what it has. Raises `_Refused`."""
    try:
        given = dict(parse_qsl(query, strict_parsing=True, max_num_fields=8)) if query else {}
    except ValueError:
        given = {"page": "?"}
    page = given.pop("page", "")
    if not _PAGE.fullmatch(page) or not given.keys() <= {"version", "run", "generation", "rows"}:
        raise _Refused(HTTPStatus.BAD_REQUEST, "expected page, version, run, generation and rows")
    if any(not _QUERY.fullmatch(value) for value in given.values()):
        raise _Refused(HTTPStatus.BAD_REQUEST, "expected whole numbers")
    numbers = {name: int(value) for name, value in given.items()}
    if numbers.get("rows", 0) < 0:
        raise _Refused(HTTPStatus.BAD_REQUEST, "expected rows of at least 0")
    return page, Have(**numbers)
