"""A mailbox over aioimaplib, with requests within the library's limits."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from aioimaplib import aioimaplib as library

from loadsim.errors import MailMissing, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import (
    INBOX,
    OF_SERVER,
    Account,
    Endpoint,
    Flag,
    FolderSettings,
    Header,
    MessageRef,
    Observer,
    Part,
    Structure,
)
from loadsim.protocols.aioimaplib.connection import Connection
from loadsim.protocols.aioimaplib.reading import HEADER_FIELDS, header_of, parsed
from loadsim.protocols.error_mapping import again, internal
from loadsim.protocols.imap.commands import mailbox as quoted_name
from loadsim.protocols.imap.commands import number_sets
from loadsim.protocols.imap.folder_names import PLAIN, FolderNames, read_names
from loadsim.protocols.imap.grammar import LARGEST_NUMBER, MOST_MESSAGES
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import canonical
from loadsim.protocols.imap.new_mail import NewMailAnnouncements
from loadsim.protocols.imap.reading import structure_of
from loadsim.protocols.imap.responses import Code, Condition, Expunged, Fetched, ListEntry, Response, Search, Tagged
from loadsim.protocols.imap.session import IDLE_AGAIN_S, POLL_S
from loadsim.protocols.imap.sets import NumberSet
from loadsim.protocols.imap.under_way import Untagged
from loadsim.protocols.sasl.masking import without_password
from loadsim.protocols.tls import remember

MESSAGES_PER_COMMAND = 25
"""Keeps an answer far below the limits of `framing`. Another number would change the load on the server."""

PIECE_BYTES = 128 * 1024
"""The most bytes of a part that one FETCH requests: the library holds and copies a reply as a whole."""

LARGEST_PART_BYTES = 64 * 1024 * 1024
"""The largest part of a message that is fetched."""

MOST_EMPTY = 40
"""The listing ends after this many batches in a row without a message."""

_RANGE = re.compile(r"(?:\A|(?<=,))(\d{1,10})(?::(\d{1,10}))?(?=,|\Z)", re.ASCII)
_SIZE_CHANGE = re.compile(rb"\* (\d+) (EXISTS|EXPUNGE)\b", re.IGNORECASE)


@dataclass(slots=True, eq=False, repr=False)
class AioimaplibMailbox:
    """One user's mailbox; implements `ports.Mailbox`. References are those of the driver `imap`."""

    endpoint: Endpoint
    account: Account
    observer: Observer
    limit_s: float  # of each command
    context: ssl.SSLContext | None = None
    folders_on_server: FolderSettings = OF_SERVER
    poll_s: float = POLL_S
    idle_again_s: float = IDLE_AGAIN_S
    _connection: Connection | None = field(default=None, init=False)
    _names: FolderNames = field(default=PLAIN, init=False)  # the server's from the first log-on on
    _folder: str | None = field(default=None, init=False)  # the open one
    _count: int = field(default=0, init=False)  # messages in it
    _validity: dict[str, int] = field(default_factory=dict, init=False)  # kept over sessions
    _arrivals: NewMailAnnouncements = field(default_factory=NewMailAnnouncements, init=False)
    _unlisted: int | None = field(default=None, init=False)
    """At most this many messages of the open Inbox were not listed; None: unknown."""
    _watch: asyncio.TimerHandle | None = field(default=None, init=False)
    _renewing: asyncio.Task[None] | None = field(default=None, init=False)

    # --- the session ---

    async def log_on(self) -> None:
        """Connect (greeting and CAPABILITY are part of it), STARTTLS if stated, authenticate, CAPABILITY."""
        self.abandon()
        connection = self._connection = Connection(
            self.endpoint,
            self.account.number,
            self.context,
            self.limit_s,
            self.observer,
            self._clean,
            self._on_line,
        )
        await connection.run("CONNECT", connection.client.hello())
        try:
            if self.endpoint.tls == "starttls":
                await connection.start_tls()
            await connection.log_on(self.account)
            await connection.run("CAPABILITY", connection.protocol.capability())
            if self._names is PLAIN:
                self._names = await read_names(self._ask, connection.capabilities, self.folders_on_server)
            remember(self.account.number, connection.protocol.transport)
        except TaskFailed:
            self.abandon()
            raise

    async def log_off(self) -> None:
        """LOGOUT (RFC 9051 section 6.1.3) and close.

        The Inbox is opened before if another folder is open: GreenMail 2.1 forgets no open folder of a session that has
        ended, and then cannot delete it. Servers with UNSELECT are not affected.
        """
        connection = await self._ready()
        if self._folder not in (None, INBOX) and "UNSELECT" not in connection.capabilities:
            await self._select(INBOX, announce=False)
        await connection.run("LOGOUT", connection.client.logout())
        self.abandon()

    def abandon(self) -> None:
        """Close at once."""
        self._stop_watching()
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._leave()

    # --- looking ---

    async def folders(self) -> Sequence[str]:
        """LIST (RFC 9051 section 6.3.9); folders that hold only folders are left out."""
        connection = await self._ready()
        answer = await connection.run("LIST", connection.client.list('""', '"*"'))
        found = []
        for entry in self._read(answer.lines[:-1], b"* LIST "):
            if isinstance(entry, ListEntry):
                if "NAMESPACE" not in connection.capabilities:  # which would have stated the separator
                    self._names = replace(self._names, separator=entry.delimiter)
                if not entry.attributes & {"\\noselect", "\\nonexistent"}:
                    found.append(self._names.folder(entry.name))
        return [folder for folder in found if folder is not None]

    async def open(self, folder: str) -> None:
        """SELECT (RFC 9051 section 6.3.2), unless it is open. Announces the mail that arrived meanwhile."""
        await self._select(canonical(folder))

    @property
    def messages(self) -> int:
        """The number of messages in the open folder."""
        return self._count

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        """FETCH of the last sequence numbers (RFC 9051 section 6.4.5), a few at a time."""
        folder = canonical(folder)
        await self._refresh(folder)
        last = self._count
        first = max(1, last - newest + 1) if newest is not None else 1
        self._unlisted = 0  # `_on_line` counts later mail
        begins = range(first, last + 1, MESSAGES_PER_COMMAND)
        sets = (f"{begin}:{min(last, begin + MESSAGES_PER_COMMAND - 1)}" for begin in begins)
        found = await self._headers(folder, sets, by_uid=False)
        if not found and begins and self._count:
            raise ServerRefused("FETCH without data", f"none of {self._count} messages of {folder}")
        return self._listed(folder, found)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        """UID FETCH from the first UID not seen yet (RFC 9051 section 6.4.9); UID SEARCH first if they may be many.

        With `reopen`, it is from the first UID that was not there when the Inbox was first opened.
        """
        if reopen:
            self._leave()
        await self._refresh(INBOX)
        if not self._count:
            return []
        first = self._arrivals.first_uid if reopen else self._arrivals.next_uid
        sets = [f"{first}:*"]
        if reopen or self._unlisted is None or self._unlisted > MESSAGES_PER_COMMAND:
            sets = [*_sets(uid for uid in await self._search(f"UID {first}:*") if uid >= first)]
        self._unlisted = 0
        found = await self._headers(INBOX, sets, by_uid=True)
        # "n:*" is "*:n" when n lies beyond the end, and so always names the last message.
        return self._listed(INBOX, [each for each in found if each[0] >= first])

    async def watch(self) -> None:
        """IDLE (RFC 2177), or NOOP in intervals; a timer renews both until the next call."""
        await self._select(INBOX)
        connection = await self._ready()
        if connection.has_idle:
            await connection.idle()
        self._keep_watching(connection)

    async def structure(self, ref: MessageRef) -> Structure:
        """UID FETCH of BODYSTRUCTURE (RFC 9051 section 6.4.5)."""
        folder, uids = await self._opened_for([ref])
        for fetched in await self._fetch(str(uids[0]), "(BODYSTRUCTURE)", by_uid=True):
            if fetched.uid == uids[0] and fetched.structure is not None:
                return structure_of(fetched.structure)
        raise MailMissing("FETCH without data", f"no BODYSTRUCTURE of UID {uids[0]} in {folder}")

    async def part(self, ref: MessageRef, part: Part) -> bytes:
        """UID FETCH of BODY.PEEK[...], in pieces if it is large (RFC 9051 section 6.4.5, partial)."""
        folder, uids = await self._opened_for([ref])
        whole = bytearray()
        while True:
            partial = f"<{len(whole)}.{PIECE_BYTES}>" if part.size_bytes > PIECE_BYTES else ""
            answer = await self._fetch(str(uids[0]), f"(BODY.PEEK[{part.name}]{partial})", by_uid=True)
            pieces = [each.sections[part.name] for each in answer if each.uid == uids[0] and part.name in each.sections]
            if not pieces or (pieces[0] is None and not whole):
                raise MailMissing("FETCH without data", f"no part {part.name} of UID {uids[0]} in {folder}")
            piece = pieces[0] or b""
            whole += piece
            if len(whole) > LARGEST_PART_BYTES:
                raise self._malformed("a part", f"at most {LARGEST_PART_BYTES} bytes")
            if not partial or len(piece) < PIECE_BYTES:
                return bytes(whole)

    # --- changing ---

    async def flag(self, refs: Sequence[MessageRef], flag: Flag, on: bool = True) -> None:
        """UID STORE (RFC 9051 section 6.4.6)."""
        if refs:
            _, uids = await self._opened_for(refs)
            await self._store(uids, f"{'+' if on else '-'}FLAGS.SILENT", flag.value)

    async def move(self, refs: Sequence[MessageRef], folder: str) -> None:
        """UID MOVE (RFC 6851), or COPY, STORE and EXPUNGE of these messages only (RFC 6851 section 3.3)."""
        if not refs:
            return
        _, uids = await self._opened_for(refs)
        connection = await self._ready()
        if "MOVE" in connection.capabilities:
            await self._transfer("UID MOVE", uids, folder)
            return
        await self._check_expungeable(uids)
        await self._transfer("UID COPY", uids, folder)
        await self._expunge(uids)

    async def copy(self, refs: Sequence[MessageRef], folder: str) -> None:
        """UID COPY (RFC 9051 section 6.4.7)."""
        if refs:
            _, uids = await self._opened_for(refs)
            await self._transfer("UID COPY", uids, folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Ref | None:
        """APPEND (RFC 9051 section 6.3.12); its reference from APPENDUID, "validity uid" (RFC 4315 section 3)."""
        folder = canonical(folder)
        connection = await self._ready()
        marks = " ".join(flag.value for flag in flags) if flags else None
        command = connection.client.append(message, self._argument(folder), cast(str, marks))
        answer = await connection.run("APPEND", command, more_bytes=len(message) + 2)
        if connection.protocol.literal_data is not None:
            raise self._malformed("OK to APPEND", "the message to be asked for")
        code = self._code(answer)
        if code is None or code.name != "APPENDUID":
            return None
        validity, _, uid = code.arguments.partition(" ")
        return Ref(folder, self._number(validity), self._number(uid))

    async def expunge(self, refs: Sequence[MessageRef]) -> None:
        """STORE \\Deleted and UID EXPUNGE (RFC 4315), or EXPUNGE if that deletes nothing else."""
        if refs:
            _, uids = await self._opened_for(refs)
            await self._check_expungeable(uids)
            await self._expunge(uids)

    # --- the open folder ---

    async def _select(self, folder: str, announce: bool = True) -> bool:
        """Open the folder unless it is open. Return True if a SELECT was sent."""
        connection = await self._ready()
        if self._folder == folder:
            return False
        self._leave()
        self._count = 0
        answer = await connection.run("SELECT", connection.client.select(self._argument(folder)))
        found = {
            response.code.name: response.code.arguments
            for response in self._read(answer.lines[:-1])
            if isinstance(response, Condition) and response.code is not None
        }
        validity = self._number(found["UIDVALIDITY"]) if "UIDVALIDITY" in found else 0
        uid_next = self._number(found["UIDNEXT"]) if "UIDNEXT" in found else None
        known, self._validity[folder] = self._validity.get(folder), validity
        self._folder = folder
        if folder == INBOX:
            if known is not None and known != validity:
                self._arrivals.renumbered(uid_next)
            new = self._arrivals.opened(self._count, uid_next)
            # UIDs only grow: there cannot be more messages than numbers.
            self._unlisted = None if uid_next is None else max(0, uid_next - self._arrivals.next_uid)
            if new and announce:
                self._arrivals.announced += new
                self.observer.arrived(new)
        if known is not None and known != validity:
            raise ServerRefused("UIDVALIDITY changed", folder)
        return True

    async def _refresh(self, folder: str) -> None:
        """Open the folder to list it. The list has the new mail, which is not announced.

        A server need not show new mail in an open folder before it announces it. NOOP lets it (RFC 9051 section 6.1.2).
        """
        has_news = folder != INBOX or self._arrivals.take_announced()
        if not await self._select(folder, announce=False) and not (self._count and has_news):
            connection = await self._ready()
            await connection.run("NOOP", connection.client.noop())

    def _leave(self) -> None:
        """Note that no folder is open any more."""
        if self._folder == INBOX:
            self._arrivals.left(self._count)
        self._folder = None

    def _on_line(self, line: bytes) -> None:
        """Count the open folder's messages, and announce new mail in the Inbox."""
        match = _SIZE_CHANGE.match(line)
        if match is None:
            return
        if match[2].upper() == b"EXPUNGE":
            self._count = max(0, self._count - 1)
            return
        if len(match[1]) > len(str(MOST_MESSAGES)) or int(match[1]) > MOST_MESSAGES:
            raise ProtocolError("IMAP EXISTS", f"more than {MOST_MESSAGES} messages")
        new, self._count = int(match[1]) - self._count, int(match[1])
        if new > 0 and self._folder == INBOX:
            if self._unlisted is not None:
                self._unlisted += new
            self._arrivals.grew(new)
            self.observer.arrived(new)

    def _listed(self, folder: str, found: list[tuple[int, Header]]) -> list[Header]:
        if folder == INBOX and found:
            self._arrivals.listed(found[-1][0])
        return [header for _, header in found]

    # --- between calls ---

    async def _ready(self) -> Connection:
        """End the watch, if there is one. Return the connection."""
        self._stop_watching()
        if self._renewing is not None:
            await asyncio.wait({self._renewing})
            self._renewing = None
            self._stop_watching()
        connection = self._connection
        if connection is None:
            raise ServerLost("not logged on")
        connection.check()
        await connection.done()
        return connection

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _keep_watching(self, connection: Connection) -> None:
        wait_s = self.idle_again_s if connection.has_idle else self.poll_s
        self._watch = asyncio.get_running_loop().call_later(wait_s, self._renew_watch, connection)

    def _renew_watch(self, connection: Connection) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._renew(connection))

    async def _renew(self, connection: Connection) -> None:
        """Renew IDLE, or send NOOP. No caller waits, so the observer gets the failure."""
        if connection.lost:
            return  # the observer has got the failure
        try:
            if connection.has_idle:
                await connection.done()
                await connection.idle()
            else:
                await connection.run("NOOP", connection.client.noop())
        except TaskFailed as failure:
            self.observer.lost(failure)
        except Exception as error:  # noqa: BLE001  no code awaits this task
            connection.close()
            self.observer.lost(internal(error))
        else:
            self._keep_watching(connection)

    # --- names ---

    async def _ask(self, name: str, *arguments: str) -> list[Response]:
        """Send NAMESPACE or LIST, with at least two arguments. Return the untagged data."""
        connection = await self._ready()
        client = connection.client
        listing = client.list(arguments[0], " ".join(arguments[1:])) if arguments else client.namespace()
        answer = await connection.run(name, listing)
        return self._read(answer.lines[:-1], f"* {name} ".encode())

    def _argument(self, folder: str) -> str:
        """Return the server's name of a folder as an argument; the library quotes nothing."""
        return quoted_name(self._names.on_server(folder)).decode()

    # --- pieces of commands ---

    async def _opened_for(self, refs: Sequence[MessageRef]) -> tuple[str, list[int]]:
        """Open the folder of these messages. Return its name and their UIDs."""
        known = [ref for ref in refs if isinstance(ref, Ref)]
        folder = known[0].folder
        assert len(known) == len(refs), "references of another driver"
        assert all(ref.folder == folder for ref in known), "messages of several folders"
        await self._select(folder)
        if any(ref.validity != self._validity[folder] for ref in known):
            raise ServerRefused("UIDVALIDITY changed", folder)
        return folder, [ref.uid for ref in known]

    async def _headers(self, folder: str, sets: Iterable[str], by_uid: bool) -> list[tuple[int, Header]]:
        """Fetch the headers of these sets of messages; the result is sorted by UID within each set."""
        headers: list[tuple[int, Header]] = []
        empty = 0
        for each in sets:
            found: dict[int, Header] = {}
            for fetched in await self._fetch(each, f"(UID FLAGS RFC822.SIZE BODY.PEEK[{HEADER_FIELDS}])", by_uid):
                if fetched.uid is not None:
                    ref = Ref(folder, self._validity[folder], fetched.uid)
                    header = header_of(fetched, ref, self.account.domain)
                    if header is not None:
                        found[fetched.uid] = header
            headers += sorted(found.items())
            empty = 0 if found else empty + 1
            if empty == MOST_EMPTY:
                raise ServerRefused("FETCH without data", f"{empty} times in {folder}")
        return headers

    async def _fetch(self, numbers: str, items: str, by_uid: bool) -> list[Fetched]:
        connection = await self._ready()
        client = connection.client
        command = client.uid("fetch", numbers, items) if by_uid else client.fetch(numbers, items)
        answer = await connection.run("UID FETCH" if by_uid else "FETCH", command)
        return [each for each in self._read(answer.lines[:-1]) if isinstance(each, Fetched)]

    async def _search(self, criteria: str) -> list[int]:
        connection = await self._ready()
        answer = await connection.run("UID SEARCH", connection.client.uid_search(criteria, charset=None))
        if len(answer.lines) < 2:  # the result decides whether EXPUNGE may be used
            raise ServerRefused("UID SEARCH without data", criteria)
        found = [each for each in self._read(answer.lines[:-1], b"* SEARCH ") if isinstance(each, Search)]
        return [number for each in found for number in each.numbers]

    async def _store(self, uids: Iterable[int], how: str, mark: str) -> None:
        connection = await self._ready()
        for each in _sets(uids):
            await connection.run("UID STORE", connection.client.uid("store", each, how, f"({mark})"))

    async def _transfer(self, name: str, uids: Sequence[int], folder: str) -> None:
        """UID COPY or UID MOVE. Raises `ServerRefused` unless all were copied: OK is no proof (RFC 9051 6.4.9)."""
        connection = await self._ready()
        codes: list[Code | None] = []
        gone = 0
        for each in _sets(uids):
            command = connection.client.uid(name.removeprefix("UID "), each, self._argument(canonical(folder)))
            answer = await connection.run(name, command)
            codes.append(self._code(answer))
            if name == "UID MOVE":  # COPYUID is in an untagged OK; only for MOVE the library keeps untagged lines
                news = list(self._read(answer.lines[:-1]))
                codes += [response.code for response in news if isinstance(response, Condition)]
                gone += sum(isinstance(response, Expunged) for response in news)
        found = [code.arguments.split(" ", 3) for code in codes if code is not None and code.name == "COPYUID"]
        evident = gone >= len(uids) if name == "UID MOVE" else "UIDPLUS" not in connection.capabilities
        if found:
            copied = NumberSet.of(each for words in found if len(words) == 3 for each in _ranges(words[1]))
            evident = all(uid in copied for uid in uids)
        if not evident:
            raise ServerRefused(f"{name} without effect", f"on some of {len(uids)} messages")

    async def _check_expungeable(self, uids: Sequence[int]) -> None:
        """Raise `ServerRefused` if a plain EXPUNGE, the only one without UIDPLUS, would delete others' messages."""
        connection = await self._ready()
        if "UIDPLUS" in connection.capabilities:
            return
        others = set(await self._search("DELETED")) - set(uids)
        if others:
            raise ServerRefused("EXPUNGE would delete others", f"{len(others)} messages marked by others")

    async def _expunge(self, uids: Sequence[int]) -> None:
        """Mark and expunge a few at a time: the reply has a line for each expunged message."""
        connection = await self._ready()
        for each in _sets(uids):
            await connection.run("UID STORE", connection.client.uid("store", each, "+FLAGS.SILENT", "(\\Deleted)"))
            if "UIDPLUS" in connection.capabilities:
                await connection.run("UID EXPUNGE", connection.client.uid("expunge", each))
            else:
                await connection.run("EXPUNGE", connection.client.expunge())

    def _read(self, lines: Iterable[bytes | bytearray], prefix: bytes = b"* ") -> list[Response]:
        """Parse the library's lines. A malformed response ends the session."""
        data = Untagged()
        try:
            for response in parsed(lines, prefix):
                data.take(response)
            return data.responses
        except ProtocolError as error:
            self._close()
            raise again(error) from None
        except Exception as error:  # noqa: BLE001  an error of the parser is this user's failure
            self._close()
            raise internal(error) from None

    def _number(self, digits: str) -> int:
        """Return the number in a response code, from 0 to 4294967295."""
        if len(digits) <= len(str(LARGEST_NUMBER)) and digits.isascii() and digits.isdigit():
            number = int(digits)
            if number <= LARGEST_NUMBER:
                return number
        raise self._malformed("a response code", f"a number up to {LARGEST_NUMBER}")

    def _malformed(self, what: str, expected: str) -> ProtocolError:
        """End the session. Return the failure for an answer that its command does not allow."""
        self._close()
        return ProtocolError("IMAP syntax", f"{what}: expected {expected}")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _code(self, answer: library.Response) -> Code | None:
        """Return the response code at the end of a command."""
        ending = self._read(answer.lines[-1:], b"A OK ")
        return ending[0].code if ending and isinstance(ending[0], Tagged) else None

    def _clean(self, text: str) -> str:
        """Return a server's text on one line, without the password."""
        return without_password(" ".join(text.split()), self.account)


def _ranges(numbers: str) -> list[tuple[int, int]]:
    """Return the ranges of a set such as "4,7:9" (RFC 9051 section 9). Anything else in it is left out."""
    return [(int(first), int(last or first)) for first, last in _RANGE.findall(numbers)]


def _sets(uids: Iterable[int]) -> Iterator[str]:
    """Yield sets for commands whose replies may have a line, or a few, for each message."""
    ordered = sorted(set(uids))
    for begin in range(0, len(ordered), MESSAGES_PER_COMMAND):
        for numbers in number_sets(ordered[begin : begin + MESSAGES_PER_COMMAND]):
            yield numbers.decode()
