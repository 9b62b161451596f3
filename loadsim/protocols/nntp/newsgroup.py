"""The public folder as a newsgroup: one connection, from its first use until log-off."""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from loadsim.errors import MailMissing, ProtocolError, ServerRefused, TaskFailed
from loadsim.model.message_tag import run_named
from loadsim.model.ports import PUBLIC, Account, Endpoint, Header, MessageRef, Observer, Part, Structure
from loadsim.model.provisioning_ports import NewMessage, Stored
from loadsim.protocols.imap.requests import LONGEST_FIELDS_BYTES, fields_of, header_in, tag_among
from loadsim.protocols.imap.whole_message import MessageStore, WholeMessage, message_of
from loadsim.protocols.line_based.connection import LARGEST_LIST_BYTES, Capabilities, LineConnection
from loadsim.protocols.nntp.log_on import DIALECT, begin
from loadsim.protocols.nntp.overview import ArticleRef, Marks, articles_in, marks_in
from loadsim.protocols.tls import TlsContexts

LARGEST_ARTICLE_BYTES = 64 << 20
"""The largest article that is accepted, with its stuffed dots."""

PAGE_ARTICLES = 1000

NO_ARTICLES = ("420", "423", "430")
"""Codes of answers if there is no such article, or none in the range (RFC 3977 section 3.2, RFC 2980 section 2.8)."""

_DATE = re.compile(rb"^Date:[^\r\n]*\r\n", re.M)


