"""The driver `mapi` on a real server, which the environment names; `make nightly-mapi` runs it.

LOADSIM_MAPI_URL, as in a scenario; LOADSIM_MAPI_USER, such as "user{index}@example.com", of six empty test accounts;
LOADSIM_MAPI_PASSWORD, of them all; LOADSIM_MAPI_IMAP, "host:port" of the same mailboxes without TLS, if they have one.
"""

import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agreement import Mailboxes, differences, mailboxes_by_log
from small_runs import loadsim, written
from whole_mailboxes import ids_of, looking

from loadsim.model.ports import SENT_ITEMS, Endpoint
from loadsim.model.records import EVENTS
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog


def scenario_file(directory: Path) -> Path:
    url, user = os.environ["LOADSIM_MAPI_URL"], os.environ["LOADSIM_MAPI_USER"]
    start = {"inbox": 12, "deleted_items": 2, "folders": 3, "messages_per_folder": 4}
    profile = directory / "small.yaml"
    profile.write_text(json.dumps({"from": "loadsim-5.5/heavy", "name": "small", "start_state": start}))
    return written(
        directory / "scenario.yaml",
        server={"mapi": {"url": url}},
        accounts={"user": user, "password_env": "LOADSIM_MAPI_PASSWORD"},
        domain=user.rpartition("@")[2],
        topology=[{"profile": str(profile), "users": 6, "protocol": "mapi"}],
        run={"day_length": "60s", "ramp_up": "1s", "warm_up": "2s", "window": "58s"},
        lists={"count": 0},
        allow_hosts=[url.partition("://")[2].partition("/")[0].partition(":")[0]],
    )


def command(verb: str, path: Path, *arguments: str | Path) -> str:
    ended = loadsim(verb, path, *arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def by_log(scenario: Scenario, log: TimingLog) -> Mailboxes:
    """The server files a sent message when it accepts it, even if the day ends before SAVE SENT."""
    held = mailboxes_by_log(Workload(scenario), log)
    saved, accepted = (log.mails[log.mails["event"] == EVENTS.index(event)] for event in ("saved", "accepted"))
    for message in set(accepted["message"]) - set(saved["message"]):
        (sender,) = set(accepted["sender"][accepted["message"] == message])
        held[int(sender)].setdefault(SENT_ITEMS, Counter())[message.decode()] = 1
    return held


@pytest.mark.nightly(part="mapi")
def test_a_day_runs_on_a_real_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is done without failure, mailboxes agree with the log, and clean leaves nothing."""
    path, out = scenario_file(tmp_path), tmp_path / "out"
    command("init", path)
    assert "nothing to do" in command("init", path)
    command("run", path, "--no-report", "--out", out)
    score: dict[str, Any] = json.loads((out / "score.json").read_text())
    assert {each["task"]: each["failed"] for each in score["tasks"] if each["failed"]} == {}
    assert {each["task"] for each in score["tasks"] if each["planned"] and not each["hits"]} == set()
    assert score["by_protocol"].keys() == {"mapi"}
    if place := os.environ.get("LOADSIM_MAPI_IMAP"):
        password = os.environ["LOADSIM_MAPI_PASSWORD"]
        scenario = load_scenario(str(path))
        monkeypatch.setenv("LOADSIM_MAPI_PASSWORD", password)  # which loading takes from the environment
        host, _, port = place.rpartition(":")
        imap: Any = SimpleNamespace(imap=Endpoint(host, int(port)))
        held = {}
        for account in (scenario.account(user) for user in range(1, scenario.users + 1)):
            with looking(imap, account, {}) as eye:
                held[account.number] = ids_of(eye.read())
        assert differences(by_log(scenario, read_logs([out])), held) == []
    command("clean", path)
    assert "0 messages" in command("clean", path)
