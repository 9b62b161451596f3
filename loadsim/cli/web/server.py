"""The page's web server: two paths and a token, and nothing that a request can change.

The browser that shows a run also shows other sites. So the data require a token that no other site knows, not even one
whose name resolves to this address (DNS rebinding).
"""

from __future__ import annotations

import hmac
import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import BoundedSemaphore, Thread
from typing import Any

from loadsim.cli.web.view import PageView
from loadsim.processes.signals import handled_by
from loadsim.report.html import hashed
from loadsim.report.style import STYLE

LOOPBACK = "127.0.0.1"

MOST_CONNECTIONS = 32
"""The most connections: the server closes further ones at once."""

LONGEST_WAIT_S = 10.0
"""A request for the state is answered once the state changes, or after this time."""

LEAST_WAIT_S = 0.5
"""The shortest time between two states sent to one page."""

CLIENT_LIMIT_S = 20.0
"""The server closes a connection whose client neither sends nor reads for this long."""

LAST_WORD_S = 3.0
"""The longest wait at the end for open pages to fetch the result."""


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


_STYLE, _SCRIPT = STYLE + _read("page.css"), _read("page.js")

PAGE = (
    _read("page.html")
    .replace("<!-- style -->", f"<style>{_STYLE}</style>")
    .replace("<!-- script -->", f"<script>{_SCRIPT}</script>")
    .encode()
)
"""The page as a single document, with its style and script; it loads and runs nothing else."""

HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {hashed(_SCRIPT)}; style-src {hashed(_STYLE)}; connect-src 'self';"
        " img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_STATE = re.compile(r"/state(?:\?page=([A-Za-z0-9-]{1,40})&version=(-?\d{1,15}))?", re.ASCII)


class PageServer(ThreadingHTTPServer):
    """Serves the page on loopback, in threads."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, port: int, view: PageView, token: str) -> None:
        self.view = view
        self.token = token
        self.awaited: dict[str, float] = {}  # the time of the last request, for each page without the final state
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((LOOPBACK, port), PageHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; show our own errors."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def await_pages(self) -> None:
        """Wait until all open pages have the final state, or until a signal."""
        now_s, signals = time.monotonic(), list[bool]()
        with handled_by(signals.append, even_if_ignored=True):
            while not signals and time.monotonic() < now_s + LAST_WORD_S:
                if all(at_s <= now_s - LONGEST_WAIT_S - LAST_WORD_S for at_s in [*self.awaited.values()]):
                    break
                time.sleep(0.02)


@contextmanager
def serving(server: PageServer) -> Iterator[None]:
    """Serve in a thread; at the end, wait for pages that do not have the result yet."""
    thread = Thread(target=server.serve_forever, args=(0.2,), name="page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.view.finish()
        server.await_pages()
        server.shutdown()
        server.server_close()
        thread.join()


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request of a connection."""

    server: PageServer
    timeout = CLIENT_LIMIT_S

    def do_GET(self) -> None:
        if self.path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", PAGE)
        elif (asked := _STATE.fullmatch(self.path)) is None:
            self.send_error(HTTPStatus.NOT_FOUND, "no such page")
        elif not self._has_token():
            self.send_error(HTTPStatus.UNAUTHORIZED, "expected the token of the printed address")
        else:
            self._send_state(asked[1], int(asked[2] or -1))

    def _has_token(self) -> bool:
        given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {self.server.token}".encode())  # in constant time

    def _send_state(self, page: str | None, version: int) -> None:
        """Send the state once it is newer than `version`; note which pages have the final one."""
        view, awaited = self.server.view, self.server.awaited
        if page is not None:
            awaited[page] = time.monotonic()
        if version >= 0:
            end_s = time.monotonic() + LEAST_WAIT_S
            view.wait(version, LONGEST_WAIT_S)
            while not view.finished and (left_s := end_s - time.monotonic()) > 0:
                time.sleep(min(left_s, 0.1))
        document = view.document()
        self._send(HTTPStatus.OK, "application/json", json.dumps(document, allow_nan=False).encode())
        if document["finished"] and page is not None:
            awaited.pop(page, None)

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send a line of plain text. For an unknown method, the status is 405 rather than the base class's 501."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "expected GET"
        self._send(status, "text/plain; charset=utf-8", f"{message or status.phrase}\n".encode())

    def version_string(self) -> str:
        return "loadsim"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        """Log nothing: the terminal shows the run."""
