"""One user's session from log-on to log-off: the open folder, its new mail, calls, and the watch between calls.

The problem: a user is busy for a few seconds, then idle for minutes, and mail arrives at any time. A mail program keeps
its Inbox open and waits in IDLE (RFC 2177); a driver call must end that wait, have the connection to itself, and leave
it as it was. The session has three states, and `with session as connection:` moves between them:

    away      no connection: after log-off, or when it broke
    in call   commands of one task are under way; EXISTS and EXPUNGE are counted
    watching  IDLE, or NOOP every 30 s without it; each EXISTS is announced to the user as it arrives

    __enter__   ends the watch (DONE goes out before the next command), or raises the failure that broke the connection
    __exit__    ends the call; the watch begins again only when the user asks for it
    _on_lost    in a call, the call fails; while watching, the observer gets the loss

SELECT is sent only if another folder is open. Between two SELECTs, the session counts EXISTS and EXPUNGE, so that
`count` is known without a further command. Each folder's UIDVALIDITY outlives the connection: if it changes, all the
user's references are void, `InboxRenumbered` is raised once, and the user lists the Inbox again.

As commands are pipelined, a SELECT may be answered after a later one was sent. Each SELECT has a number (`_selects`),
and only the last one's answer changes the open folder.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from loadsim.errors import InboxRenumbered, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.ports import INBOX, OF_SERVER, PUBLIC, Account, Endpoint, FolderSettings, Observer
from loadsim.model.state_checks import Violation
from loadsim.protocols.error_mapping import again
from loadsim.protocols.imap.authenticate import log_on
from loadsim.protocols.imap.commands import mailbox
from loadsim.protocols.imap.connection import Connection
from loadsim.protocols.imap.connection_port import ImapConnection, MakeConnection
from loadsim.protocols.imap.folder_names import PLAIN, Ask, FolderNames, read_names, uses_in, views_in, with_uses
from loadsim.protocols.imap.grammar import number_of
from loadsim.protocols.imap.responses import Condition, Exists, Expunged, ListEntry, Response
from loadsim.protocols.imap.state_rules import UserCheck
from loadsim.protocols.imap.status_rounds import StatusTimes
from loadsim.protocols.imap.under_way import Answer

POLL_S = 30.0
"""The interval of NOOP on servers without IDLE."""

IDLE_AGAIN_S = 28 * 60.0
"""The interval of IDLE, and of NOOP without an open folder: "at least every 29 minutes" (RFC 2177 section 3)."""


@dataclass(slots=True)
class NewMailAnnouncements:
    """The first UID not listed yet, and the mail announced, across folders and sessions."""

    next_uid: int = 1  # all messages below it that the server showed were listed
    first_uid: int = 1  # all messages below it were there when the Inbox was first opened
    announced: int = 0  # messages reported to the observer since the last listing began
    _expected: int | None = None  # all UIDs below it were announced or listed; None: never opened
    _count: int = 0  # the message count when the Inbox was last left

    def opened(self, count: int, uid_next: int | None) -> int:
        """Take the Inbox's message count on opening. Return the number of messages that arrived since it was left.

        UIDNEXT grows by more than the arrivals if UIDs have gaps, the count by less if messages were removed, so the
        smaller growth is returned. If only UIDNEXT grew, 1 is returned, so that the user lists the Inbox.
        """
        new, grown = 0, count - self._count
        if self._expected is None:
            self.first_uid = uid_next or 1
        else:
            if uid_next is None:
                new = max(0, grown)
            elif uid_next > self._expected:
                new = min(uid_next - self._expected, grown) if grown > 0 else 1
        self._expected = max(self._expected or 1, uid_next or 1)
        return new

    def grew(self, new: int) -> None:
        """Take the number of messages announced in the open Inbox; each uses up one UID."""
        self.announced += new
        if self._expected is not None:
            self._expected += new

    def take_announced(self) -> bool:
        """Return whether mail was announced since the last listing began, and begin another listing."""
        announced, self.announced = self.announced, 0
        return announced > 0

    def left(self, count: int) -> None:
        """Take the Inbox's message count on leaving."""
        self._count = count

    def listed(self, uid: int) -> None:
        self.next_uid = max(self.next_uid, uid + 1)
        self._expected = max(self._expected or 1, self.next_uid)

    def renumbered(self, uid_next: int | None) -> None:
        """Start over: all messages have new UIDs (RFC 9051 section 2.3.1.1)."""
        self.next_uid = self.first_uid = 1
        self._expected = uid_next or 1


