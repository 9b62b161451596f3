"""Targets without I/O: the lists and events that a calendar server answers with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from loadsim.errors import TaskFailed
from loadsim.model.calendar_event import CalendarEvent, event_uid, own_event
from loadsim.model.ports import Endpoint
from loadsim.protocols.caldav import xml
from loadsim.protocols.caldav.session import target
from loadsim.protocols.caldav.texts import read_event, uid_of, write_event

from .mutate import mutated
from .target import Target

BEGIN = datetime(2026, 12, 1, 9, tzinfo=UTC)
EVENT = CalendarEvent(
    event_uid("s1.0", "run-1", "sim.test"), "Lunch, or; not", BEGIN, BEGIN + timedelta(hours=1), "FREQ=DAILY;COUNT=3"
)
TEXT = write_event(EVENT, BEGIN)
LIST = b"""<?xml version="1.0"?><multistatus xmlns="DAV:" xmlns:C="urn:ietf:params:xml:ns:caldav"><response>
<href>/one/s1.0.run-1.ics</href><propstat><prop><getetag>"x"</getetag><resourcetype><C:calendar/></resourcetype>
<C:calendar-home-set><href>/one/</href></C:calendar-home-set><C:calendar-data><![CDATA[BEGIN]]></C:calendar-data></prop>
<status>HTTP/1.1 200 OK</status></propstat></response><response><href>/one/a</href><status>HTTP/1.1 404 Gone</status>
</response><sync-token>data:,1</sync-token></multistatus>"""

XML_WORDS = (
    b"<!DOCTYPE a [",
    b"<!ENTITY a 'b'>]>",
    b"&a;",
    b"&#0;",
    b"<a>" * 50,
    b"xmlns:",
    b"]]>",
    b"<prop/>",
    b"507",
)
LINES = (b"\r\n ", b"BEGIN:VEVENT\r\n", b"END:VEVENT\r\n", b"TZID=", b";VALUE=DATE", b"RRULE:", b"\\", b"DTEND:", b'"')


def _list(data: bytes) -> None:
    """Read all that a user takes from a list."""
    xml.precondition(data)
    multistatus = xml.read_multistatus(data)
    multistatus.token.encode()
    for found in multistatus.responses:
        assert 100 <= found.status < 600
        found.text(xml.DATA).encode()
        for href in (found.href, found.href_in(xml.HOME)):
            at = target(href, Endpoint("127.0.0.1", 8080), "/one/")
            assert at.startswith("/") and at.isascii() and " " not in at


def _event(data: bytes) -> None:
    own_event(uid_of(data), "sim.test")
    event, _ = read_event(data)
    assert len(event.tag) == 16


TARGETS = (
    Target("caldav-list", mutated((LIST,), XML_WORDS), _list, (TaskFailed,)),
    Target("caldav-event", mutated((TEXT,), LINES), _event, (TaskFailed,)),
)
