"""A mailbox over several connections, as of programs that keep folders open, each over a connection of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from loadsim.errors import ServerLost
from loadsim.model.ports import INBOX, Flag, Header, Observer, Part, Structure
from loadsim.protocols.imap.header_lists import Ref
from loadsim.protocols.imap.mailbox import ImapMailbox, canonical


@dataclass(slots=True, frozen=True, eq=False)
class _Reports:
    """The observer of all connections of a user (`ports.Observer`)."""

    now: Callable[[], int]
    command: Callable[[str, int, str, int, int], None]
    arrived: Callable[[int], None]
    lost: Callable[[Exception], None]


class SeveralConnections:
    """Implements `ports.Mailbox` over at most `most` connections of a user.

    The first connection is the Inbox's. Another folder is opened over a new connection, up to the limit, and then over
    the newest one. So a folder that is open needs no SELECT, and the Inbox is watched during all tasks. The choice of
    a connection is Thunderbird's (`mailnews/imap/src/nsImapIncomingServer.cpp`, GetImapConnection).

    A connection with an open folder waits again as soon as the user goes on over another one. Nothing else would show
    new mail to a user without pauses: going back to the Inbox sends no command.

    All connections are one session of the user: it is lost if one of them breaks. If the server refuses a further
    log-on, it refuses only the call that needed it.
    """

    __slots__ = ("_broken", "_inbox", "_most", "_observer", "_others", "_watched")

    def __init__(self, connect: Callable[[Observer], ImapMailbox], most: int, observer: Observer) -> None:
        self._observer = observer
        self._most = most
        self._inbox = connect(_Reports(observer.now, observer.command, observer.arrived, self._lost))
        self._others: list[ImapMailbox] = []  # in the order of their log-ons
        self._watched: set[ImapMailbox] = set()
        self._broken: Exception | None = None  # one broke during a call over another

    def _lost(self, failure: Exception) -> None:
        """Pass on that a connection broke; during a call over another one, the next `watch` does."""
        if any(each.session.in_call for each in (self._inbox, *self._others)):
            self._broken = failure
        else:
            self._observer.lost(failure)

    # --- the session ---

    async def log_on(self) -> None:
        """Make a session of one connection; see `authenticate.log_on`."""
        self.abandon()
        await self._inbox.log_on()

    async def log_off(self) -> None:
        """LOGOUT on all connections at once, and wait until they are closed."""
        connections = (self._inbox, *self._others)
        self._others.clear()
        self._watched.clear()
        ends = await asyncio.gather(*(each.log_off() for each in connections), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def abandon(self) -> None:
        """Close all connections at once."""
        for each in (self._inbox, *self._others):
            each.abandon()
        self._others.clear()
        self._watched.clear()
        self._broken = None

    async def watch(self) -> None:
        """Wait on all connections that do not wait yet: see `ImapMailbox.watch`."""
        if self._broken is None:
            for each in (self._inbox, *self._others):
                if each not in self._watched:
                    await (each.watch() if each is self._inbox else each.keep())
                    self._watched.add(each)
        if self._broken is not None:  # before, or while another began to wait
            self._observer.lost(self._broken)

    # --- the choice of a connection ---

    async def _over(self, folder: str) -> ImapMailbox:
        """Return the connection that has the folder open or may open it."""
        return self._used(self._having(folder) or (await self._another() if self._may_connect else self._others[-1]))

    async def _over_any(self, folder: str) -> ImapMailbox:
        """Return the connection for a command on a folder that need not be open."""
        idle = [each for each in self._others if each.session.open is None] or self._others[-1:]
        return self._used(self._having(folder) or (idle[0] if idle else await self._another()))

    async def _over_its(self, refs: Sequence[Hashable]) -> ImapMailbox:
        """Return the connection for a command on messages of one folder."""
        if not refs:
            return self._inbox
        assert isinstance(refs[0], Ref), "a reference of another driver"
        return await self._over(refs[0].folder)

    def _having(self, folder: str) -> ImapMailbox | None:
        folder = canonical(folder)
        if folder == INBOX:
            return self._inbox
        return next((each for each in self._others if each.session.open == folder), None)

    @property
    def _may_connect(self) -> bool:
        return 1 + len(self._others) < self._most

    async def _another(self) -> ImapMailbox:
        """Log on over a further connection."""
        self._wait_but_for(None)
        new = self._inbox.another()
        self._others.append(new)
        try:
            await new.log_on()
        except BaseException:
            if new in self._others:
                self._others.remove(new)
            raise
        if new not in self._others:  # the session has ended in the meantime
            new.abandon()
            raise ServerLost("closed")
        return new

    def _used(self, connection: ImapMailbox) -> ImapMailbox:
        self._wait_but_for(connection)
        self._watched.discard(connection)
        return connection

    def _wait_but_for(self, used: ImapMailbox | None) -> None:
        """Let all connections but this one wait in the folders that they have open."""
        for each in (self._inbox, *self._others):
            if each is not used and each not in self._watched and each.session.open is not None:
                each.session.watch_quietly()
                self._watched.add(each)

    # --- the calls ---

    async def folders(self) -> Sequence[str]:
        return await self._used(self._inbox).folders()

    async def open(self, folder: str) -> None:
        if (connection := self._having(folder)) is None or connection.session.open is None:
            await (await self._over(folder)).open(folder)

    async def headers(self, folder: str, newest: int | None) -> Sequence[Header]:
        return await (await self._over(folder)).headers(folder, newest)

    async def arrived(self) -> Sequence[Header]:
        return await self._used(self._inbox).arrived()

    async def structure(self, ref: Hashable) -> Structure:
        connection = self._inbox if self._inbox.holds(ref) else await self._over_its((ref,))
        return await connection.structure(ref)

    async def part(self, ref: Hashable, part: Part) -> bytes | bytearray:
        connection = self._inbox if self._inbox.holds(ref) else await self._over_its((ref,))
        return await connection.part(ref, part)

    async def flag(self, refs: Sequence[Hashable], flag: Flag, on: bool = True) -> None:
        await (await self._over_its(refs)).flag(refs, flag, on)

    async def move(self, refs: Sequence[Hashable], folder: str) -> None:
        await (await self._over_its(refs)).move(refs, folder)

    async def copy(self, refs: Sequence[Hashable], folder: str) -> None:
        await (await self._over_its(refs)).copy(refs, folder)

    async def append(self, folder: str, message: bytes, flags: Sequence[Flag] = ()) -> Ref | None:
        return await (await self._over_any(folder)).append(folder, message, flags)

    async def expunge(self, refs: Sequence[Hashable]) -> None:
        await (await self._over_its(refs)).expunge(refs)
