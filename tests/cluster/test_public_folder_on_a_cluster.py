"""The public folder of a run whose users are divided among two machines."""

from collections import Counter
from pathlib import Path

import pytest
from cluster_commands import client, controller
from mailservers import StartDovecotPostfix, logged_on
from public_folders import FOLDER, USERS, posts, scenario_on
from small_runs import loadsim

from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.nightly(part="hosts")


def test_two_machines_share_one_public_folder(dovecot_postfix: StartDovecotPostfix, tmp_path: Path) -> None:
    """The machine with the first user makes its start state, once, and audits it for all; `clean` empties it."""
    path, server = scenario_on(dovecot_postfix, tmp_path)
    with logged_on(server, load_scenario(str(path)).account(1)) as one:
        one.append(f'"{FOLDER}"', "", "", b"Subject: of others\r\n\r\nnot loadsim's\r\n")
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        cluster = ("--cluster", address, "--clients", "2")
        out = tmp_path / "out"
        ended = loadsim("run", "--no-report", path, *cluster, "--out", out, "--set", "run.audit=yes")
        assert ended.returncode == 0, ended.stderr + ended.stdout
    log = read_logs([out])
    made = log.mails[(log.mails["event"] == EVENTS.index("saved")) & (log.mails["user"] == 0)]
    posted = Counter(mail["message"].decode() for mail in made)
    assert {mail["sender"] for mail in made} == {*range(1, USERS + 1)}
    assert posts(server).total() == len(posted) + 3 == posted.total() + 3
    assert not posted - posts(server)
    assert log.audit is not None and (log.audit.mailboxes, log.audit.findings) == (USERS, ())
    assert loadsim("clean", path).returncode == 0
    with logged_on(server, load_scenario(str(path)).account(2)) as two:
        assert two.select(f'"{FOLDER}"')[1] == [b"1"]
