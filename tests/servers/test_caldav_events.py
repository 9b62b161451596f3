"""Calendars by CalDAV in whole runs, with `init`, `check`, `audit` and `clean`, on Radicale and xandikos."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from agreement import events_by_log
from calendar_servers import STARTS, CalendarReader, StartCalendarServer, read_calendars
from imap_script import Ear
from mailservers import StartEmbedded
from small_runs import loadsim, on, population_of, written
from virtual_runs import quiet

from loadsim.model.calendar_event import Event, event_uid
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.caldav.calendar import CalDavCalendars
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.slow

USERS = 4

FOREIGN = (
    "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:-//example.test//EN\r\nBEGIN:VEVENT\r\nUID:theirs\r\n"
    "DTSTAMP:20260101T000000Z\r\nDTSTART:20260302T100000Z\r\nSUMMARY:Theirs\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


@pytest.fixture(scope="module", params=STARTS)
def site(
    request: pytest.FixtureRequest,
    embedded_server: StartEmbedded,
    calendar_server: StartCalendarServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Endpoint, Sequence[Account]]:
    """A scenario on running servers, the calendar server, and the users' accounts."""
    place = tmp_path_factory.mktemp(request.param)
    profile = quiet(schedule={"per_day": 12}, new_mail={"per_day": 2, "recipients": 2})
    (place / "users.yaml").write_text(json.dumps({"name": "users", **profile}))
    group = {"profile": str(place / "users.yaml"), "users": USERS, "calendar": "caldav"}
    hours = {"day_length": "16s", "ramp_up": "1s", "warm_up": "0s", "window": "16s", "audit": True}
    fixed: dict[str, Any] = {"topology": [group], "run": hours, "lists": {"count": 0}}
    mailboxes = {"topology": [{key: group[key] for key in ("profile", "users")}]}
    accounts, lists = population_of(load_scenario(str(written(place / "mail.yaml", **(fixed | mailboxes)))))
    keys = on(embedded_server(accounts, lists).services)
    endpoint = calendar_server(request.param, accounts).services.endpoint("caldav")
    tls = {} if endpoint.ca_file is None else {"tls": "implicit", "ca_file": endpoint.ca_file}
    keys["server"]["caldav"] = {"host": endpoint.host, "port": endpoint.port, **tls}
    return written(place / "scenario.yaml", **fixed, **keys), endpoint, accounts


async def test_an_event_is_stored_changed_followed_and_removed(site: tuple[Path, Endpoint, Sequence[Account]]) -> None:
    """With the token that the server gave, and with one that it never gave."""
    _, endpoint, accounts = site
    account, ear = accounts[-1], Ear()
    calendar = CalDavCalendars(endpoint, 60.0).of(account, ear)
    begin = datetime(2026, 12, 1, 9, tzinfo=UTC)
    uid = event_uid("s4.0", "run-1", account.domain)
    event = Event(
        uid, "Lunch, or; not", begin, begin + timedelta(hours=1), "FREQ=WEEKLY;COUNT=8", "Room 1, Main Street"
    )
    assert await calendar.store(event, changes=False)
    await calendar.follow()
    changed = replace(event, summary="Grüne Runde \\ zwei", begin=begin + timedelta(minutes=15))
    assert await calendar.store(changed, changes=True)
    calendar._token = "nonsense"
    await calendar.follow()
    (stored,) = read_calendars(endpoint, [account])[account.login][uid].events
    assert (stored["SUMMARY"], stored["DTSTART"].dt) == (changed.summary, changed.begin)
    assert (stored["RRULE"]["FREQ"], stored["RRULE"]["COUNT"]) == (["WEEKLY"], [8])
    await calendar.remove(changed)
    await calendar.follow()
    await calendar.clean()
    await calendar.close()
    assert read_calendars(endpoint, [account]) == {account.login: {}}
    outcomes = [outcome for name, outcome, *_ in ear.commands if name == "CALDAV sync-collection"]
    assert outcomes == ["ok", "refused", "ok", "ok"]


def uids(endpoint: Endpoint, accounts: Sequence[Account]) -> dict[str, set[str]]:
    return {login: {*found} for login, found in read_calendars(endpoint, accounts).items()}


def test_a_run_leaves_what_its_records_say_and_clean_and_check_nothing(
    site: tuple[Path, Endpoint, Sequence[Account]], tmp_path: Path
) -> None:
    """Another program's event stays; the run's are counted by a reader that has none of loadsim's code."""
    scenario, endpoint, accounts = site
    first = CalendarReader(endpoint, accounts[0])
    assert first.ask("MKCALENDAR", f"{first.home()}private/")[0] == 201
    assert first.ask("PUT", f"{first.home()}private/theirs.ics", FOREIGN, Content_Type="text/calendar")[0] == 201

    ran = loadsim("run", scenario, "--out", tmp_path / "out")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    score = json.loads((tmp_path / "out" / "score.json").read_text())
    (task,) = (task for task in score["tasks"] if task["task"] == "SCHEDULE")
    assert task["hits"] > 0
    assert task["failed"] == 0
    assert score["delivery"]["altered"] == 0
    log = read_logs([tmp_path / "out"])
    assert log.header.calendars == "caldav"
    sent = [log.strings[command] for command in log.commands["command"]]
    assert {"CALDAV MKCALENDAR"}.isdisjoint(sent), "init has made the calendars"
    assert all(sent.count(f"CALDAV {name}") >= task["hits"] for name in ("PUT", "GET", "sync-collection"))

    expected = events_by_log(accounts, log)
    expected[accounts[0].login].add("theirs")
    assert uids(endpoint, accounts) == expected

    assert audit_of(tmp_path / "out") == {}
    login, uid = next((login, uid) for login, kept in expected.items() for uid in kept if uid != "theirs")
    account = next(account for account in accounts if account.login == login)
    stored = read_calendars(endpoint, accounts)[login][uid]
    assert CalendarReader(endpoint, account).ask("DELETE", stored.path)[0] in (200, 204)
    loadsim("audit", tmp_path / "out", "--set", "accounts.password=secret-{index}")
    assert audit_of(tmp_path / "out") == {"mail-lost": 1}

    cleaned = loadsim("clean", scenario)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    nothing = {account.login: set[str]() for account in accounts} | {accounts[0].login: {"theirs"}}
    assert uids(endpoint, accounts) == nothing
    places = [place for account in accounts for place in CalendarReader(endpoint, account).calendars()]
    assert not any(place.endswith("/loadsim/") for place in places)

    checked = loadsim("check", scenario)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "calendar server" in checked.stdout
    assert "PUT, GET" in checked.stdout
    assert uids(endpoint, accounts) == nothing


def audit_of(run: Path) -> dict[str, int]:
    """The faults that the run's audit has found in all mailboxes and calendars."""
    audit = json.loads((run / "audit.json").read_text())
    assert (audit["mailboxes"], audit["unread"], audit["unknown"]) == (USERS, 0, 0)
    counts: dict[str, int] = audit["counts"]
    return counts


def test_a_calendar_server_that_is_not_there_is_one_line(
    site: tuple[Path, Endpoint, Sequence[Account]], tmp_path: Path
) -> None:
    ran = loadsim("run", site[0], "--out", tmp_path / "out", "--set", "server.caldav.port=1")
    assert ran.returncode == 2
    expected = "server.caldav: expected the user's calendars, found: connection refused"
    assert ran.stderr.strip().splitlines()[-1].endswith(expected)
