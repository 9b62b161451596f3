"""Calendars in preparation and removal: before any change, their library; accounts whose calendar stays."""

import sys
from pathlib import Path

import pytest
import yaml

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint, Services
from loadsim.provisioning.clean import Cleaned, clean, describe
from loadsim.provisioning.initialise import initialise
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload

HOST = {"host": "127.0.0.1", "port": 1}
NOWHERE = Endpoint("127.0.0.1", 1)


async def test_a_missing_library_is_found_before_any_mailbox_is_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "icalendar", None)
    document = {
        "server": {"imap": HOST, "smtp": HOST, "caldav": HOST},
        "accounts": {"user": "user{index}", "password": "secret"},
        "topology": [{"profile": "loadsim-5.5/medium", "users": 2, "calendar": "caldav"}],
    }
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump(document))
    scenario = load_scenario(str(tmp_path / "scenario.yaml"))
    services = Services(NOWHERE, NOWHERE, caldav=NOWHERE)
    for act in (
        clean(scenario, services, dry_run=False, progress=lambda *_: None),
        initialise(Workload(scenario), services, "auto", lambda *_: None),
    ):
        with pytest.raises(ConfigError, match=r"^server\.caldav: expected the package icalendar"):
            await act


def test_an_account_whose_calendar_failed_counts_with_what_was_removed() -> None:
    accounts = [Account(user, f"user{user}", f"user{user}@example.com", "secret") for user in (1, 2)]
    failed = [Cleaned(each, {"INBOX": 3}, (), {}, failure="no calendar" * (each.number == 2)) for each in accounts]
    assert describe(failed, dry_run=False).startswith("Removed 6 messages and 0 folders from 2 of 2 accounts; ")
