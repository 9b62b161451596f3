"""The CalDAV servers of tests: each keeps its users apart, and the reader finds what they have stored."""

import pytest
from calendar_servers import STARTS, CalendarReader, StartCalendarServer, read_calendars
from mailservers import numbered_accounts

from loadsim.model.ports import Account

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


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_a_reader_finds_what_each_user_has_stored(calendar_server: StartCalendarServer, name: str) -> None:
    accounts = numbered_accounts(2)
    server = calendar_server(name, accounts)
    first = CalendarReader(server.endpoint, accounts[0])
    calendar = f"{first.home()}work/"
    assert first.ask("MKCALENDAR", calendar)[0] == 201
    assert first.ask("PUT", f"{calendar}one.ics", SERIES, Content_Type="text/calendar", If_None_Match="*")[0] == 201
    read = read_calendars(server, accounts)
    assert {login: {*found} for login, found in read.items()} == {"user1": {"series"}, "user2": set()}
    stored = read["user1"]["series"]
    assert stored.path == f"{calendar}one.ics"
    assert sorted((event["SUMMARY"], event["DTSTART"].dt.hour) for event in stored.events) == [
        ("Later", 15),
        ("Stand-up, grüne Runde", 10),
    ]
    wrong = Account(1, "user1", accounts[0].address, "wrong")
    assert CalendarReader(server.endpoint, wrong).ask("GET", stored.path)[0] == 401
    refused = CalendarReader(server.endpoint, accounts[1]).ask("GET", stored.path)[0]
    assert refused == {"radicale": 403, "xandikos": 500}[name]  # an exception that xandikos does not catch
