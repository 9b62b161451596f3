"""A calendar by CalDAV: its events, changes and invitations on a small server, and answers that break the protocol."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from caldav_peer import Answer, CalendarPeer, calendar_peer, etag, found, multistatus
from hypothesis import given
from hypothesis import strategies as st
from icalendar import Calendar
from imap_script import Ear

from loadsim.errors import MailMissing, ProtocolError, ServerLost, ServerRefused, TaskFailed
from loadsim.model.calendar_event import CalendarEvent, event_uid, own_event
from loadsim.model.ports import Account
from loadsim.protocols.caldav import xml
from loadsim.protocols.caldav.calendar import MOST_PAGES, CalDavCalendar, CalDavCalendars
from loadsim.protocols.caldav.texts import read_event, uid_of, write_event

DOMAIN = "example.com"
FIRST, SECOND = (Account(user, f"user{user}", f"user{user}@{DOMAIN}", f"secret{user}") for user in (1, 2))
BEGIN = datetime(2026, 12, 1, 9, tzinfo=UTC)
EVENT = CalendarEvent(
    event_uid("s1.0", "run-1", DOMAIN),
    "Lunch, or not; who knows \\ maybe",
    BEGIN,
    BEGIN + timedelta(hours=1),
    "FREQ=WEEKLY;COUNT=8",
    "Room 1, Main Street",
    "Bring food.",
    FIRST.address,
    (SECOND.address,),
)
CHANGED = replace(EVENT, begin=BEGIN + timedelta(minutes=15))

Site = tuple[CalendarPeer, CalDavCalendar, CalDavCalendar, Ear]


@asynccontextmanager
async def open_site() -> AsyncIterator[Site]:
    """A server, the calendars of two of its users, and what the first one's observer gets."""
    async with calendar_peer((FIRST, SECOND)) as (peer, endpoint):
        calendars, ear = CalDavCalendars(endpoint, 60.0), Ear()
        first, second = calendars.of(FIRST, ear), calendars.of(SECOND, Ear())
        yield peer, first, second, ear
        await first.close()
        await second.close()


def stored(peer: CalendarPeer) -> str:
    (text,) = peer.of("user1", "loadsim")
    return text


async def test_an_event_is_stored_changed_and_removed() -> None:
    """The texts on the server are read by the library alone."""
    async with open_site() as (peer, first, _, ear):
        assert await first.store(EVENT, changes=False)
        (read,) = Calendar.from_ical(stored(peer)).walk("VEVENT")
        assert (read["uid"], read["summary"], read["dtstart"].dt) == (EVENT.uid, EVENT.summary, EVENT.begin)
        assert (read["rrule"]["FREQ"], read["rrule"]["COUNT"]) == (["WEEKLY"], [8])
        assert (read["organizer"], read["attendee"]) == ("mailto:user1@example.com", "mailto:user2@example.com")
        assert "METHOD" not in stored(peer)
        assert await first.store(CHANGED, changes=True)
        (read,) = Calendar.from_ical(stored(peer)).walk("VEVENT")
        assert read["dtstart"].dt == CHANGED.begin
        await first.remove(CHANGED)
        assert peer.of("user1", "loadsim") == []
        assert [name for name, *_ in ear.commands] == [
            "CALDAV connection",
            *["CALDAV PROPFIND"] * 4,  # the well-known target redirects
            "CALDAV MKCALENDAR",
            *["CALDAV PUT", "CALDAV GET"],
            *["CALDAV GET", "CALDAV PUT", "CALDAV GET"],
            *["CALDAV GET", "CALDAV DELETE"],
        ]


async def test_invitations_are_removed_from_the_inbox_but_others_mail_stays() -> None:
    async with open_site() as (peer, first, second, _):
        foreign = peer.items["/user2/inbox/other.ics"] = write_event(
            replace(EVENT, uid="other@example.com"), BEGIN
        ).decode()
        await first.store(EVENT, changes=False)
        assert len(peer.of("user2", "inbox")) == 2
        await second.follow()
        assert peer.of("user2", "inbox") == [foreign]
        before = len(peer.requests)
        await second.follow()
        assert [method for method, *_ in peer.requests[before:]] == ["REPORT", "PROPFIND"]  # it is not read again


