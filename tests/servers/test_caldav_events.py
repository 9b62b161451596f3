"""Events by CalDAV on Radicale and xandikos: the client alone, a run whose audit misses one, and no server at all."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from calendar_servers import STARTS, CalendarReader, StartCalendarServer, read_calendars
from imap_script import Ear
from mailservers import StartEmbedded, numbered_accounts
from small_runs import loadsim, on, population_of, written
from virtual_runs import quiet

from loadsim.model.calendar_event import CalendarEvent, event_uid
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.caldav.calendar import CalDavCalendars
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", STARTS)
async def test_an_event_is_stored_changed_followed_and_removed(calendar_server: StartCalendarServer, name: str) -> None:
    """With the token that the server gave, and with one that it never gave."""
    accounts = numbered_accounts(1)
    endpoint, ear = calendar_server(name, accounts).services.endpoint("caldav"), Ear()
    calendar = CalDavCalendars(endpoint, 60.0).of(accounts[0], ear)
    begin = datetime(2026, 12, 1, 9, tzinfo=UTC)
    uid = event_uid("s1.0", "run-1", accounts[0].domain)
    event = CalendarEvent(
        uid, "Lunch, or; not", begin, begin + timedelta(hours=1), "FREQ=WEEKLY;COUNT=8", "Room 1, Main Street"
    )
    assert await calendar.store(event, changes=False)
    await calendar.follow()
    changed = replace(event, summary="Grüne Runde \\ zwei", begin=begin + timedelta(minutes=15))
    assert await calendar.store(changed, changes=True)
    calendar._token = "nonsense"
    await calendar.follow()
    (stored,) = read_calendars(endpoint, accounts)[accounts[0].login][uid].events
    assert (stored["SUMMARY"], stored["DTSTART"].dt) == (changed.summary, changed.begin)
    assert (stored["RRULE"]["FREQ"], stored["RRULE"]["COUNT"]) == (["WEEKLY"], [8])
    await calendar.remove(changed)
    await calendar.follow()
    await calendar.clean()
    await calendar.close()
    assert read_calendars(endpoint, accounts) == {accounts[0].login: {}}
    outcomes = [outcome for name, outcome, *_ in ear.commands if name == "CALDAV sync-collection"]
    assert outcomes == ["ok", "refused", "ok", "ok"]


@pytest.fixture(scope="module")
def site(
    embedded_server: StartEmbedded, calendar_server: StartCalendarServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Endpoint, Sequence[Account]]:
    """A scenario on running servers, the calendar server, and the users' accounts."""
    place = tmp_path_factory.mktemp("site")
    (place / "users.yaml").write_text(json.dumps({"name": "users", **quiet(schedule={"per_day": 12})}))
    group = {"profile": str(place / "users.yaml"), "users": 2}
    hours = {"day_length": "8s", "ramp_up": "1s", "warm_up": "0s", "window": "8s", "audit": True}
    fixed: dict[str, Any] = {"topology": [group], "run": hours, "lists": {"count": 0}}
    accounts, lists = population_of(load_scenario(str(written(place / "mail.yaml", **fixed))))
    keys = on(embedded_server(accounts, lists).services)
    endpoint = calendar_server("radicale", accounts).services.endpoint("caldav")
    keys["server"]["caldav"] = {"host": endpoint.host, "port": endpoint.port}
    keys["topology"] = [group | {"calendar": "caldav"}]
    return written(place / "scenario.yaml", **(fixed | keys)), endpoint, accounts


def test_an_audit_misses_an_event_that_is_gone(site: tuple[Path, Endpoint, Sequence[Account]], tmp_path: Path) -> None:
    scenario, endpoint, accounts = site
    out = tmp_path / "out"
    ran = loadsim("run", scenario, "--out", out)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert faults_of(out) == {}
    account, uid, stored = next(
        (account, uid, stored)
        for account in accounts
        for uid, stored in CalendarReader(endpoint, account).events().items()
    )
    assert CalendarReader(endpoint, account).ask("DELETE", stored.path)[0] in (200, 204)
    loadsim("audit", out, "--set", "accounts.password=secret-{index}")
    assert faults_of(out) == {"mail-lost": 1}
    assert uid.removeprefix("loadsim-") in (out / "audit.csv").read_text()


def faults_of(run: Path) -> dict[str, int]:
    """The faults that the run's audit has found in all mailboxes and calendars."""
    audit = json.loads((run / "audit.json").read_text())
    assert (audit["mailboxes"], audit["unread"], audit["unknown"]) == (2, 0, 0)
    counts: dict[str, int] = audit["counts"]
    return counts


def test_a_calendar_server_that_is_not_there_is_one_line(
    site: tuple[Path, Endpoint, Sequence[Account]], tmp_path: Path
) -> None:
    ran = loadsim("run", site[0], "--out", tmp_path / "out", "--set", "server.caldav.port=1")
    assert ran.returncode == 2
    expected = "server.caldav: expected the user's calendars, found: connection refused"
    assert ran.stderr.strip().splitlines()[-1].endswith(expected)
