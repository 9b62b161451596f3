"""A user's mailbox over POP3 (`ports.Mailbox`): an Inbox alone, with a session for each view.

A session is a snapshot: it has the messages that were there at log-on (RFC 1939 section 4), so new mail is seen by the
next one. What is marked by DELE is removed when QUIT is answered; a session that is lost before removes nothing
(section 6).
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import MailMissing, ServerRefused
from loadsim.model.ports import INBOX, Account, Endpoint, Flag, Header, MessageRef, Observer, Part, SearchKey, Structure
from loadsim.protocols.error_mapping import again
from loadsim.protocols.imap.requests import LONGEST_FIELDS_BYTES, header_in
from loadsim.protocols.imap.whole_message import MessageStore, WholeMessage, message_of
from loadsim.protocols.line_based.connection import Capabilities, LineConnection
from loadsim.protocols.pop3.log_on import DIALECT, Listed, begin, maildrop

LARGEST_MESSAGE_BYTES = 64 << 20
"""The largest message that is accepted, with its stuffed dots."""


@dataclass(slots=True, eq=False, repr=False)
class Pop3Mailbox:
    """Implements `ports.Mailbox`. A call logs on if there is no session; `log_off` ends a view.

    References are unique-ids. `messages` is the number of messages at the last log-on.
    """

    endpoint: Endpoint
    context: ssl.SSLContext | None
    account: Account
    observer: Observer
    limit_s: float
    messages: int = field(default=0, init=False)
    _connection: LineConnection | None = field(default=None, init=False)
    _offered: Capabilities | None = field(default=None, init=False)  # None before the first log-on
    _maildrop: dict[str, Listed] = field(default_factory=dict, init=False)  # of the last session
    _listed: set[str] = field(default_factory=set, init=False)  # what the user has seen or, if refused, tried to see
    _announced: set[str] = field(default_factory=set, init=False)
    _news: list[Header] = field(default_factory=list, init=False)  # fetched, but not returned yet
    _store: MessageStore = field(default_factory=lambda: MessageStore(limit_bytes=0), init=False)  # the last message

    async def log_on(self) -> None:
        self.abandon()
        self._connection = connection = LineConnection(DIALECT, self.account, self.observer, self.limit_s)
        try:
            self._offered = await begin(connection, self.endpoint, self.context, self._offered)
            self._maildrop = await maildrop(connection)
        except BaseException as error:
            connection.close()
            if isinstance(error, ServerRefused):
                self._connection = None  # a refusal ends one call only
            raise
        connection.at_rest = True
        self.messages = len(self._maildrop)
        self._listed &= self._maildrop.keys()
        self._announced &= self._maildrop.keys()

    async def _session(self) -> LineConnection:
        """Return the connection, after a log-on if there is no session. Raises the failure of a broken one."""
        if self._connection is None:
            await self.log_on()
        assert self._connection is not None
        if self._connection.failure is not None:
            raise again(self._connection.failure)
        return self._connection

    async def log_off(self) -> None:
        """QUIT (RFC 1939 section 6), if there is a session."""
        connection, self._connection = self._connection, None
        if connection is None or connection.failure is not None:
            return
        try:
            await connection.ask("QUIT")
        finally:
            connection.close()

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def folders(self) -> Sequence[str]:
        await self._session()
        return (INBOX,)

    async def open(self, folder: str) -> None:
        """Do nothing: a session has the Inbox only."""

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        await self._session()
        if folder != INBOX:
            raise _not_in_pop3(f"the folder {folder}")
        unique_ids = list(self._maildrop)
        found = [await self._header(each) for each in (unique_ids if newest is None else unique_ids[-newest:])]
        self._listed.update(unique_ids)
        return found

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """Return the headers not returned yet; `reopen` begins a new session, and there is nothing to return again."""
        if reopen:
            await self.log_off()
        await self._session()
        for unique_id in [each for each in self._maildrop if each not in self._listed]:
            try:
                header = await self._header(unique_id)
            except ServerRefused:
                self._listed.add(unique_id)  # it must not hold up the others
                raise
            self._listed.add(unique_id)
            self._news.append(header)
        news, self._news = self._news, []
        return news

    async def watch(self) -> None:
        """Announce what is new in this session."""
        await self._session()
        if new := self._maildrop.keys() - self._listed - self._announced:
            self._announced |= new
            self.observer.arrived(len(new))

    async def structure(self, ref: MessageRef) -> Structure:
        return (await self._message(ref)).structure

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        data = (await self._message(ref)).part(part.name)
        if data is None:
            raise MailMissing("RETR without data", f"no part {part.name} in the message")
        return data

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """DELE each message, then QUIT, whose answer says that they are removed. A refused one leaves the others."""
        refused: ServerRefused | None = None
        connection = await self._session()
        for ref in refs:
            try:
                await connection.ask("DELE", b"%d" % self._place(ref).number)
            except ServerRefused as refusal:
                refused = refused or refusal
            self._store.drop(ref)
        await self.log_off()
        if refused is not None:
            raise ServerRefused(refused.kind, refused.line)

    def keeps(self, flag: str) -> bool:
        """Return False: POP3 has no flags."""
        return False

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """Do nothing: a program keeps flags itself."""

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        raise _not_in_pop3("a search")

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        raise _not_in_pop3(f"the folder {folder}")

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        raise _not_in_pop3(f"the folder {folder}")

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        raise _not_in_pop3("storing a message")

    # --- messages -----------------------------------------------------------------------------------------------------

    def _place(self, ref: MessageRef) -> Listed:
        place = self._maildrop.get(str(ref))
        if place is None:
            raise MailMissing("message is gone", f"UIDL does not list {ref}")
        return place

    async def _header(self, unique_id: str) -> Header:
        """TOP of no lines (RFC 1939 section 7), or RETR if the server has not announced TOP."""
        number, size_bytes = self._place(unique_id)
        assert self._offered is not None
        if "TOP" in self._offered:
            connection = await self._session()
            raw = await connection.ask("TOP", b"%d 0" % number, 2 * LONGEST_FIELDS_BYTES)
        else:
            raw = (await self._message(unique_id)).raw
        head = raw[: raw.find(b"\r\n\r\n") + 2] if b"\r\n\r\n" in raw else raw
        return header_in(head, unique_id, self.account.domain, size_bytes)

    async def _message(self, ref: MessageRef) -> WholeMessage:
        """RETR, unless it is the message fetched last. Raises `MailMissing` for fewer bytes than LIST states."""
        stored = self._store.get(ref)
        if stored is not None:
            return stored
        connection = await self._session()
        place = self._place(ref)
        raw = await connection.ask("RETR", b"%d" % place.number, LARGEST_MESSAGE_BYTES)
        if len(raw) + raw.count(b"\n") - raw.count(b"\r\n") < place.size_bytes:
            raise MailMissing("RETR of a truncated message", f"{len(raw)} of {place.size_bytes} bytes")
        message = message_of(raw)
        self._store.add(ref, message)
        return message


def _not_in_pop3(what: str) -> ServerRefused:
    return ServerRefused("not in POP3", what)
