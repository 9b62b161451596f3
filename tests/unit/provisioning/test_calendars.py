"""Calendars in preparation and removal: before any change, their library; accounts whose calendar stays."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from caldav_peer import calendar_peer
from imap_script import Ear

from loadsim.errors import ConfigError
from loadsim.model.calendar_event import CalendarEvent, event_uid
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.protocols.caldav.calendar import CalDavCalendars
from loadsim.provisioning.clean import Cleaned, clean, describe
from loadsim.provisioning.initialise import Inspection, initialise, restore
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload

HOST = {"host": "127.0.0.1", "port": 1}
NOWHERE = Endpoint("127.0.0.1", 1)


def scenario_of(place: Path, **keys: Any) -> Scenario:
    document = {
        "server": {"imap": HOST, "smtp": HOST, "caldav": HOST},
        "accounts": {"user": "user{index}", "password": "secret"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": 2, "calendar": "caldav"}],
    } | keys
    (place / "scenario.yaml").write_text(yaml.safe_dump(document))
    return load_scenario(str(place / "scenario.yaml"))


async def test_a_missing_library_is_found_before_any_mailbox_is_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)
    scenario = scenario_of(tmp_path)
    services = Services(NOWHERE, NOWHERE, caldav=NOWHERE)
    for act in (
        clean(scenario, services, dry_run=False, progress=lambda *_: None),
        initialise(Workload(scenario), services, "auto", lambda *_: None),
    ):
        with pytest.raises(ConfigError, match=r"^server\.caldav: expected the package icalendar"):
            await act


async def test_removed_events_are_a_change_of_the_start_state(tmp_path: Path) -> None:
    """So no audit is allowed of the run that made them, which would miss them."""
    scenario = scenario_of(tmp_path, domain="example.com")
    accounts = [scenario.account(user) for user in (1, 2)]
    async with calendar_peer(accounts) as (_, endpoint):
        services, inspected = Services(NOWHERE, NOWHERE, caldav=endpoint), Inspection(2, [], calendars=accounts)
        steps: list[tuple[str, int, int]] = []
        for removed in (1, 0):
            begin = datetime(2026, 12, 1, 9, tzinfo=UTC)
            event = CalendarEvent(event_uid("s1.0", "run-1", "example.com"), "Lunch", begin, begin, "")
            if removed:
                calendar = CalDavCalendars(endpoint, 60.0).of(accounts[0], Ear())
                await calendar.store(event, changes=False)
                await calendar.close()
            done = await restore(Workload(scenario), services, "auto", inspected, lambda *step: steps.append(step))
            assert ("nothing to do" in done.describe()) == (not removed)
            assert done.removed == removed
        assert steps[:3] == [("initialise", done, 2) for done in range(3)]


def test_an_account_whose_calendar_failed_counts_with_what_was_removed() -> None:
    accounts = [Account(user, f"user{user}", f"user{user}@example.com", "secret") for user in (1, 2)]
    failed = [Cleaned(each, {"INBOX": 3}, (), {}, failure="no calendar" * (each.number == 2)) for each in accounts]
    assert describe(failed, dry_run=False).startswith("Removed 6 messages and 0 folders from 2 of 2 accounts; ")
