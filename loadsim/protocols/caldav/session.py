"""A user's requests to a CalDAV server, and the discovery of their calendars (RFC 4791 section 6, RFC 6764)."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from loadsim.errors import ServerRefused
from loadsim.model.host_port import bracketed
from loadsim.model.ports import Account, Endpoint, Observer
from loadsim.protocols.caldav import xml
from loadsim.protocols.caldav.xml import DavResource, Multistatus
from loadsim.protocols.http import targets
from loadsim.protocols.http.channel import HttpChannel, HttpDialect
from loadsim.protocols.http.responses import Response
from loadsim.protocols.http.targets import MOST_REDIRECTS, REDIRECTS
from loadsim.protocols.sasl.masking import without_password

WELL_KNOWN = "/.well-known/caldav"

XML, TEXT = "application/xml; charset=utf-8", "text/calendar; charset=utf-8"

LARGEST_BYTES = 1 << 23
"""The largest response: the ETags of 25,000 events."""

MULTIGET = 50
"""The most events to fetch by one request."""

ABSENT = (404, 405)
"""The statuses of a target without properties: servers need no well-known one."""

R = TypeVar("R")

_STRONG_ETAG = re.compile(r'"[!#-~]{1,200}"')

DIALECT = HttpDialect("CALDAV", period_s=lambda _: 0.0)

target = partial(targets.target, service="caldav")


@dataclass(frozen=True, slots=True)
class Home:
    """The target below which a user's calendars are, theirs, and the scheduling Inbox's, "" without scheduling."""

    at: str
    calendars: tuple[str, ...]
    inbox: str


@dataclass(frozen=True, slots=True)
class CalendarObject:
    """A calendar object as the server returned it; `etag` is "" unless it is a strong one, for use in If-Match."""

    href: str
    etag: str
    text: bytes


@dataclass(slots=True, eq=False, repr=False)
class CalDavSession:
    """Sends requests one at a time. A refusal leaves the connection; the next request makes a new one if it ended."""

    endpoint: Endpoint
    context: ssl.SSLContext | None
    account: Account
    observer: Observer
    limit_s: float  # of each request
    _channel: HttpChannel = field(init=False)

    def __post_init__(self) -> None:
        self._channel = HttpChannel(self.endpoint, self.context, self.account, self.observer, DIALECT, self.limit_s)

    def close(self) -> None:
        self._channel.close()

    async def discover(self) -> Home:
        """Find the user's calendars, from the well-known target or, without one, from the root.

        Raises `ServerRefused` if there are none.
        """
        found, at = await self._find(WELL_KNOWN, xml.PRINCIPAL)
        if found is None:
            found, at = await self._find("/", xml.PRINCIPAL)
        principal = found.href_in(xml.PRINCIPAL) if found else ""
        if not principal:
            raise ServerRefused("no principal PROPFIND", "expected current-user-principal (RFC 5397)")
        found, at = await self._find(target(principal, self.endpoint, at), xml.HOME, xml.INBOX)
        home = found.href_in(xml.HOME) if found else ""
        if found is None or not home:
            raise ServerRefused("no calendars PROPFIND", "expected calendar-home-set (RFC 4791 section 6.2.1)")
        inbox = found.href_in(xml.INBOX)
        calendars = target(home, self.endpoint, at).rstrip("/") + "/"
        # Cyrus 3.12 makes a user's calendars and Inbox at the first request for them.
        listed = await self.listed(calendars)
        theirs = tuple(href for href, is_calendar in listed if is_calendar)
        return Home(calendars, theirs, target(inbox, self.endpoint, at) if inbox else "")

    async def _find(self, at: str, *names: str) -> tuple[DavResource | None, str]:
        """Return properties of one resource, None if there is none, and its target after any redirects."""
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._ask("PROPFIND", "PROPFIND", at, xml.propfind(*names), XML, "Depth: 0\r\n", _found)
            if not isinstance(answer, str):
                return answer, at
            at = target(answer, self.endpoint, at)
        raise ServerRefused("too many redirects PROPFIND", f"expected at most {MOST_REDIRECTS}")

    async def get(self, at: str) -> CalendarObject:
        response = await self.send("GET", at)
        return CalendarObject(at, _strong(response.fields.get("etag", "")), response.body)

    async def listed(self, at: str) -> list[tuple[str, bool]]:
        """Return the target of each resource in a collection, and whether it is a calendar."""
        found = (await self.report("PROPFIND", at, xml.propfind(xml.TYPE), depth=1)).responses
        places = [(target(each.href, self.endpoint, at), each) for each in found if each.status == 200]
        return [
            (href, xml.TYPE in each.properties and each.properties[xml.TYPE].find(xml.CALENDAR) is not None)
            for href, each in places
            if href.rstrip("/") != at.rstrip("/")
        ]

    async def fetch(self, at: str, hrefs: Sequence[str]) -> list[CalendarObject]:
        """Return these objects of a collection that exist, a few with each request."""
        stored: list[CalendarObject] = []
        for first in range(0, len(hrefs), MULTIGET):
            body = xml.multiget(hrefs[first : first + MULTIGET])
            stored += [
                CalendarObject(
                    target(each.href, self.endpoint, at), _strong(each.text(xml.ETAG)), each.text(xml.DATA).encode()
                )
                for each in (await self.report("REPORT", at, body, "calendar-multiget")).responses
                if each.status == 200 and xml.DATA in each.properties
            ]
        return stored

    async def send(
        self, method: str, at: str, body: bytes = b"", kind: str = "application/xml; charset=utf-8", lines: str = ""
    ) -> Response:
        """Send a request with these further header lines. Return its response, which is a success."""
        return await self._ask(method, method, at, body, kind, lines, lambda response: response)

    async def report(self, method: str, at: str, body: bytes, name: str = "", depth: int = 0) -> Multistatus:
        """Send a request that is answered by a multistatus, recorded by its method unless a name is given."""
        lines = f"Depth: {depth}\r\n"
        return await self._ask(
            name or method, method, at, body, XML, lines, lambda response: xml.read_multistatus(response.body)
        )

    async def _ask(
        self, name: str, method: str, at: str, body: bytes, kind: str, lines: str, read: Callable[[Response], R]
    ) -> R:
        def checked(response: Response) -> R:
            if 200 <= response.status < 300 or (read is _found and response.status in (*REDIRECTS, *ABSENT)):
                return read(response)
            words = [str(response.status), xml.precondition(response.body), name]
            raise ServerRefused(" ".join(filter(None, words)), without_password(response.reason, self.account))

        about = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n" if body else ""
        head = (
            f"{method} {at} HTTP/1.1\r\nHost: {bracketed(self.endpoint.host)}:{self.endpoint.port}\r\n"
            f"User-Agent: loadsim\r\n{about}{lines}\r\n"
        )
        return await self._channel.ask(f"CALDAV {name}", head.encode() + body, checked, most_bytes=LARGEST_BYTES)


def _found(response: Response) -> DavResource | str | None:
    """Return the properties of a resource, None if it does not exist, or the URL of a redirect."""
    if response.status in REDIRECTS:
        return response.fields.get("location", "")
    if response.status in ABSENT:
        return None
    return next(iter(xml.read_multistatus(response.body).responses), None)


def _strong(etag: str) -> str:
    return etag if _STRONG_ETAG.fullmatch(etag) else ""
