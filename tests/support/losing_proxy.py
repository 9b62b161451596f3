"""An HTTP proxy that loses requests, or their answers: then it ends the connection."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import BinaryIO

REQUEST, ANSWER = "request", "answer"


@contextmanager
def losing_proxy(port: int, word: bytes, *losses: str | None) -> Iterator[int]:
    """The port of a proxy before the server on this port of the loopback.

    `losses` are what is lost of requests with this word, in turn; None: nothing.
    """
    numbers = count()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sockets: list[socket.socket] = [listener]

        def accept() -> None:
            with suppress(OSError):  # the end of the test
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", port))
                    sockets.extend((client, server))
                    lost = threading.Event()
                    threading.Thread(target=pass_requests, args=(client, server, lost), daemon=True).start()
                    threading.Thread(target=pass_answers, args=(server, client, lost), daemon=True).start()

        def pass_requests(client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
            with suppress(OSError), client.makefile("rb") as lines:
                while request := _request(lines):
                    loss = losses[next(numbers) % len(losses)] if word in request else None
                    if loss == REQUEST:
                        break
                    if loss == ANSWER:
                        lost.set()
                    server.sendall(request)
            if not lost.is_set():
                _end(client, server)

        def pass_answers(server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
            with suppress(OSError):
                while (data := server.recv(65536)) and not lost.is_set():
                    client.sendall(data)
            _end(client, server)

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            _end(*sockets)
            for each in sockets:
                each.close()


def _request(lines: BinaryIO) -> bytes:
    """A whole request; nothing at the end of the connection."""
    head = b""
    while line := lines.readline():
        head += line
        if line == b"\r\n":
            length = re.search(rb"(?i)^content-length: *(\d+)", head, re.MULTILINE)
            return head + lines.read(int(length[1]) if length else 0)
    return b""


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
