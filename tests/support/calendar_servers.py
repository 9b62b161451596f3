"""Real CalDAV servers for tests, and a reader of their calendars that has none of loadsim's code.

`calendar_server` is a factory like `dovecot_postfix`: called with the name of a server and accounts, it returns a
running one, which is stopped, and its directory removed, when the module's tests are done.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from icalendar import Calendar, Event
from mailservers import short_directory
from other_servers.calendars import start_radicale, start_xandikos
from patience import PATIENCE_S

from loadsim.model.ports import Account, Endpoint
from loadsim.servers.running import RunningServer

StartCalendarServer = Callable[[str, Sequence[Account]], RunningServer]

STARTS = {"radicale": start_radicale, "xandikos": start_xandikos}

DAV, CALDAV = "{DAV:}", "{urn:ietf:params:xml:ns:caldav}"
BODY = '<?xml version="1.0"?><D:{0} xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:prop>{1}</D:prop></D:{0}>'
QUERY = (
    '<?xml version="1.0"?><C:calendar-query xmlns:D="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><D:prop>'
    '<C:calendar-data/></D:prop><C:filter><C:comp-filter name="VCALENDAR"/></C:filter></C:calendar-query>'
)

MULTISTATUS, MOVED = 207, (301, 302, 303, 307, 308)


@pytest.fixture(scope="module")
def calendar_server() -> Iterator[StartCalendarServer]:
    """`calendar_server(name, accounts) -> RunningServer`, stopped after the module; `name` is one of `STARTS`."""
    with ExitStack() as stack:

        def start(name: str, accounts: Sequence[Account]) -> RunningServer:
            directory = stack.enter_context(short_directory())
            return stack.enter_context(STARTS[name](accounts, {}, directory))

        yield start


@dataclass(frozen=True, slots=True)
class Stored:
    """A calendar object: its path, and its events, which have one UID; several are a series and its exceptions."""

    path: str
    events: tuple[Event, ...]


Asked = tuple[int, Mapping[str, str], bytes]
"""A response: status, header and body."""


class CalendarReader:
    """One account's calendars, by requests on a connection for each."""

    def __init__(self, endpoint: Endpoint, account: Account) -> None:
        self._endpoint = endpoint
        secret = base64.b64encode(f"{account.login}:{account.password}".encode()).decode()
        self._header = {"Authorization": f"Basic {secret}"}

    def ask(self, method: str, path: str, body: str | bytes = b"", **header: str) -> Asked:
        """Send a request; words of the header have `_` for `-`. Return the status, the header and the body."""
        names = {name.replace("_", "-"): value for name, value in header.items()}
        content = body.encode() if isinstance(body, str) else body
        with closing(self._connection()) as connection:
            connection.request(method, path, content, self._header | names)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def found(self, path: str, depth: int, *names: str) -> dict[str, ElementTree.Element]:
        """The properties of a resource, or of those in it, by path; `names` are XML elements such as `D:getetag`."""
        body = BODY.format("propfind", "".join(f"<{name}/>" for name in names))
        return self._multistatus("PROPFIND", path, body, depth)

    def home(self) -> str:
        """The path of the collection that has the account's calendars (RFC 4791, section 6.2.1, and RFC 6764)."""
        principal = self._one("/.well-known/caldav", "D:current-user-principal", f"{DAV}current-user-principal")
        return self._one(principal, "C:calendar-home-set", f"{CALDAV}calendar-home-set")

    def calendars(self, kind: str = f"{CALDAV}calendar") -> list[str]:
        """The paths of the account's calendars, or of its collections of another kind, such as `schedule-inbox`."""
        found = self.found(self.home(), 1, "D:resourcetype")
        return sorted(path for path, prop in found.items() if prop.find(f"{DAV}resourcetype/{kind}") is not None)

    def objects(self, collection: str) -> dict[str, Stored]:
        """The calendar objects of a collection by UID."""
        objects: dict[str, Stored] = {}
        for path, prop in self._multistatus("REPORT", collection, QUERY, 1).items():
            text = prop.findtext(f"{CALDAV}calendar-data")
            assert text, f"{path} has no calendar data"
            events = tuple(each for each in Calendar.from_ical(text).walk("VEVENT") if isinstance(each, Event))
            [uid] = {str(event["UID"]) for event in events}
            assert uid not in objects, f"{uid} is at {path}, and at {objects[uid].path}"
            objects[uid] = Stored(path, events)
        return objects

    def events(self) -> dict[str, Stored]:
        """The calendar objects of all of the account's calendars by UID."""
        merged: dict[str, Stored] = {}
        for calendar in self.calendars():
            objects = self.objects(calendar)
            assert not merged.keys() & objects.keys(), f"{calendar} has events of another calendar"
            merged |= objects
        return merged

    def _connection(self) -> HTTPConnection:
        host, port = self._endpoint.host, self._endpoint.port
        if self._endpoint.tls == "none":
            return HTTPConnection(host, port, timeout=PATIENCE_S)
        trusted = ssl.create_default_context(cafile=self._endpoint.ca_file)
        return HTTPSConnection(host, port, timeout=PATIENCE_S, context=trusted)

    def _one(self, path: str, name: str, element: str) -> str:
        """The path that a property of a resource leads to."""
        for prop in self.found(path, 0, name).values():
            if href := prop.findtext(f"{element}/{DAV}href"):
                return _path(href)
        raise AssertionError(f"{path} has no {name}")

    def _multistatus(self, method: str, path: str, body: str, depth: int) -> dict[str, ElementTree.Element]:
        """The properties that the server has, by path; redirections are followed."""
        header = {"Depth": str(depth), "Content_Type": "application/xml; charset=utf-8"}
        status, answered, content = self.ask(method, path, body, **header)
        for _ in range(3):
            if status in MOVED:
                status, answered, content = self.ask(method, _path(answered["location"]), body, **header)
        assert status == MULTISTATUS, (method, path, status, content)
        responses = {}
        for response in ElementTree.fromstring(content).iter(f"{DAV}response"):
            for each in response.iter(f"{DAV}propstat"):
                if " 200" in (each.findtext(f"{DAV}status") or ""):
                    prop, href = each.find(f"{DAV}prop"), response.findtext(f"{DAV}href")
                    assert prop is not None
                    assert href
                    responses[_path(href)] = prop
        return responses


def _path(reference: str) -> str:
    """The path of a URL, or of an absolute path, as the server has encoded it."""
    return urlsplit(reference.strip()).path


def read_calendars(endpoint: Endpoint, accounts: Sequence[Account]) -> dict[str, dict[str, Stored]]:
    """All calendars' objects by login and UID."""
    return {each.login: CalendarReader(endpoint, each).events() for each in accounts}
