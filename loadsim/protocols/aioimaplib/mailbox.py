"""A mailbox over aioimaplib, with requests small enough for it."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from aioimaplib import aioimaplib as library

from loadsim.errors import ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, Account, Endpoint, Flag, Header, MessageRef, Observer, Part, Structure
from loadsim.protocols.aioimaplib.connection import Connection
from loadsim.protocols.aioimaplib.reading import header_of, parsed, structure_of
from loadsim.protocols.imap.commands import mailbox as quoted_name
from loadsim.protocols.imap.commands import number_sets
from loadsim.protocols.imap.grammar import numbers_of, parse
from loadsim.protocols.imap.responses import Fetched, ListEntry, Search, Tagged

MESSAGES_PER_COMMAND = 25
"""The library recurses once per line of a reply, within the interpreter's limit of 1,000, and its time is quadratic
in the lines of a FETCH; a message's header is three lines."""

PIECE_BYTES = 128 * 1024
"""The most of a part that one FETCH asks for: the library holds, joins and copies a reply as a whole."""

IDLE_RENEWAL_S = 29 * 60.0
"""RFC 2177 section 3: end IDLE and begin again before the server's inactivity time-out of 30 minutes."""

HEADER_FIELDS = "BODY.PEEK[HEADER.FIELDS (FROM TO SUBJECT MESSAGE-ID X-LOADSIM)]"
"""Instead of ENVELOPE, whose quoted strings the library alters: what a literal holds it leaves alone."""

_SIZE_CHANGE = re.compile(rb"\* (\d+) (EXISTS|EXPUNGE)\b", re.IGNORECASE)
_DELETED = "\\Deleted"