async def test_only_changes_since_the_token_are_listed_and_a_forgotten_token_lists_all() -> None:
    async with open_site() as (peer, first, _, ear):
        await first.store(EVENT, changes=False)
        await first.follow()
        await first.store(CHANGED, changes=True)
        await first.follow()
        tokens = [xml.parse(body.encode()).findtext(xml.TOKEN) for method, _, body in peer.requests if "sync-" in body]
        assert tokens == ["", str(len(peer.log) - 3)]  # the change, and two copies of it
        peer.change = lambda method, path, answer: (
            Answer(412)
            if answer.status == 207 and "sync-token>" in peer.requests[-1][2] and "><" not in sync()
            else answer
        )

        def sync() -> str:
            return peer.requests[-1][2].partition("<sync-token")[2].partition("/sync-token>")[0]

        await first.follow()
        outcomes = [outcome for name, outcome, *_ in ear.commands if name == "CALDAV sync-collection"]
        assert outcomes == ["ok", "ok", "refused", "ok"]


async def test_a_token_is_not_given_up_if_the_server_fails() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        await first.follow()
        peer.change = lambda method, path, answer: Answer(503)
        with pytest.raises(ServerRefused, match=r"^503 sync-collection"):
            await first.follow()
        peer.change = lambda method, path, answer: answer
        await first.follow()
        assert "<sync-token></sync-token>" not in peer.requests[-2][2]


async def test_a_change_that_is_not_listed_is_a_failure() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: multistatus([], "7")
        with pytest.raises(ServerRefused, match=r"^no change sync-collection"):
            await first.follow()


async def test_a_truncated_list_is_continued_but_not_for_ever() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        more = "<response><href>/user1/loadsim/</href><status>HTTP/1.1 507 More</status></response>"
        answers = [multistatus([more], "0")]
        peer.change = lambda method, path, answer: answers.pop() if method == "REPORT" and answers else answer
        await first.follow()
        tokens = [body for method, _, body in peer.requests if "sync-collection" in body]
        assert "<sync-token>0</sync-token>" in tokens[1]
        peer.change = lambda method, path, answer: multistatus([more], "1")
        before = len(peer.requests)
        with pytest.raises(ProtocolError, match="an end"):
            await first.follow()
        assert len(peer.requests) - before == MOST_PAGES


async def test_a_list_that_ends_early_is_listed_from_its_beginning() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        more = "<response><href>/user1/loadsim/</href><status>HTTP/1.1 507 More</status></response>"
        page = multistatus([more, found("/user1/loadsim/loadsim-s1.0.run-1.ics", "<getetag/>")], str(len(peer.log)))
        answers = [None, page]
        peer.change = lambda method, path, answer: answers.pop() if method == "REPORT" and answers else answer
        with pytest.raises(ServerLost):
            await first.follow()
        await first.follow()


@pytest.mark.parametrize("last", [EVENT, CHANGED])
async def test_an_event_that_is_gone_is_not_missing_again_from_the_list(last: CalendarEvent) -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        peer.items.clear()
        with pytest.raises(MailMissing):
            await (first.remove(last) if last is EVENT else first.store(last, changes=True))
        await first.follow()


async def test_an_event_that_may_be_removed_is_not_missed() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: None if method == "DELETE" else answer
        with pytest.raises(ServerLost):
            await first.remove(EVENT)
        await first.follow()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SUMMARY:Lunch", "SUMMARY:Dinner"),
        ("DTSTART:20261201T09", "DTSTART:20261201T08"),
        ("20261201T090000Z", "20261201T090000"),
        ("COUNT=8", "COUNT=9"),
        ("UID:loadsim-s1.0", "UID:loadsim-s1.1"),
        ("X-LOADSIM:", "X-LOADSIM:0"),
        ("BEGIN:VEVENT", "BEGIN:VTODO"),
        ("DTEND", "DURATION"),
    ],
)
async def test_an_event_that_the_server_alters_is_seen(old: str, new: str) -> None:
    async with open_site() as (peer, first, _, _):

        def alter(method: str, path: str, answer: Answer) -> Answer:
            assert method != "GET" or old in answer.body
            return replace(answer, body=answer.body.replace(old, new)) if method == "GET" else answer

        peer.change = alter
        assert not await first.store(EVENT, changes=False)


async def test_an_event_may_be_written_differently() -> None:
    """Servers reorder and fold lines, and the parts of a rule, and add properties and parameters."""
    async with open_site() as (peer, first, _, _):

        def rewrite(method: str, path: str, answer: Answer) -> Answer:
            if method != "GET":
                return answer
            begin, *lines, end, last = answer.body.replace("\r\n ", "").splitlines()
            at = lines.index("BEGIN:VEVENT")
            lines = [*lines[: at + 1], "SCHEDULE-STATUS:1.2", *reversed(lines[at + 1 :])]
            text = "\r\n".join([begin, *lines, end, last, ""])
            return replace(answer, body=text.replace("FREQ=WEEKLY;COUNT=8", "COUNT=8;FREQ=WEEKLY"))

        peer.change = rewrite
        assert await first.store(EVENT, changes=False)


