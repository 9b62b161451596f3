"""HTTP servers of tests: one that answers as a function says, and one that sends any bytes."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from patience import PATIENCE_S

Answer = Callable[[BaseHTTPRequestHandler], tuple[int, dict[str, str], str]]
"""Status, headers and body for a request."""


@contextmanager
def http_server(answer: Answer) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = answer(self)
            content = body.encode()
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join()


@contextmanager
def raw_server(sends: Callable[[socket.socket], None], family: int = socket.AF_INET, path: str = "") -> Iterator[int]:
    """The port of a server on loopback that receives a request, and then sends anything; 0 for one with a `path`."""
    with socket.socket(family) as listening:
        listening.bind(path or ("127.0.0.1", 0))
        listening.listen()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(PATIENCE_S)
                        if connection.recv(65536):
                            sends(connection)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield 0 if path else listening.getsockname()[1]
        finally:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            serving.join()
