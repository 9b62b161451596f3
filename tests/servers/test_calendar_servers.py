"""The CalDAV servers of tests: each keeps its users apart, and the reader finds what they have stored."""

from pathlib import Path

import pytest
from calendar_servers import CALDAV, STARTS, CalendarReader, StartCalendarServer, read_calendars
from mailservers import numbered_accounts
from other_servers.cyrus import start_cyrus

from loadsim.model.ports import Account, Endpoint
from loadsim.servers.private import LOOPBACK, free_port

SERIES = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//example.test//EN\r
BEGIN:VEVENT\r
UID:series\r
DTSTAMP:20260101T000000Z\r
DTSTART:20260302T100000Z\r
DTEND:20260302T110000Z\r
RRULE:FREQ=DAILY;COUNT=5\r
SUMMARY:Stand-up\\, grüne Runde\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:series\r
DTSTAMP:20260101T000000Z\r
RECURRENCE-ID:20260303T100000Z\r
DTSTART:20260303T150000Z\r
DTEND:20260303T160000Z\r
SUMMARY:Later\r
END:VEVENT\r
END:VCALENDAR\r
"""

MEETING = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//example.test//EN\r
BEGIN:VEVENT\r
UID:meeting\r
DTSTAMP:20260101T000000Z\r
DTSTART:20990302T100000Z\r
DTEND:20990302T110000Z\r
SUMMARY:Review\r
ORGANIZER:mailto:user1@example.test\r
ATTENDEE;PARTSTAT=ACCEPTED:mailto:user1@example.test\r
ATTENDEE;PARTSTAT=NEEDS-ACTION:mailto:user2@example.test\r
END:VEVENT\r
END:VCALENDAR\r
"""
"""Cyrus delivers no invitations to events that ended more than `caldav_historical_age` ago, seven days by default."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_reader_finds_what_each_user_has_stored(calendar_server: StartCalendarServer, name: str) -> None:
    accounts = numbered_accounts(2)
    endpoint = calendar_server(name, accounts).services.endpoint("caldav")
    first = CalendarReader(endpoint, accounts[0])
    calendar = f"{first.home()}work/"
    assert first.ask("MKCALENDAR", calendar)[0] == 201
    assert first.ask("PUT", f"{calendar}one.ics", SERIES, Content_Type="text/calendar", If_None_Match="*")[0] == 201
    read = read_calendars(endpoint, accounts)
    assert {login: {*found} for login, found in read.items()} == {"user1": {"series"}, "user2": set()}
    stored = read["user1"]["series"]
    assert stored.path == f"{calendar}one.ics"
    assert sorted((event["SUMMARY"], event["DTSTART"].dt.hour) for event in stored.events) == [
        ("Later", 15),
        ("Stand-up, grüne Runde", 10),
    ]
    wrong = Account(1, "user1", accounts[0].address, "wrong")
    assert CalendarReader(endpoint, wrong).ask("GET", stored.path)[0] == 401
    refused = CalendarReader(endpoint, accounts[1]).ask("GET", stored.path)[0]
    assert refused == {"radicale": 403, "xandikos": 500}[name]  # an exception that xandikos does not catch


@pytest.mark.nightly(part="servers")
def test_cyrus_delivers_invitations_and_cancellations(server_directory: Path) -> None:
    """RFC 6638: they are in the attendee's calendar and Inbox as soon as the organizer's request is answered."""
    accounts, port = numbered_accounts(2), free_port()
    with start_cyrus(accounts, {}, server_directory, caldav_port=port):
        organizer, attendee = (CalendarReader(Endpoint(LOOPBACK, port), account) for account in accounts)
        [calendar], [inbox] = organizer.calendars(), attendee.calendars(f"{CALDAV}schedule-inbox")
        path = f"{calendar}meeting.ics"
        assert organizer.ask("PUT", path, MEETING, Content_Type="text/calendar", If_None_Match="*")[0] == 201
        [invited] = attendee.events()["meeting"].events
        assert (str(invited["SUMMARY"]), invited.get("STATUS")) == ("Review", None)
        [item] = [each for each in attendee.found(inbox, 1, "D:getetag") if each != inbox]
        assert b"METHOD:REQUEST" in attendee.ask("GET", item)[2]

        assert organizer.ask("DELETE", path)[0] == 204
        [cancelled] = attendee.events()["meeting"].events
        assert str(cancelled["STATUS"]) == "CANCELLED"
        items = [attendee.ask("GET", each)[2] for each in attendee.found(inbox, 1, "D:getetag") if each != inbox]
        assert sorted(b"METHOD:CANCEL" in each for each in items) == [False, True]
