"""Stored mail that a real server loses in the middle of a run: the run must not pass."""

import imaplib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from findings_of import findings_in
from mailservers import StartDovecotPostfix
from patience import PATIENCE_S
from small_runs import AT_WORK, await_line, on, population_of, written

from loadsim.findings.catalogue import Code
from loadsim.model.ports import Account, Services
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.nightly(part="runs")


def wipe(services: Services, account: Account) -> int:
    """Expunge all messages of a mailbox but those of the Inbox and the calendar, as any client could; count them."""
    gone = 0
    with imaplib.IMAP4(services.imap.host, services.imap.port) as client:
        client.login(account.login, account.password)
        for line in client.list()[1]:
            assert isinstance(line, bytes)
            name = '"' + line.decode().rpartition(' "." ')[2].rpartition(' "/" ')[2].strip('"') + '"'
            if name not in ('"INBOX"', '"Calendar"', '"LoadSim"') and int(client.select(name)[1][0] or 0):
                client.store("1:*", "+FLAGS.SILENT", r"\Deleted")
                gone += len([each for each in client.expunge()[1] if each])
    return gone


def test_a_server_that_loses_stored_mail_does_not_pass(tmp_path: Path, dovecot_postfix: StartDovecotPostfix) -> None:
    """Criteria are missed, and each message that users found missing is one that was there."""
    path = written(tmp_path / "small.yaml")
    accounts, lists = population_of(load_scenario(str(path)))
    services = dovecot_postfix(accounts, lists).services
    path = written(tmp_path / "small.yaml", **on(services))
    accounts, _ = population_of(load_scenario(str(path)))
    command = [sys.executable, "-m", "loadsim", "run", "--no-report", path, "--out", tmp_path / "out", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            await_line(process, AT_WORK)
            gone = sum(wipe(services, account) for account in accounts)
            printed, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.terminate()
    assert process.returncode == 1, said
    score = json.loads(printed)
    assert 0 < score["delivery"]["missing"] <= gone
    assert Code.MAIL_FAULTS in [one.code for one in findings_in(score)]
