"""Filters on this machine that return mail to Postfix, as its SMTPD_PROXY_README and FILTER_README describe them."""

from __future__ import annotations

import smtplib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class _Filter(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, handler: type[socketserver.BaseRequestHandler], back: int, names_queue_id: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.back = ("127.0.0.1", back)
        self.names_queue_id = names_queue_id


class _Proxy(socketserver.BaseRequestHandler):
    """A before-queue filter that changes nothing: it passes on each byte, and so the second smtpd's queue id."""

    server: _Filter

    def handle(self) -> None:
        with socket.create_connection(self.server.back) as back:
            answers = threading.Thread(target=_copy, args=(back, self.request))
            answers.start()
            _copy(self.request, back)
            answers.join()


def _copy(source: socket.socket, to: socket.socket) -> None:
    while data := source.recv(1 << 16):
        to.sendall(data)
    with suppress(OSError):  # the other side has closed
        to.shutdown(socket.SHUT_WR)


class _Content(socketserver.StreamRequestHandler):
    """A content filter such as amavis: an SMTP server that sends each message back, and answers after that."""

    server: _Filter

    def handle(self) -> None:
        sender, recipients = "", list[str]()
        self._say("220 filter")
        while line := self.rfile.readline():
            verb, _, rest = line.decode("ascii").strip().partition(":")
            if verb == "MAIL FROM":
                sender, recipients = rest.partition("<")[2].partition(">")[0], []
            elif verb == "RCPT TO":
                recipients.append(rest.partition("<")[2].partition(">")[0])
            elif verb == "DATA":
                self._say("354 go")
                self._say(self._sent_back(sender, recipients))
                continue
            self._say("221 bye" if verb == "QUIT" else "250 filter")

    def _sent_back(self, sender: str, recipients: list[str]) -> str:
        text = b"".join(iter(self.rfile.readline, b".\r\n"))
        with smtplib.SMTP(*self.server.back) as back:
            back.ehlo()
            back.mail(sender)
            for name in recipients:
                back.rcpt(name)
            code, reply = back.data(text)
        return f"250 2.0.0 from MTA: {code} {reply.decode('ascii')}" if self.server.names_queue_id else "250 Ok"

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode("ascii"))


@contextmanager
def filters(back: int) -> Iterator[tuple[int, int, int]]:
    """Run a before-queue filter, and content filters that do and do not name queue ids; yield their ports."""
    with _Filter(_Proxy, back) as proxy, _Filter(_Content, back) as telling, _Filter(_Content, back, False) as silent:
        for one in (proxy, telling, silent):
            threading.Thread(target=one.serve_forever, daemon=True).start()
        yield proxy.server_address[1], telling.server_address[1], silent.server_address[1]
        for one in (proxy, telling, silent):
            one.shutdown()
