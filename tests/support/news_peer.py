"""A news server with one newsgroup, written from RFC 3977 and RFC 4643, which knows nothing of our code."""

import re
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loadsim.model.ports import Endpoint

GROUP = "loadsim.board"

Lines = list[bytes] | bytes | None
"""A first line with those that follow; bytes as they are; None for the end of the connection, b"" for silence."""


@dataclass
class NewsPeer:
    """The server. With a `password`, users must log on; `answers` replace those to a command, such as "400 over".

    An old server knows no CAPABILITIES (RFC 977, RFC 2980); a `transit` server becomes one for readers at MODE READER.
    The articles of `gone` numbers have expired.
    """

    password: str | None = None
    posting: bool = True
    old: bool = False
    transit: bool = False
    answers: dict[str, Lines] = field(default_factory=dict)
    articles: list[bytes] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)  # each article as it was on the wire
    endpoint: Endpoint = field(init=False)

    @contextmanager
    def running(self) -> Iterator["NewsPeer"]:
        peer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                Dialogue(peer, self.rfile.readline, self.wfile.write).run()

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address, daemon_threads = True, True

        with Server(("127.0.0.1", 0), Handler) as server:
            self.endpoint = Endpoint("127.0.0.1", server.server_address[1])
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def numbers(self) -> list[int]:
        return [number for number in range(1, len(self.articles) + 1) if number not in self.gone]

    def add(self, article: bytes) -> bool:
        """Add an article; False if there is one with its Message-ID."""
        own = field_of(article, "Message-ID")
        if any(field_of(each, "Message-ID") == own for each in self.articles):
            return False
        added = b"Path: peer.test!not-for-mail\r\n"
        if not field_of(article, "Date"):
            added += b"Date: Mon, 30 Nov 2026 12:00:00 +0000\r\n"
        self.articles.append(added + article)
        return True


def field_of(article: bytes, name: str) -> bytes:
    head = article.partition(b"\r\n\r\n")[0]
    found = re.search(rb"^" + name.encode() + rb": *([^\r\n]*)", head, re.M | re.I)
    return found[1] if found else b""


class Dialogue:
    """One connection."""

    def __init__(self, peer: NewsPeer, readline: Callable[[], bytes], write: Callable[[bytes], Any]) -> None:
        self.peer, self._readline, self._write = peer, readline, write
        self.user: str | None = None
        self.on = peer.password is None
        self.reading = not peer.transit
        self.opened = False

    def run(self) -> None:
        name, argument = "CONNECT", ""
        while True:
            self.peer.asked.append(f"{name} {argument}".strip())
            answer = self.peer.answers.get(name, self._answer(name, argument))
            if answer is None:
                return
            self._write(answer if isinstance(answer, bytes) else lines_of(answer))
            if name == "QUIT" or (isinstance(answer, bytes) and answer.startswith(b"400")):
                return
            line = self._readline().decode().rstrip("\r\n")
            if not line:
                return
            name, _, argument = line.partition(" ")
            name = name.upper()
            if name in ("MODE", "AUTHINFO"):
                word, _, argument = argument.partition(" ")
                name = f"{name} {word.upper()}"

    def _answer(self, name: str, argument: str) -> Lines:
        method = getattr(self, "_" + name.replace(" ", "_").lower(), None)
        if method is None or (name == "CAPABILITIES" and self.peer.old) or (name == "OVER" and self.peer.old):
            return [b"500 Unknown command"]
        if not self.on and name in ("GROUP", "OVER", "XOVER", "ARTICLE", "HEAD", "BODY", "POST"):
            return [b"480 Log on first"]
        return method(argument)  # type: ignore[no-any-return]

    def _connect(self, _: str) -> Lines:
        return [b"200 ready" if self.peer.posting else b"201 ready, no posting"]

    def _capabilities(self, _: str) -> Lines:
        labels = [b"VERSION 2", *([b"READER", b"OVER", b"HDR"] if self.reading else [b"MODE-READER"])]
        labels += [b"POST"] if self.peer.posting and self.reading else []
        labels += [] if self.on or not self.reading else [b"AUTHINFO USER"]
        return [b"101 Capabilities", *labels]

    def _mode_reader(self, _: str) -> Lines:
        self.reading = True
        return self._connect("")

    def _authinfo_user(self, name: str) -> Lines:
        self.user = name
        return [b"381 Password"]

    def _authinfo_pass(self, password: str) -> Lines:
        self.on = self.user is not None and password == self.peer.password
        return [b"281 Welcome" if self.on else b"481 Wrong password " + password.encode()]

    def _group(self, name: str) -> Lines:
        numbers = self.peer.numbers()
        if name != GROUP:
            return [b"411 No such group"]
        self.opened = True
        low, high = (numbers[0], numbers[-1]) if numbers else (1, 0)
        return [b"211 %d %d %d %s" % (len(numbers), low, high, name.encode())]

    def _over(self, asked: str) -> Lines:
        first, _, last = asked.partition("-")
        found = [n for n in self.peer.numbers() if int(first) <= n <= int(last or 1 << 30)]
        if not self.opened:
            return [b"412 No group"]
        if not found:
            return [b"423 None in this range"]
        return [b"224 Overview", *map(self._overview, found)]

    _xover = _over

    def _overview(self, number: int) -> bytes:
        article = self.peer.articles[number - 1]
        names = ("Subject", "From", "Date", "Message-ID", "References")
        fields = [field_of(article, name) for name in names]
        return b"\t".join([b"%d" % number, *fields, b"%d" % len(article), b"%d" % article.count(b"\n")])

    def _one(self, code: bytes, argument: str, part: Callable[[bytes], bytes]) -> Lines:
        if int(argument) not in self.peer.numbers() or not self.opened:
            return [b"423 No such article"]
        article = self.peer.articles[int(argument) - 1]
        status = b"%s %s %s" % (code, argument.encode(), field_of(article, "Message-ID"))
        return [status, *part(article).split(b"\r\n")]

    def _article(self, argument: str) -> Lines:
        return self._one(b"220", argument, lambda article: article.removesuffix(b"\r\n"))

    def _head(self, argument: str) -> Lines:
        return self._one(b"221", argument, lambda article: article.partition(b"\r\n\r\n")[0])

    def _body(self, argument: str) -> Lines:
        return self._one(b"222", argument, lambda article: article.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n"))

    def _post(self, _: str) -> Lines:
        if not self.peer.posting:
            return [b"440 Posting not permitted"]
        self._write(b"340 Send it\r\n")
        lines = list(iter(self._readline, b".\r\n"))
        self.peer.sent.append(b"".join(lines))
        article = b"".join(line.removeprefix(b".") for line in lines)
        if field_of(article, "Newsgroups") != GROUP.encode():
            return [b"441 No such group"]
        return [b"240 Received" if self.peer.add(article) else b"441 435 Duplicate"]

    def _quit(self, _: str) -> Lines:
        return [b"205 Bye"]


def lines_of(lines: list[bytes]) -> bytes:
    """Lines as on the wire: alone, or with those that follow, and a dot at the end."""
    stuffed = [lines[0], *(b"." + line if line.startswith(b".") else line for line in lines[1:])]
    multiple = len(lines) > 1 or lines[0][:3] in (b"101", b"220", b"221", b"222", b"224")
    return b"\r\n".join([*stuffed, *([b"."] if multiple else []), b""])
