"""Users with calendars on Cyrus, which delivers invitations between them, in a whole run."""

import json
from pathlib import Path

import pytest
import yaml
from agreement import events_by_log
from calendar_servers import CALDAV, CalendarReader, Stored, read_calendars
from mailservers import numbered_accounts
from other_servers.cyrus import start_cyrus
from small_runs import loadsim, written
from virtual_runs import quiet

from loadsim.servers.private import free_port
from loadsim.timinglog.merge import read_logs

PLANNER = quiet(schedule={"per_day": 16}, new_mail={"per_day": 4, "recipients": 2}) | {"name": "planner"}
"""Users add more events than stay in a calendar."""


@pytest.mark.nightly(part="servers")
def test_invited_users_have_the_organizers_events(tmp_path: Path, server_directory: Path) -> None:
    """`clean` removes all of them, and what is in the scheduling Inboxes."""
    accounts = numbered_accounts(6)
    with start_cyrus(accounts, {}, server_directory, caldav_port=free_port()) as server:
        endpoint = server.services.endpoint("caldav")
        (tmp_path / "planner.yaml").write_text(yaml.safe_dump(PLANNER), encoding="utf-8")
        own = written(
            tmp_path / "planners.yaml",
            domain="example.test",
            server={name: {"host": each.host, "port": each.port} for name, each in server.services.endpoints.items()},
            accounts={"user": "user{index}", "password": "secret-of-{index}"},
            topology=[{"profile": "./planner.yaml", "users": len(accounts), "calendar": "caldav"}],
            lists={"count": 0},
            run={"day_length": "16s", "ramp_up": "1s", "warm_up": "2s", "window": "14s"},
        )
        checked = loadsim("check", own)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        run = loadsim("run", own, "--out", tmp_path / "run", "--no-report", "--even-invalid")
        assert run.returncode in (0, 1, 3), run.stderr + run.stdout
        score = json.loads((tmp_path / "run" / "score.json").read_text(encoding="utf-8"))
        assert {task["task"]: task["failed"] for task in score["tasks"] if task["failed"]} == {}
        audit = json.loads((tmp_path / "run" / "audit.json").read_text(encoding="utf-8"))
        assert (audit["mailboxes"], audit["counts"]) == (len(accounts), {})

        calendars, made = read_calendars(endpoint, accounts), events_by_log(accounts, read_logs([tmp_path / "run"]))
        uids, invited = set[str]().union(*made.values()), 0
        for events in calendars.values():
            assert all(cancelled(events[uid]) for uid in events.keys() - uids)
        for organizer, kept in made.items():
            for uid in kept:
                event = calendars[organizer][uid]
                copies = {login: events[uid] for login, events in calendars.items() if uid in events}
                assert {*copies} == {organizer, *attendees(event)}
                assert {shown(each) for each in copies.values()} == {shown(event)}
                invited += len(copies) - 1
        assert invited

        cleaned = loadsim("clean", own)
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