@dataclass(slots=True, eq=False, repr=False)
class Newsgroup:
    """Implements `ports.PublicFolder` and `provisioning_ports.MessageSource`.

    A connection that has ended is made again by the next call.
    """

    endpoint: Endpoint
    name: str
    account: Account
    observer: Observer
    limit_s: float
    context: ssl.SSLContext | None
    is_apart: bool = field(default=True, init=False)
    _connection: LineConnection | None = field(default=None, init=False)
    _offered: Capabilities = field(default_factory=dict, init=False)
    _is_open: bool = field(default=False, init=False)
    _store: MessageStore = field(default_factory=lambda: MessageStore(limit_bytes=0), init=False)  # the last article

    # --- ports.PublicFolder -------------------------------------------------------------------------------------------

    async def newest(self, count: int) -> Sequence[Header]:
        marks = await self.poll()
        return await self._overview(max(marks.low, marks.high - count + 1), marks.high) if marks.articles else ()

    async def with_tag(self, header: Header) -> Header:
        raw = (await self._article(header.ref)).raw
        found = header_in(raw[: raw.find(b"\r\n\r\n") + 2], header.ref, self.account.domain, len(raw))
        if found.message_id != header.message_id:
            raise MailMissing("ARTICLE of another article", f"expected {header.message_id}, found {found.message_id}")
        return found

    async def structure(self, ref: MessageRef) -> Structure:
        return (await self._article(ref)).structure

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        data = (await self._article(ref)).part(part.name)
        if data is None:
            raise MailMissing("ARTICLE without data", f"no part {part.name} in the article")
        return data

    async def post(self, message: bytes) -> None:
        """POST (RFC 3977 section 6.3.1) a message with the newsgroup's name, which makes it an article."""
        article = b"Newsgroups: %b\r\n%b" % (self.name.encode(), message)
        lines = article.removesuffix(b"\r\n").replace(b"\r\n.", b"\r\n..") + b"\r\n."
        await (await self._session()).converse("POST", b"", _once(lines))

    async def leave(self) -> None:
        """Forget the article; the Inbox is still open."""
        self._store.clear()

    async def close(self) -> None:
        """QUIT, if connected. A failure is in the command's record."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.failure is None:
            with suppress(TaskFailed):
                await connection.ask("QUIT")
            connection.close()

    # --- its keeper's (provisioning_ports.MessageSource) --------------------------------------------------------------

    @property
    def takes_posts(self) -> bool:
        """False if the server has said that this user may not post (RFC 3977 section 6.3.1)."""
        return not self._offered or "POST" in self._offered

    async def log_on(self) -> None:
        await self._session()

    async def poll(self) -> Marks:
        """GROUP: open the newsgroup, and return its numbers at this moment."""
        connection = await self._session()
        marks = marks_in(await connection.ask_line("GROUP", self.name.encode()))
        self._is_open = True
        return marks

    async def folders(self) -> Sequence[str]:
        return (PUBLIC,)

    def keeps(self, flag: str) -> bool:
        """Return False: NNTP has no flags."""
        return False

    async def listing(self, folders: Iterable[str]) -> Mapping[str, Sequence[Stored]]:
        return {folder: await self._all() for folder in folders}

    async def texts(self, refs: Sequence[MessageRef]) -> Mapping[MessageRef, bytes | None]:
        bodies = {ref: await self._ask("BODY", ref, LARGEST_ARTICLE_BYTES) for ref in refs}
        return {ref: body for ref, body in bodies.items() if body is not None}

    async def post_all(self, messages: Iterable[NewMessage]) -> None:
        """Post messages of the start state; servers reject articles as old as these, so their date is that of now."""
        for message in messages:
            await self.post(_DATE.sub(b"", message.message, count=1))

    # --- articles -----------------------------------------------------------------------------------------------------

    async def _session(self) -> LineConnection:
        if self._connection is None or self._connection.failure is not None:
            self._connection = connection = LineConnection(DIALECT, self.account, self.observer, self.limit_s)
            self._is_open = False
            try:
                self._offered = await begin(connection, self.endpoint, self.context)
            except BaseException:
                connection.close()
                raise
        return self._connection

    async def _overview(self, first: int, last: int) -> Sequence[Header]:
        command = "OVER" if "OVER" in self._offered else "XOVER"
        lines = await self._ask(command, b"%d-%d" % (first, last), LARGEST_LIST_BYTES)
        return () if lines is None else articles_in(lines, first, last)

    async def _all(self) -> list[Stored]:
        """Return all articles. Only those with one of loadsim's Message-IDs are looked at for a tag."""
        marks = await self.poll()
        found: list[Stored] = []
        for first in range(marks.low, marks.high + 1, PAGE_ARTICLES):
            for header in await self._overview(first, min(first + PAGE_ARTICLES - 1, marks.high)):
                own = run_named(header.message_id, self.account.domain) is not None
                head = await self._ask("HEAD", header.ref, 2 * LONGEST_FIELDS_BYTES) if own else b""
                if head is not None:
                    tag = tag_among(fields_of(head))
                    found.append(Stored(header.ref, frozenset(), tag, header.sender, header.message_id))
        return found

    async def _article(self, ref: MessageRef) -> WholeMessage:
        """ARTICLE (RFC 3977 section 6.2.1), unless it is the article fetched last."""
        article = self._store.get(ref)
        if article is None:
            raw = await self._ask("ARTICLE", ref, LARGEST_ARTICLE_BYTES)
            if raw is None:
                raise MailMissing("article is gone", str(ref))
            article = message_of(raw)
            self._store.add(ref, article)
        return article

    async def _ask(self, name: str, what: MessageRef | bytes, most_bytes: int) -> bytes | None:
        """Ask for lines about an article or a range, in the open newsgroup; None if the server has no such article."""
        connection = await self._session()
        if not self._is_open:  # a new session
            await self.poll()
        argument = b"%d" % what.number if isinstance(what, ArticleRef) else what
        assert isinstance(argument, bytes)
        try:
            return await connection.ask(name, argument, most_bytes)
        except ServerRefused as refusal:
            if refusal.kind.startswith(NO_ARTICLES):
                return None
            raise


@dataclass(slots=True, eq=False, repr=False)
class Newsgroups:
    """Opens users' newsgroups. They share TLS contexts. Raises `ConfigError` if a TLS file cannot be read."""

    endpoint: Endpoint
    name: str
    limit_s: float
    _contexts: TlsContexts = field(init=False)

    def __post_init__(self) -> None:
        self._contexts = TlsContexts(self.endpoint)

    def of(self, account: Account, observer: Observer) -> Newsgroup:
        return Newsgroup(self.endpoint, self.name, account, observer, self.limit_s, self._contexts.of(account))


def _once(article: bytes) -> Callable[[str], Awaitable[bytes]]:
    """Return a function that returns the article when it is first asked for."""
    left = [article]

    async def respond(_: str) -> bytes:
        if not left:
            raise ProtocolError("POST", "asked for the article again")
        return left.pop()

    return respond