class AioimaplibMailbox:
    """One user's mailbox; implements `ports.Mailbox`. A reference is (folder, UID)."""

    def __init__(
        self,
        endpoint: Endpoint,
        account: Account,
        observer: Observer,
        limit_s: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._account = account
        self._observer = observer
        self._limit_s = limit_s
        self._context = context
        self._session: Connection | None = None
        self._folder: str | None = None  # the open one
        self._exists = 0  # how many messages are in it
        self._inbox_exists: int | None = None  # how many were in the Inbox when it was last open
        self._newest_uid = 0  # in the Inbox, of those that were reported
        self._unreported: int | None = None  # how many came to the open Inbox since; None: not known
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def log_on(self) -> None:
        """Connect (greeting and CAPABILITY are part of it), LOGIN, CAPABILITY (RFC 9051 section 6.2.3)."""
        self.abandon()
        session = self._session = Connection(
            self._endpoint, self._context, self._limit_s, self._observer, self._clean, self._heard
        )
        client, account = session.client, self._account
        await session.run("CONNECT", client.wait_hello_from_server())
        try:
            await session.run("LOGIN", client.login(library.quoted(account.login), account.password))
            await session.run("CAPABILITY", session.protocol.capability())
        except ServerRefused:
            self.abandon()
            raise

    async def folders(self) -> Sequence[str]:
        """LIST "" "*" (RFC 9051 section 6.3.9), without what cannot be opened."""
        session = await self._ready()
        response = await session.run("LIST", session.client.list('""', '"*"'))
        return [
            entry.name
            for entry in parsed(response.lines[:-1], b"* LIST ")
            if isinstance(entry, ListEntry) and not entry.attributes & {"\\noselect", "\\nonexistent"}
        ]

    async def open(self, folder: str) -> None:
        """SELECT (RFC 9051 section 6.3.2), unless it is open. An Inbox that has grown meanwhile is announced."""
        session = await self._ready()
        if self._folder == folder:
            return
        self._folder, self._exists = None, 0
        await session.run("SELECT", session.client.select(_name(folder)))
        self._folder = folder
        if folder == INBOX:
            before, self._inbox_exists = self._inbox_exists, self._exists
            self._unreported = None
            if before is not None and self._exists > before:
                self._observer.arrived(self._exists - before)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """FETCH the newest by their numbers (RFC 9051 section 6.4.5), a few at a time."""
        await self.open(folder)
        if folder == INBOX:
            self._unreported = 0
        last = self._exists
        first = 1 if newest is None else max(1, last - newest + 1)
        found: list[Header] = []
        for begin in range(first, last + 1, MESSAGES_PER_COMMAND):
            end = min(last, begin + MESSAGES_PER_COMMAND - 1)
            found += await self._headers(folder, f"{begin}:{end}", by_uid=False)
        if folder == INBOX:
            self._reported(found)
        return found

    async def arrived(self) -> Sequence[Header]:
        """UID FETCH of what is newer than all that was reported; by way of UID SEARCH where that could be many."""
        await self.open(INBOX)
        newer = f"{self._newest_uid + 1}:*"
        if self._unreported is None or self._unreported > MESSAGES_PER_COMMAND:
            sets = [*_sets(await self._search(f"UID {newer}"))]
        else:
            sets = [newer]
        self._unreported = 0
        found: list[Header] = []
        for each in sets:
            found += await self._headers(INBOX, each, by_uid=True)
        # "*" is the last message even when it is older (RFC 9051 section 9, seq-range)
        new = [header for header in found if _uid(header.ref) > self._newest_uid]
        self._reported(new)
        return new

    async def watch(self) -> None:
        """IDLE in the Inbox, renewed as long as nothing else is asked for."""
        if self._session is not None and self._session.is_idling and self._renewing is None:
            return
        await self.open(INBOX)
        await (await self._ready()).idle()
        self._renew_later()

    async def structure(self, ref: MessageRef) -> Structure:
        """UID FETCH BODYSTRUCTURE."""
        fetched = await self._fetch_one(ref, "(BODYSTRUCTURE)")
        if fetched.structure is None:
            raise ServerRefused("no BODYSTRUCTURE", "the server sent another item")
        return structure_of(fetched.structure)

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """UID FETCH BODY.PEEK[part], in pieces where it is large (RFC 9051 section 6.4.5, partial)."""
        whole = bytearray()
        while True:
            partial = f"<{len(whole)}.{PIECE_BYTES}>" if part.size_bytes > PIECE_BYTES else ""
            fetched = await self._fetch_one(ref, f"(BODY.PEEK[{part.name}]{partial})")
            piece = next(iter(fetched.sections.values()), b"") or b""
            whole += piece
            if not partial or len(piece) < PIECE_BYTES:
                return bytes(whole)

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """UID STORE +FLAGS.SILENT or -FLAGS.SILENT (RFC 9051 section 6.4.6)."""
        for each in await self._open_sets(refs):
            await self._store(each, flag.value, on)

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """UID MOVE (RFC 6851); without it COPY and expunge."""
        sets = await self._open_sets(refs)
        session = await self._ready()
        if "MOVE" not in session.capabilities:
            await self.copy(refs, folder)
            await self.expunge(refs)
            return
        for each in sets:
            await session.run("UID MOVE", session.client.uid("move", each, _name(folder)))

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """UID COPY (RFC 9051 section 6.4.7)."""
        sets = await self._open_sets(refs)
        session = await self._ready()
        for each in sets:
            await session.run("UID COPY", session.client.uid("copy", each, _name(folder)))

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> MessageRef | None:
        """APPEND (RFC 9051 section 6.3.12); the reference comes from APPENDUID (RFC 4315)."""
        session = await self._ready()
        marks = " ".join(flag.value for flag in flags) if flags else None
        command = session.client.append(message, _name(folder), cast(str, marks))
        response = await session.run("APPEND", command, more_bytes=len(message) + 2)
        ending = parse(b"A OK " + bytes(response.lines[-1]))
        if not isinstance(ending, Tagged) or ending.code is None or ending.code.name != "APPENDUID":
            return None
        return folder, numbers_of(ending.code.arguments.split()[-1])[0]

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """STORE \\Deleted and UID EXPUNGE (RFC 4315). Without UIDPLUS what else is marked loses its mark meanwhile."""
        sets = await self._open_sets(refs)
        session = await self._ready()
        exact = "UIDPLUS" in session.capabilities
        ours = {_uid(ref) for ref in refs}
        others = [] if exact else [*_sets(set(await self._search("DELETED")) - ours)]
        for each in others:
            await self._store(each, _DELETED, on=False)
        for each in sets:
            await self._store(each, _DELETED, on=True)
            if exact:
                await session.run("UID EXPUNGE", session.client.uid("expunge", each))
            else:
                await session.run("EXPUNGE", session.client.expunge())
        for each in others:
            await self._store(each, _DELETED, on=True)

    async def log_off(self) -> None:
        """LOGOUT (RFC 9051 section 6.1.3) and close."""
        if self._session is None:
            return
        session = await self._ready()
        await session.run("LOGOUT", session.client.logout())
        self.abandon()

    def abandon(self) -> None:
        """Close at once."""
        self._rest_no_longer()
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if self._session is not None:
            self._session.close()
            self._session = None
        self._folder = None

    async def _ready(self) -> Connection:
        """The session, with IDLE ended if it was under way."""
        self._rest_no_longer()
        if self._renewing is not None:
            await asyncio.wait({self._renewing})
            self._renewing = None
            self._rest_no_longer()
        if self._session is None:
            raise ServerLost("no IMAP session")
        await self._session.done()
        return self._session

    def _renew_later(self) -> None:
        self._renewal = asyncio.get_running_loop().call_later(IDLE_RENEWAL_S, self._renew)

    def _rest_no_longer(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None

    def _renew(self) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._idle_again())

    async def _idle_again(self) -> None:
        """End IDLE and begin anew; nobody waits for it, so a failure goes to the observer."""
        session = self._session
        if session is None:
            return
        try:
            await session.done()
            await session.idle()
        except TaskFailed as failure:
            self._observer.lost(failure)
        else:
            self._renew_later()

    def _heard(self, line: bytes) -> None:
        """Keeps count of the open folder, and announces what comes to the Inbox."""
        match = _SIZE_CHANGE.match(line)
        if match is None:
            return
        before = self._exists
        self._exists = before - 1 if match[2].upper() == b"EXPUNGE" else int(match[1])
        if self._folder != INBOX:
            return
        self._inbox_exists = self._exists
        if self._exists > before:
            if self._unreported is not None:
                self._unreported += self._exists - before
            self._observer.arrived(self._exists - before)

    def _reported(self, headers: Iterable[Header]) -> None:
        self._newest_uid = max((_uid(header.ref) for header in headers), default=self._newest_uid)

    async def _headers(self, folder: str, numbers: str, by_uid: bool) -> list[Header]:
        items = f"(UID FLAGS RFC822.SIZE {HEADER_FIELDS})"
        fetched = await self._fetch(numbers, items, by_uid)
        return [header_of(folder, each) for each in fetched if each.uid is not None and each.sections]

    async def _fetch_one(self, ref: MessageRef, items: str) -> Fetched:
        folder, uid = cast(tuple[str, int], ref)
        await self.open(folder)
        for fetched in await self._fetch(str(uid), items, by_uid=True):
            if fetched.uid == uid and (fetched.structure is not None or fetched.sections):
                return fetched
        # also for "OK" without data, which some servers answer
        raise ServerRefused("no such message", f"UID {uid} in {folder}")

    async def _fetch(self, numbers: str, items: str, by_uid: bool) -> list[Fetched]:
        session = await self._ready()
        client = session.client
        command = client.uid("fetch", numbers, items) if by_uid else client.fetch(numbers, items)
        response = await session.run("UID FETCH" if by_uid else "FETCH", command)
        return [each for each in parsed(response.lines[:-1], b"* ") if isinstance(each, Fetched)]

    async def _search(self, criteria: str) -> list[int]:
        session = await self._ready()
        response = await session.run("UID SEARCH", session.client.uid_search(criteria, charset=None))
        found = [each for each in parsed(response.lines[:-1], b"* SEARCH ") if isinstance(each, Search)]
        return [number for each in found for number in each.numbers]

    async def _store(self, numbers: str, mark: str, on: bool) -> None:
        session = await self._ready()
        command = session.client.uid("store", numbers, f"{'+' if on else '-'}FLAGS.SILENT", f"({mark})")
        await session.run("UID STORE", command)

    async def _open_sets(self, refs: Sequence[MessageRef]) -> list[str]:
        """Open the folder of these messages; their UIDs as sets for commands."""
        if not refs:
            return []
        folder, _ = cast(tuple[str, int], refs[0])
        await self.open(folder)
        return [*_sets({_uid(ref) for ref in refs})]

    def _clean(self, text: str) -> str:
        """A server's text on one line, without the password should the server have echoed it."""
        password = self._account.password
        line = " ".join(text.split())
        for secret in (library.quoted(password)[1:-1], password):
            if secret:
                line = line.replace(secret, "***")
        return line


def _uid(ref: MessageRef) -> int:
    return cast(tuple[str, int], ref)[1]


def _name(folder: str) -> str:
    """A folder's name as an argument; the library quotes nothing."""
    return quoted_name(folder).decode()


def _sets(uids: Iterable[int]) -> Iterator[str]:
    """Sets for commands whose replies have a line, or a few, for each message."""
    ordered = sorted(uids)
    for begin in range(0, len(ordered), MESSAGES_PER_COMMAND):
        for numbers in number_sets(ordered[begin : begin + MESSAGES_PER_COMMAND]):
            yield numbers.decode()