@dataclass(slots=True, eq=False, repr=False)
class ImapSession:
    """One user's session with the server, across lost and re-established connections.

    `with session as connection:` surrounds each of the port's calls, and ends the watch. If the connection breaks, the
    call fails; between calls, the observer gets the loss.
    """

    endpoint: Endpoint
    context: ssl.SSLContext | None
    account: Account
    observer: Observer
    limit_s: float  # of each command
    folders: FolderSettings = OF_SERVER
    poll_s: float = POLL_S
    idles: bool = True  # on servers with IDLE
    idle_again_s: float = IDLE_AGAIN_S  # also of NOOP without an open folder
    rounds: StatusTimes | None = None  # if the program asks about other folders
    make: MakeConnection = Connection
    check: UserCheck | None = None  # of all the user's sessions
    broken: Callable[[Violation], object] = lambda _: None  # gets a changed UIDVALIDITY if there is no `check`
    connection: ImapConnection | None = field(default=None, init=False)
    offered: frozenset[str] = field(default=frozenset(), init=False)
    names: FolderNames = field(default=PLAIN, init=False)  # the server's after the first log-on
    arrivals: NewMailAnnouncements = field(default_factory=NewMailAnnouncements, init=False)
    validity: dict[str, int] = field(default_factory=dict, init=False)  # UIDVALIDITY by folder; kept across connections
    open: str | None = field(default=None, init=False)  # the open folder
    count: int = field(default=0, init=False)  # messages in it
    lasting: str | None = field(default=None, init=False)  # its PERMANENTFLAGS
    in_call: bool = field(default=False, init=False)
    _watch: asyncio.TimerHandle | None = field(default=None, init=False)
    _selects: int = field(default=0, init=False)  # sent so far
    _renumbered: str | None = field(default=None, init=False)  # a folder whose UIDs have just become void

    def over_another_connection(self) -> ImapSession:
        """Return the same user's session over another connection, which starts with this one's folder names.

        Both share the folders' UIDVALIDITY. Only the first connection asks about other folders.
        """
        other = replace(self, rounds=None)
        other.names, other.validity = self.names, self.validity
        return other

    async def log_on(self) -> None:
        self.abandon()
        self.in_call = True
        try:
            connection = self.make(self.account, self.observer, self.limit_s, self._on_response, self._on_lost)
            self.offered = await log_on(connection, self.endpoint, self.context)
            try:
                if self.names is PLAIN:
                    self.names = await read_names(_asking(connection), self.offered, self.folders)
            except BaseException:
                connection.abort()
                raise
            self.connection = connection
            connection.remember_tls()
            if self.check is not None and isinstance(connection, Connection):
                if self.names.public is not None:
                    self.check.known.shared = self.argument(PUBLIC)
                connection.check = self.check.session()
        finally:
            self.in_call = False

    async def log_off(self) -> None:
        """Send LOGOUT (RFC 9051 section 6.1.3), and wait until the socket is closed.

        If another folder is open, the Inbox is opened first: GreenMail 2.1 considers a folder open even after the
        session has ended, and closes any connection that deletes it. Servers with UNSELECT are not affected.
        """
        with self as connection:
            if self.open not in (None, INBOX) and "UNSELECT" not in self.offered:
                await self.select(connection, INBOX, announce=False)
            self.leave()
            self.connection = None
            try:
                await connection.send("LOGOUT")
                connection.close()
                await connection.wait_closed()
            except ServerLost as lost:
                if lost.kind != "BYE":  # some servers close after BYE without the tagged OK
                    raise
            finally:
                connection.abort()

    def abandon(self) -> None:
        self._stop_watching()
        self.leave()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort()

    # --- calls and the watch between them ---

    def __enter__(self) -> ImapConnection:
        """End the watch. Raises `ServerLost` if there is no connection, or the failure that broke it."""
        if self._watch is not None:
            self._stop_watching()
        connection = self.connection
        if connection is None:
            raise ServerLost("not logged on")
        if connection.failure is not None:
            raise again(connection.failure)
        self.in_call = True
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self.in_call = False
        connection = self.connection
        if connection is None:
            return
        if error is None:
            if connection.failure is not None:
                # It broke after the last answer. This call has succeeded; the observer starts a new session.
                self.observer.lost(connection.failure)
        elif isinstance(error, ProtocolError):
            connection.abort()

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    @property
    def waits_by_idle(self) -> bool:
        """True if the watch is IDLE; otherwise it is NOOP at intervals."""
        return self.idles and "IDLE" in self.offered and self.open is not None

    def keep_watching(self) -> None:
        """Renew a watch until the next call, by another IDLE or by NOOP; a round of STATUS that is due comes first."""
        if self.connection is not None and self.connection.failure is None:
            loop = asyncio.get_running_loop()
            polls = self.open is not None and not self.waits_by_idle
            wait_s = self.poll_s if polls else self.idle_again_s
            if self.rounds is not None:
                wait_s = min(wait_s, self.rounds.wait_s(loop.time()))
            self._watch = loop.call_later(wait_s, self._renew_watch)

    def watch_quietly(self) -> None:
        """Watch the open folder without waiting for the server; a refusal ends the connection."""
        if self.connection is not None and self.connection.failure is None:
            if self.waits_by_idle:
                self.connection.send_quietly("IDLE")
            self.keep_watching()

    def _renew_watch(self) -> None:
        assert self.connection is not None
        for arguments in self.status_due():
            self.connection.send_quietly("STATUS", *arguments)
        self.connection.send_quietly("IDLE" if self.waits_by_idle else "NOOP")
        self.keep_watching()

    def status_due(self) -> list[tuple[bytes, bytes]]:
        """Begin a round of STATUS if one is due. Return the arguments of its commands."""
        if self.rounds is None:
            return []
        due = self.rounds.begin(asyncio.get_running_loop().time())
        return [(self.argument(folder), self.rounds.items) for folder in due]

    # --- names ---

    def argument(self, folder: str) -> bytes:
        """Return the server's name for a folder, as a command's argument."""
        return mailbox(self.names.on_server(folder))

    def take_listed(self, answer: Iterable[Response]) -> None:
        """Take from an answer to LIST the facts that the server reports in no other way.

        Without NAMESPACE that is the separator; without SPECIAL-USE, the special uses (RFC 6154 section 2).
        """
        listed = [entry for entry in answer if isinstance(entry, ListEntry)]
        if listed and "NAMESPACE" not in self.offered and (separator := listed[-1].delimiter) != self.names.separator:
            self.names = replace(self.names, separator=separator)
        if "SPECIAL-USE" not in self.offered | self.endpoint.ignored and (uses := uses_in(listed)):
            self.names = with_uses(self.names, self.folders, uses)
        if views := views_in(listed) - self.names.views:
            self.names = replace(self.names, views=self.names.views | views)

    # --- the open folder ---

    async def select(self, connection: ImapConnection, folder: str, announce: bool = True) -> bool:
        """Open the folder unless it is open. Return whether a SELECT was sent."""
        if self.open == folder:
            return False
        self.leave()
        self._selects += 1
        then = partial(self._selected, self._selects, folder, announce)
        await connection.send("SELECT", self.argument(folder), then=then, resets=True)
        self.raise_if_renumbered()
        return True

    async def refresh(self, connection: ImapConnection, folder: str) -> None:
        """Open the folder for a listing. New mail is part of that, and so is not announced.

        A server need not show new mail in an open folder before announcing it, which NOOP lets it do (RFC 9051 section
        6.1.2). Folders other than the Inbox always get NOOP, as another connection may have put mail there.
        """
        has_news = folder == INBOX and self.arrivals.take_announced()
        if not await self.select(connection, folder, announce=False) and not (self.count and has_news):
            await connection.send("NOOP")

    def _selected(self, select: int, folder: str, announce: bool, answer: Answer) -> None:
        """Take the data of a successful SELECT, before any later response is read.

        If another SELECT was sent later, later data belongs to its folder.
        """
        count, validity, uid_next, lasting = 0, 0, None, None
        for response in answer.data:
            if isinstance(response, Exists):
                count = response.messages
            elif isinstance(response, Condition) and response.code is not None:
                if response.code.name == "UIDVALIDITY":
                    validity = number_of(response.code.arguments)
                elif response.code.name == "UIDNEXT":
                    uid_next = number_of(response.code.arguments)
                elif response.code.name == "PERMANENTFLAGS":
                    lasting = response.code.arguments
        known = self.validity.get(folder)
        self.validity[folder] = validity
        if known is not None and known != validity:
            self._renumbered = folder
            if known and validity and folder != PUBLIC:
                was = f"UIDVALIDITY was {known}, and is {validity}"
                self.broken(Violation("uidvalidity-changed", "RFC 9051 2.3.1.1", self.account.number, folder, was))
            if folder == INBOX:
                self.arrivals.renumbered(uid_next)
        if select != self._selects:
            return
        self.open, self.count, self.lasting = folder, count, lasting
        if folder == INBOX:
            new = self.arrivals.opened(count, uid_next)
            if new and announce:
                self.arrivals.announced += new
                self.observer.arrived(new, self._arrived_ns)

    def raise_if_renumbered(self) -> None:
        """Raise `ServerRefused` once if a folder's messages have new UIDs."""
        folder, self._renumbered = self._renumbered, None
        if folder is not None:
            raise (InboxRenumbered if folder == INBOX else ServerRefused)("UIDVALIDITY changed", folder)

    def leave(self) -> None:
        if self.open == INBOX:
            self.arrivals.left(self.count)
        self.open = None

    @property
    def _arrived_ns(self) -> int | None:
        """When the response that is being taken arrived, if the connection knows."""
        arrival = None if self.connection is None else self.connection.arrival
        return None if arrival is None else arrival[0]

    def _on_response(self, response: Response) -> None:
        """Take an untagged response, inside or outside a command's answer (RFC 9051 section 5.2)."""
        if self.open is None:
            return
        if isinstance(response, Exists):
            new, self.count = response.messages - self.count, response.messages
            if new > 0 and self.open == INBOX:
                self.arrivals.grew(new)
                self.observer.arrived(new, self._arrived_ns)
        elif isinstance(response, Expunged):
            self.count = max(0, self.count - 1)

    def _on_lost(self, failure: TaskFailed) -> None:
        self._stop_watching()
        self.leave()
        if not self.in_call:
            self.observer.lost(failure)


def _asking(connection: ImapConnection) -> Ask:
    """Return a function that sends a command and returns the untagged data of its answer."""

    async def ask(name: str, *arguments: str) -> Sequence[Response]:
        return (await connection.send(name, *(argument.encode() for argument in arguments))).data

    return ask
