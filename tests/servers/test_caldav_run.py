"""`loadsim check`, `run` and `clean` with calendars on Radicale, xandikos and Cyrus, which the tests' reader reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from agreement import events_by_log
from calendar_servers import CALDAV, STARTS, CalendarReader, StartCalendarServer, Stored, read_calendars
from mailservers import numbered_accounts, start_jmap_peer
from other_servers.cyrus import start_cyrus
from patience import PATIENT_CRITERIA
from small_runs import loadsim, written
from virtual_runs import quiet

from loadsim.model.ports import Account, Services
from loadsim.servers.private import free_port
from loadsim.timinglog.merge import read_logs

PLANNER = quiet(schedule={"per_day": 16}, new_mail={"per_day": 4, "recipients": 2}) | {"name": "planner"}
"""Users add more events than stay in a calendar."""

FOREIGN = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//example.test//EN\r
BEGIN:VEVENT\r
UID:birthday@example.test\r
DTSTAMP:20260101T000000Z\r
DTSTART;VALUE=DATE:20990302\r
SUMMARY:Birthday\r
END:VEVENT\r
END:VCALENDAR\r
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has ended: its scenario, the calendars that it left, and their UIDs by the log, both by login."""

    scenario: Path
    calendars: dict[str, dict[str, Stored]]
    by_log: dict[str, set[str]]


def ran(place: Path, services: Services, accounts: Sequence[Account], protocol: str) -> Ended:
    """Check the server, and run a compressed day on it."""
    (place / "planner.yaml").write_text(yaml.safe_dump(PLANNER), encoding="utf-8")
    keys = ("host", "port", "tls", "ca_file")
    own = written(
        place / "planners.yaml",
        domain="example.test",
        server={
            name: {key: getattr(endpoint, key) for key in keys if getattr(endpoint, key) is not None}
            for name, endpoint in services.endpoints.items()
        },
        accounts={"user": "user{index}", "password": "secret-of-{index}"},
        topology=[{"profile": "./planner.yaml", "users": len(accounts), "protocol": protocol, "calendar": "caldav"}],
        lists={"count": 0},
        run={"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"},
        criteria=PATIENT_CRITERIA,
    )
    checked = loadsim("check", own)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    run = loadsim("run", own, "--out", place / "run", "--no-report", "--even-invalid")
    assert run.returncode in (0, 1, 3), run.stderr + run.stdout
    score = json.loads((place / "run" / "score.json").read_text(encoding="utf-8"))
    failed = {task["task"]: task["failed"] for task in score["tasks"] if task["hits"]}
    assert "SCHEDULE" in failed
    assert not any(failed.values()), failed
    audit = json.loads((place / "run" / "audit.json").read_text(encoding="utf-8"))
    assert (audit["mailboxes"], audit["counts"]) == (len(accounts), {})
    by_log = events_by_log(accounts, read_logs([place / "run"]))
    assert any(by_log.values())
    return Ended(own, read_calendars(services.endpoint("caldav"), accounts), by_log)


@pytest.mark.slow
@pytest.mark.parametrize("name", STARTS)
def test_calendars_are_as_the_log_says(tmp_path: Path, calendar_server: StartCalendarServer, name: str) -> None:
    """Also, `clean` leaves a user's own calendar alone, and removes all else."""
    accounts = numbered_accounts(4)
    endpoint = calendar_server(name, accounts).services.endpoint("caldav")
    first = CalendarReader(endpoint, accounts[0])
    private = f"{first.home()}private/"
    assert first.ask("MKCALENDAR", private)[0] == 201
    assert first.ask("PUT", f"{private}birthday.ics", FOREIGN, Content_Type="text/calendar")[0] == 201
    before = read_calendars(endpoint, accounts)
    with start_jmap_peer(accounts, caldav=endpoint) as services:
        ended = ran(tmp_path, services, accounts, "jmap")
        cleaned = loadsim("clean", ended.scenario)
        assert cleaned.returncode == 0, cleaned.stderr
    assert {login: {*events} - before[login].keys() for login, events in ended.calendars.items()} == ended.by_log
    assert read_calendars(endpoint, accounts) == before
    assert first.calendars() == [private]


@pytest.mark.nightly(part="servers")
def test_invitations_on_cyrus_are_those_of_the_organizers(tmp_path: Path, server_directory: Path) -> None:
    """All users' copies of an event are alike; `clean` removes them, and what is in the scheduling Inboxes."""
    accounts = numbered_accounts(6)
    with start_cyrus(accounts, {}, server_directory, caldav_port=free_port()) as server:
        endpoint = server.services.endpoint("caldav")
        ended = ran(tmp_path, server.services, accounts, "imap")
        own, invited = ended.by_log, 0
        uids = set().union(*own.values())
        for login, events in ended.calendars.items():
            assert own[login] <= events.keys()
            assert all(cancelled(events[uid]) for uid in events.keys() - uids)
        for organizer, made in own.items():
            for uid in made:
                event = ended.calendars[organizer][uid]
                copies = {login: events[uid] for login, events in ended.calendars.items() if uid in events}
                assert {*copies} == {organizer, *attendees(event)}
                assert {shown(each) for each in copies.values()} == {shown(event)}
                invited += len(copies) - 1
        assert invited

        cleaned = loadsim("clean", ended.scenario)
        assert cleaned.returncode == 0, cleaned.stderr
        assert not any(read_calendars(endpoint, accounts).values())
        for account in accounts:
            reader = CalendarReader(endpoint, account)
            [inbox] = reader.calendars(f"{CALDAV}schedule-inbox")
            assert [*reader.found(inbox, 1, "D:getetag")] == [inbox]


def attendees(stored: Stored) -> set[str]:
    """The logins of those whom an event invites."""
    found = stored.events[0].get("ATTENDEE", [])
    addresses = found if isinstance(found, list) else [found]
    return {str(each).removeprefix("mailto:").partition("@")[0] for each in addresses}


def cancelled(stored: Stored) -> bool:
    return str(stored.events[0].get("STATUS")) == "CANCELLED"


def shown(stored: Stored) -> tuple[str, ...]:
    """Return the summary and the times of an event."""
    event = stored.events[0]
    return (str(event["SUMMARY"]), *(event[name].to_ical().decode() for name in ("DTSTART", "DTEND")))
