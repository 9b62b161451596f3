"""A user's calendar on a calendar server: one of its own, `loadsim`, and the scheduling Inbox (RFC 6638)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import unquote

from loadsim.errors import MailMissing, ProtocolError, ServerRefused
from loadsim.model.calendar_event import CalendarEvent, own_event
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.caldav import xml
from loadsim.protocols.caldav.session import TEXT, CalDavSession, CalendarObject, Home
from loadsim.protocols.caldav.texts import check_library, read_event, uid_of, write_event
from loadsim.protocols.tls import TlsContexts

COLLECTION = "loadsim"

MOST_PAGES = 100
"""The most requests for one list of changes, which a server may truncate (RFC 6578 section 3.6)."""

WITHOUT_REPLY = "Schedule-Reply: F\r\n"
"""The header by which an invitation is removed without an answer (RFC 6638 section 8.1)."""


@dataclass(slots=True, eq=False, repr=False)
class CalDavCalendar:
    """Implements `ports.UserCalendar`. What it knows of the server outlasts connections."""

    session: CalDavSession
    _home: Home | None = field(default=None, init=False)
    _token: str = field(default="", init=False)
    _changed: set[str] = field(default_factory=set, init=False)  # the names of events since the last list of changes
    _foreign: set[str] = field(default_factory=set, init=False)  # others' invitations

    async def store(self, event: CalendarEvent, changes: bool) -> bool:
        at = await self._place(event)
        condition = "If-None-Match: *\r\n"
        if changes:
            etag = (await self._get(at)).etag
            condition = f"If-Match: {etag}\r\n" if etag else ""
        # The answer may have an ETag of the text as sent. Radicale 3.9 and xandikos 0.4 then store another text,
        # against RFC 4791 section 5.3.4: only GET's is used.
        await self.session.send("PUT", at, write_event(event, datetime.now(UTC)), TEXT, condition)
        self._changed.add(_name(at))
        return is_kept(event, await self._get(at))

    async def remove(self, event: CalendarEvent) -> None:
        at = await self._place(event)
        self._changed.discard(_name(at))
        etag = (await self._get(at)).etag
        await self.session.send("DELETE", at, lines=f"If-Match: {etag}\r\n" if etag else "")

    async def follow(self) -> None:
        home, changed = await self._open(), self._changed
        listed = await self._list_changes(home.at + COLLECTION + "/")
        self._changed = set()
        if not changed <= listed:
            raise ServerRefused("no change sync-collection", f"{len(changed - listed)} changed events were not listed")
        if home.inbox:
            new = [href for href, _ in await self.session.listed(home.inbox) if href not in self._foreign]
            for invitation in await self.session.fetch(home.inbox, new):
                if self._is_own(invitation):
                    await self.session.send("DELETE", invitation.href)
                else:
                    self._foreign.add(invitation.href)

    async def close(self) -> None:
        self.session.close()

    async def _open(self) -> Home:
        """Find the user's calendars once, and make our own if it is missing."""
        if self._home is None:
            home = await self.session.discover()
            if all(_name(calendar) != COLLECTION for calendar in home.calendars):
                await self._make(home)
            self._home = home
        return self._home

    async def _make(self, home: Home) -> None:
        await self.session.send("MKCALENDAR", home.at + COLLECTION + "/", xml.make_calendar(COLLECTION))

    async def _place(self, event: CalendarEvent) -> str:
        return f"{(await self._open()).at}{COLLECTION}/{event.uid.partition('@')[0]}.ics"

    async def _get(self, at: str) -> CalendarObject:
        try:
            return await self.session.get(at)
        except ServerRefused as failure:
            if failure.kind.startswith("404"):
                self._changed.discard(_name(at))
                raise MailMissing("no event GET") from None
            raise

    async def _list_changes(self, at: str) -> set[str]:
        """Return the names of events that exist and have changed since the last call.

        A server may have forgotten the token (RFC 6578 section 3.2): then this lists all, and the refusal is recorded.
        """
        token, names = self._token, set[str]()
        for _ in range(MOST_PAGES):
            try:
                body = xml.sync_collection(token)
                found = await self.session.report("REPORT", at, body, "sync-collection")
            except ServerRefused as failure:  # 403, but 412 from xandikos 0.4
                if not token or not failure.kind.startswith("4"):
                    raise
                self._token, token, names = "", "", set()
                continue
            token = found.token
            names.update(_name(each.href) for each in found.responses if each.status == 200)
            if all(each.status != 507 for each in found.responses):
                self._token = token
                return names
        raise ProtocolError("CALDAV response", "expected a list of changes with an end")

    def _is_own(self, item: CalendarObject, run: str = "") -> bool:
        """Return whether an object is an event of loadsim's; with a run, of this run."""
        own = own_event(uid_of(item.text), self.session.account.domain)
        return own is not None and run in ("", own[1])

    # --- preparation ------------------------------------------------------------------------------------------------

    async def events(self, run: str) -> list[tuple[str, bool]]:
        """Return the id of each event of a run in loadsim's calendar, and whether it is as it was sent."""
        home = await self.session.discover()
        found = []
        for calendar in home.calendars:
            for item in await self._items(calendar) if _name(calendar) == COLLECTION else ():
                own = own_event(uid_of(item.text), self.session.account.domain)
                if own is not None and own[1] == run:
                    found.append((own[0], _is_whole(item)))
        return found

    async def prepare(self) -> None:
        """Remove loadsim's events and invitations, and make its calendar."""
        await self.clean()
        await self.clean_inbox()
        await self._open()

    async def clean(self, dry_run: bool = False, run: str = "") -> int:
        """Remove loadsim's events, or a run's, from all calendars, and its own calendar if nothing else is there.

        Return the number of events.
        """
        home = await self.session.discover()
        removed = 0
        for calendar in home.calendars:
            if _name(calendar) != COLLECTION and not home.inbox:
                continue  # invitations only come to servers that schedule
            hrefs = [href for href, _ in await self.session.listed(calendar)]
            own = [item for item in await self.session.fetch(calendar, hrefs) if self._is_own(item, run)]
            removed += len(own)
            if dry_run:
                continue
            if _name(calendar) == COLLECTION and len(own) == len(hrefs):  # also of those that cannot be read
                await self.session.send("DELETE", calendar)
                continue
            for item in own:
                await self.session.send("DELETE", item.href, lines=WITHOUT_REPLY)
        return removed

    async def clean_inbox(self, dry_run: bool = False, run: str = "") -> int:
        """Remove loadsim's invitations from the scheduling Inbox. Return their number."""
        home = await self.session.discover()
        items = await self._items(home.inbox) if home.inbox else []
        own = [item for item in items if self._is_own(item, run)]
        for item in [] if dry_run else own:
            await self.session.send("DELETE", item.href)
        return len(own)

    async def schedules(self) -> bool:
        """Return whether the server has a scheduling Inbox for the user."""
        return bool((await self.session.discover()).inbox)

    async def _items(self, at: str) -> Sequence[CalendarObject]:
        return await self.session.fetch(at, [href for href, _ in await self.session.listed(at)])


def is_kept(event: CalendarEvent, stored: CalendarObject) -> bool:
    """Return whether an event is stored as it was sent: a server may write it differently, and add to it."""
    return uid_of(stored.text) == event.uid and _is_whole(stored, event.tag)


def _is_whole(stored: CalendarObject, expected: str = "") -> bool:
    """Return whether an event has the values that its tag was made of, and the expected tag if one is given."""
    try:
        read, tag = read_event(stored.text)
    except ProtocolError:
        return False
    return read.tag == tag and expected in ("", tag)


def _name(at: str) -> str:
    return unquote(at.rstrip("/").rpartition("/")[2])


@dataclass(slots=True, eq=False, repr=False)
class CalDavCalendars:
    """Opens users' calendars, which share TLS contexts.

    Raises `ConfigError` if a TLS file cannot be read, or the library for events is missing.
    """

    endpoint: Endpoint
    limit_s: float
    _contexts: TlsContexts = field(init=False)

    def __post_init__(self) -> None:
        check_library()
        self._contexts = TlsContexts(self.endpoint)

    def of(self, account: Account, observer: Observer) -> CalDavCalendar:
        context = self._contexts.of(account)
        return CalDavCalendar(CalDavSession(self.endpoint, context, account, observer, self.limit_s))