async def test_only_the_etag_of_get_is_used() -> None:
    """PUT's answer names the text as sent, GET's the text as stored: as Radicale 3.9 does."""
    async with open_site() as (peer, first, _, _):

        def wrong(method: str, path: str, answer: Answer) -> Answer:
            return replace(answer, fields={"ETag": '"of what was sent"'}) if method == "PUT" else answer

        peer.change = wrong
        await first.store(EVENT, changes=False)
        assert await first.store(CHANGED, changes=True)


@pytest.mark.parametrize("value", ['W/"weak"', "bare", '"two" "words"', '"\x7f"', '"' + "x" * 300 + '"'])
async def test_an_etag_that_if_match_cannot_have_is_left_out(value: str) -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: (
            replace(answer, fields={"ETag": value}) if method == "GET" else answer
        )
        assert await first.store(CHANGED, changes=True)


async def test_a_stale_event_is_refused_and_a_lost_one_is_missing() -> None:
    async with open_site() as (peer, first, _, _):
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: (
            replace(answer, fields={"ETag": etag("stale")}) if method == "GET" else answer
        )
        with pytest.raises(ServerRefused, match=r"^412 PUT"):
            await first.store(CHANGED, changes=True)
        peer.change = lambda method, path, answer: answer
        with pytest.raises(ServerRefused, match=r"^412 PUT"):
            await first.store(EVENT, changes=False)
        peer.items.clear()
        for act in (first.store(CHANGED, changes=True), first.remove(EVENT)):
            with pytest.raises(MailMissing):
                await act


async def test_cleaning_leaves_others_events() -> None:
    async with open_site() as (peer, first, second, _):
        theirs = write_event(replace(EVENT, uid="theirs"), BEGIN).decode()
        await first.store(EVENT, changes=False)
        peer.items |= {"/user1/loadsim/theirs.ics": theirs, "/user2/default/theirs.ics": theirs}
        assert (await first.clean(dry_run=True), await second.clean(dry_run=True)) == (1, 1)
        assert len(peer.items) == 5
        assert (await first.clean(), await second.clean(), await second.clean_inbox()) == (1, 1, 1)
        assert {*peer.items} == {"/user1/loadsim/theirs.ics", "/user2/default/theirs.ics"}
        peer.items.clear()
        assert await first.clean() == 0
        assert "/user1/loadsim/" not in peer.calendars


async def test_a_calendar_with_an_unreadable_object_is_not_removed() -> None:
    async with open_site() as (peer, first, _, _):
        peer.items["/user1/loadsim/theirs.ics"] = "unreadable"
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: (
            replace(answer, body=re.sub("<response><href>[^<]*theirs.*?</response>", "", answer.body))
            if method == "REPORT"
            else answer
        )
        assert await first.clean() == 1
        assert peer.of("user1", "loadsim") == ["unreadable"]


async def test_without_scheduling_there_is_no_inbox() -> None:
    async with calendar_peer((FIRST, SECOND), schedules=False) as (peer, endpoint):
        first = CalDavCalendars(endpoint, 60.0).of(FIRST, Ear())
        await first.store(EVENT, changes=False)
        await first.follow()
        assert not await first.schedules()
        assert {path for _, path, _ in peer.requests if "inbox" in path} == set()
        await first.close()


async def test_a_server_without_a_well_known_target_is_asked_at_its_root() -> None:
    async with open_site() as (peer, first, _, _):
        peer.change = lambda method, path, answer: Answer(404) if "well-known" in path else answer
        await first.follow()


@pytest.mark.parametrize(
    ("path", "answer", "kind"),
    [
        ("/.well-known/caldav", Answer(301, fields={"Location": "http://192.0.2.1/"}), "URL of another server"),
        ("/.well-known/caldav", Answer(301, fields={"Location": "/.well-known/caldav"}), "too many redirects PROPFIND"),
        ("/.well-known/caldav", Answer(301), "too many redirects PROPFIND"),
        ("/", multistatus([]), "no principal PROPFIND"),
        ("/", multistatus([found("/", "<current-user-principal/>")]), "no principal PROPFIND"),
        ("/user1/", multistatus([found("/user1/", "")]), "no calendars PROPFIND"),
        ("/", Answer(401), "401 PROPFIND"),
        ("/", Answer(500, "<error xmlns='DAV:'><secret-of-1/></error>"), "500 PROPFIND"),  # a word of the server's
        ("/", Answer(403, "<error xmlns='DAV:'><need-privileges/></error>"), "403 need-privileges PROPFIND"),
        ("/user1/", Answer(301, fields={"Location": "http://[x/"}), "CALDAV response"),
        ("/", Answer(207, "<multistatus xmlns='DAV:'>"), "CALDAV response"),
        ("/", Answer(207, ""), "CALDAV response"),
        ("/", Answer(200, "<html/>"), "CALDAV response"),
        ("/", None, "connection lost"),
    ],
)
async def test_a_discovery_that_fails_has_a_kind(path: str, answer: Answer | None, kind: str) -> None:
    async with open_site() as (peer, first, _, _):
        peer.change = lambda method, at, good: answer if at == path else good
        with pytest.raises(TaskFailed) as raised:
            await first.store(EVENT, changes=False)
        assert raised.value.kind == kind


