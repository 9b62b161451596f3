"""The start state as Maildir trees: what Dovecot reads in them, and what loadsim then finds to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from mailservers import StartDovecotPostfix, numbered_accounts
from provisioning import USERS, lab_maker

from loadsim.cli import main
from loadsim.provisioning.clean import clean
from loadsim.provisioning.initialise import StoredState, initialise

pytestmark = pytest.mark.nightly(part="runs")

STATED = (
    "mailbox={inbox: 30, deleted_items: 2, folders: 6, fan_out: 2, messages_per_folder: 4,"
    " sizes: {1500: 70%, 40K: 30%}, age_days: 400}"
)


def quiet(phase: str, done: int, total: int) -> None:
    """Progress for nobody."""


@pytest.mark.parametrize("setting", [STATED, "mailbox={}"])
def test_dovecot_has_the_start_state(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags, order, dates and bytes as over IMAP: init has nothing to do; clean leaves only an empty Inbox."""
    accounts = numbered_accounts(USERS)
    server = dovecot_postfix(accounts)
    lab = lab_maker(server, accounts, tmp_path)().with_settings(setting)
    arguments = ["topology", "export", str(lab.path), "--set", setting, "--format", "maildir"]
    assert main([*arguments, "--out", str(server.layout.mail), "--owner", "dovecot"]) == 0
    start = StoredState(lab.workload)
    messages = sum(sum(start.folders(user).values()) for user in range(1, USERS + 1))
    assert f"Wrote {messages} messages" in capsys.readouterr().out

    for user, found in enumerate(lab.snapshots(), start=1):
        assert len(found.pop("LoadSim")) == 1
        assert found.keys() == start.folders(user).keys()
        for folder, stored in found.items():
            wanted = [
                (frozenset(flag.value.lower() for flag in each.flags), each.message)
                for each in start.messages(user, folder)
            ]
            assert [(each.flags, each.message) for each in stored] == wanted, folder
    done = asyncio.run(initialise(lab.workload, lab.services, "auto", quiet))
    assert not done.changed
    dates = server.doveadm("fetch", "-u", accounts[0].login, "date.received.unixtime", "mailbox", "INBOX").split()[1::2]
    if setting is STATED:
        assert [int(date) for date in dates] == [
            each.received_us // 1_000_000 for each in start.messages(1, "INBOX") if each.received_us
        ]
    cleaned = asyncio.run(clean(lab.scenario, lab.services, False, quiet))
    assert not any(one.failure for one in cleaned)
    assert all(set(state) == {"INBOX"} and not state["INBOX"] for state in lab.snapshots())
