"""A mailbox over several connections: programs such as Thunderbird keep folders open, each on its own connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from dataclasses import dataclass

from loadsim.errors import ServerLost, ServerRefused
from loadsim.model.ports import INBOX, Flag, Header, KeptLines, Observer, Part, SearchKey, Structure
from loadsim.protocols.imap.folder_names import canonical
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import ImapMailbox


@dataclass(slots=True, frozen=True, eq=False)
class _ConnectionObserver:
    """The observer of all a user's connections (`ports.Observer`)."""

    lines: KeptLines
    now: Callable[[], int]
    command: Callable[..., None]
    arrived: Callable[..., None]
    lost: Callable[[Exception], None]


class SeveralConnections:
    """Implements `ports.Mailbox` over at most `most` connections.

    The first connection belongs to the Inbox. Other folders are opened on a new connection; at the limit, on the newest
    one. So an open folder needs no SELECT, and the Inbox is watched during all tasks. Connections are chosen as in
    Thunderbird (`mailnews/imap/src/nsImapIncomingServer.cpp`, GetImapConnection).

    A connection with an open folder waits again as soon as the user moves to another one. A user without pauses would
    otherwise see no new mail, as returning to the Inbox sends no command.

    All connections form one session, which is lost if one of them breaks. If the server refuses another log-on, only
    the call that needed it is refused.
    """

    def __init__(self, connect: Callable[[Observer], ImapMailbox], most: int, observer: Observer) -> None:
        self._observer = observer
        self._most = most
        self._inbox = connect(
            _ConnectionObserver(observer.lines, observer.now, observer.command, observer.arrived, self._lost)
        )
        self._latest = self._inbox  # the one used last
        self._others: list[ImapMailbox] = []  # in log-on order
        self._waiting: set[ImapMailbox] = set()  # for new mail
        self._broken: Exception | None = None  # a connection's failure during a call on another

    def _lost(self, failure: Exception) -> None:
        """Report a broken connection to the observer, or in the next `watch` if a call is running on another one."""
        if any(mailbox.session.in_call for mailbox in (self._inbox, *self._others)):
            self._broken = failure
        else:
            self._observer.lost(failure)

    # --- the session ---

    async def log_on(self) -> None:
        self.abandon()
        await self._inbox.log_on()

    async def log_off(self) -> None:
        """Send LOGOUT on all connections at once, and wait until they are closed."""
        connections = (self._inbox, *self._others)
        self._others.clear()
        self._waiting.clear()
        ends = await asyncio.gather(*(mailbox.log_off() for mailbox in connections), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def abandon(self) -> None:
        for mailbox in (self._inbox, *self._others):
            mailbox.abandon()
        self._others.clear()
        self._waiting.clear()
        self._broken = None

    async def watch(self) -> None:
        """Wait for new mail on all connections that are not already waiting; see `ImapMailbox.watch`."""
        if self._broken is None:
            for mailbox in (self._inbox, *self._others):
                if mailbox not in self._waiting:
                    await mailbox.watch(inbox=mailbox is self._inbox)
                    self._waiting.add(mailbox)
        if self._broken is not None:  # earlier, or while another began to wait
            self._observer.lost(self._broken)

    # --- the choice of a connection ---

    async def _to_open(self, folder: str) -> ImapMailbox:
        """Return the connection that has the folder open, or else the one to open it on."""
        connection = self._with_open(folder)
        if connection is None:
            connection = await self._connect() if 1 + len(self._others) < self._most else self._others[-1]
        return self._used(connection)

    async def _to_append(self, folder: str) -> ImapMailbox:
        """Return the connection for storing a message in the folder, which need not be open."""
        free = [mailbox for mailbox in self._others if mailbox.session.open is None] or self._others[-1:]
        return self._used(self._with_open(folder) or (free[0] if free else await self._connect()))

    async def _for_messages(self, refs: Sequence[Hashable]) -> ImapMailbox:
        if not refs:
            return self._inbox
        assert isinstance(refs[0], Ref), "a reference of another driver"
        return await self._to_open(refs[0].folder)

    async def _for_message(self, ref: Hashable) -> ImapMailbox:
        """Return the connection for fetching a message; for a stored one, any will do, as all share the store."""
        return self._inbox if self._inbox.holds(ref) else await self._for_messages((ref,))

    def _with_open(self, folder: str) -> ImapMailbox | None:
        """Return the connection that has the folder open; for the Inbox, always the first. None if there is none."""
        folder = canonical(folder)
        if folder == INBOX:
            return self._inbox
        return next((mailbox for mailbox in self._others if mailbox.session.open == folder), None)

    async def _connect(self) -> ImapMailbox:
        """Return another connection, already logged on.

        Also raises `ServerRefused` if the server sends BYE or closes, as some do at a connection limit. Raises
        `ServerLost` if the session ends in the meantime.
        """
        self._wait_but_for(None)
        new = self._inbox.over_another_connection()
        self._others.append(new)
        try:
            await new.log_on()
        except BaseException as failure:
            if new not in self._others:
                raise
            self._others.remove(new)
            if type(failure) is ServerLost:
                raise ServerRefused(failure.kind, failure.line) from None
            raise
        if new not in self._others:  # by `abandon` or `log_off`
            new.abandon()
            raise ServerLost("closed")
        return new

    def _used(self, connection: ImapMailbox) -> ImapMailbox:
        """Return the connection, noting that its next command ends its wait."""
        self._wait_but_for(connection)
        self._waiting.discard(connection)
        self._latest = connection
        return connection

    @property
    def messages(self) -> int:
        return self._latest.messages

    def keeps(self, flag: str) -> bool:
        return self._latest.keeps(flag)

    def _wait_but_for(self, used: ImapMailbox | None) -> None:
        """Have all other connections wait in their open folders."""
        for mailbox in (self._inbox, *self._others):
            if mailbox is not used and mailbox not in self._waiting and mailbox.session.open is not None:
                mailbox.session.watch_quietly()
                self._waiting.add(mailbox)

    # --- the calls ---

    async def folders(self) -> Sequence[str]:
        return await self._used(self._inbox).folders()

    async def open(self, folder: str) -> None:
        if (connection := self._with_open(folder)) is None or connection.session.open is None:
            await (await self._to_open(folder)).open(folder)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        return await (await self._to_open(folder)).headers(folder, newest)

    async def batches(self, folder: str, size: int) -> AsyncGenerator[Sequence[Header], None]:
        async for batch in (await self._to_open(folder)).batches(folder, size):
            yield batch

    async def fetch_whole(self, headers: Sequence[Header]) -> int:
        return await (await self._for_messages([header.ref for header in headers])).fetch_whole(headers)

    async def search(self, folder: str, key: SearchKey, words: str, newest: int) -> Sequence[Header]:
        return await (await self._to_open(folder)).search(folder, key, words, newest)

    async def arrived(self, reopen: bool = False) -> Sequence[Header]:
        return await self._used(self._inbox).arrived(reopen)

    async def structure(self, ref: Hashable) -> Structure:
        return await (await self._for_message(ref)).structure(ref)

    async def part(self, ref: Hashable, part: Part) -> bytes:
        return await (await self._for_message(ref)).part(ref, part)

    async def flag(self, refs: Sequence[Hashable], flag: Flag, on: bool = True) -> None:
        await (await self._for_messages(refs)).flag(refs, flag, on)

    async def move(self, refs: Sequence[Hashable], folder: str) -> None:
        await (await self._for_messages(refs)).move(refs, folder)

    async def copy(self, refs: Sequence[Hashable], folder: str) -> None:
        await (await self._for_messages(refs)).copy(refs, folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Ref | None:
        return await (await self._to_append(folder)).append(folder, message, flags)

    async def expunge(self, refs: Sequence[Hashable]) -> None:
        await (await self._for_messages(refs)).expunge(refs)