async def test_a_wrong_password_is_refused_and_not_shown() -> None:
    async with calendar_peer((FIRST,)) as (_, endpoint):
        calendar = CalDavCalendars(endpoint, 60.0).of(replace(FIRST, password="wrong-one"), Ear())
        with pytest.raises(ServerRefused) as raised:
            await calendar.follow()
        assert "401" in str(raised.value) and "wrong-one" not in str(raised.value)
        await calendar.close()


async def test_a_server_that_is_gone_is_lost_and_a_connection_is_made_again() -> None:
    async with open_site() as (peer, first, _, ear):
        await first.store(EVENT, changes=False)
        peer.change = lambda method, path, answer: None
        with pytest.raises(ServerLost):
            await first.follow()
        peer.change = lambda method, path, answer: answer
        await first.follow()
        assert [name for name, *_ in ear.commands].count("CALDAV connection") == 2


BOMB = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><multistatus>&b;</multistatus>"


@pytest.mark.parametrize(
    "body",
    [
        BOMB.encode(),
        b"<!DOCTYPE x SYSTEM 'file:///etc/passwd'><x/>",
        b"<multistatus xmlns='DAV:'>&lol;</multistatus>",
        b"<a>" * 41 + b"</a>" * 41,
        b"<a>" + b"<b/>" * 200_001 + b"</a>",
        b"<?xml version='1.0' encoding='utf-99'?><a/>",
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        b"<a xmlns:x='y'><x:b></a>",
        b"<multistatus xmlns='DAV:'><response><href>/</href><status>OK</status></response></multistatus>",
        b"<multistatus xmlns='DAV:'><response><propstat><prop/></propstat></response></multistatus>",
        b"\xff\xfe\x00",
    ],
)
def test_xml_that_no_server_may_send_is_a_violation(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        xml.read_multistatus(body)


@given(st.binary(max_size=200) | st.text(alphabet="<>/&;a!DOCTYPE[]' ", max_size=60).map(str.encode))
def test_any_body_is_a_value_or_a_violation(body: bytes) -> None:
    for text in (body, b"<multistatus xmlns='DAV:'>" + body + b"</multistatus>"):
        with suppress(ProtocolError):
            xml.read_multistatus(text)
        xml.precondition(text)


def test_an_object_that_would_take_long_to_read_is_not_read() -> None:
    text = write_event(EVENT, BEGIN)
    assert read_event(text)[0].uid == uid_of(text) == EVENT.uid
    large = text.replace(b"END:VEVENT", b"X-A:b\r\n" * 10_000 + b"END:VEVENT")
    assert uid_of(large) == ""
    with pytest.raises(ProtocolError, match="at most 65536 bytes"):
        read_event(large)


def test_a_duration_in_place_of_the_end_is_the_same_event() -> None:
    text, end = write_event(EVENT, BEGIN), b"DTEND:20261201T100000Z\r\n"
    assert end in text
    stated, without = (read_event(text.replace(end, line))[0] for line in (b"DURATION:PT1H\r\n", b""))
    assert stated.tag == EVENT.tag != without.tag


LINES = st.sampled_from(write_event(EVENT, BEGIN).decode().splitlines()) | st.text(max_size=30)


@given(st.lists(LINES, max_size=20).map("\r\n".join).map(str.encode) | st.binary(max_size=100))
def test_any_text_is_an_event_or_a_violation(text: bytes) -> None:
    uid_of(text)
    try:
        event, _ = read_event(text)
    except ProtocolError:
        return
    assert event.begin.tzinfo is event.end.tzinfo is UTC


@pytest.mark.parametrize(
    ("uid", "own"),
    [
        (EVENT.uid, ("s1.0", "run-1")),
        (EVENT.uid.upper().replace("LOADSIM-S", "loadsim-s"), ("s1.0", "RUN-1")),
        ("loadsim-s1.0.run-1@other.example", None),
        ("s1.0.run-1@example.com", None),
        ("loadsim-n1.0.run-1@example.com", None),
        (EVENT.uid + "\n", None),
        ("", None),
    ],
)
def test_only_our_uids_are_our_events(uid: str, own: tuple[str, str] | None) -> None:
    assert own_event(uid, DOMAIN) == own
