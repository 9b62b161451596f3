"""Known users on a real Dovecot and Postfix are derived back from the servers' logs, count by count."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mailservers import short_directory
from small_runs import loadsim, on, population_of, written

from loadsim.characterise.reading import read_logs as read_mail_logs
from loadsim.dryrun.plan import make_plan
from loadsim.scenario.profile import load_profile
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.records import EVENT

pytestmark = pytest.mark.nightly(part="runs")

DAY_S, EACH = 60, 5
SCENARIO: dict[str, Any] = {
    "topology": [
        {"profile": profile, "users": EACH} for profile in ("exchange/100", "loadsim-5.5/light", "loadsim-5.5/heavy")
    ],
    "lists": {"count": 2, "size": {"min": 2, "average": 4, "max": 8}},
    "run": {"day_length": f"{DAY_S}s", "ramp_up": "1s", "warm_up": "2s", "window": f"{DAY_S - 4}s", "audit": False},
}


def test_a_mixed_run_is_derived_back_from_the_logs(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", **SCENARIO)
    with (
        short_directory() as directory,
        start_dovecot_postfix(*population_of(load_scenario(str(path))), directory) as server,
    ):
        written(path, **SCENARIO, **on(server.services))
        plan = make_plan(load_scenario(str(path)))
        ended = loadsim("run", "--no-report", path, "--out", tmp_path / "out")
        assert ended.returncode in (0, 1), ended.stderr + ended.stdout
        logs = (server.postfix.log, server.layout.dovecot_log)
        reading = read_mail_logs(logs)
        characterised = loadsim("characterise", *logs, "--out", tmp_path / "measured")
        log_on_lines = logs[1].read_text().count("imap-login: Info: Login: user=<")
    # 1. User by user: loadsim's own log of the messages that the server accepted, for each recipient.
    log = read_logs([tmp_path / "out"])
    accepted = log.mails[log.mails["event"] == EVENT["accepted"]]
    received = Counter(accepted["user"].tolist())
    messages = {*zip(accepted["sender"].tolist(), accepted["message"].tolist(), strict=True)}
    sent = Counter(sender for sender, _ in messages)
    mailboxes = reading.traffic.mailboxes.values()
    users = range(1, 3 * EACH + 1)
    assert reading.unknown.lines == 0
    assert sorted((each.sent, each.received) for each in mailboxes) == sorted((sent[u], received[u]) for u in users)
    assert sum(each.log_ons for each in mailboxes) == log_on_lines
    assert sum(each.stored for each in mailboxes) == len(accepted)
    # 2. Rate by rate: the command's figures against the plan of this one day, within four standard errors.
    assert characterised.returncode == 0, characterised.stderr
    figures = json.loads((tmp_path / "measured" / "workload.json").read_text())
    expected = plan.whole.per_user
    for name in ("sent", "received"):
        found, error = (figures[name][key] * figures["days"] for key in ("per_day", "error"))
        assert abs(found - expected[name]) < 4 * error, name
    spread = math.sqrt(reading.traffic.recipients_squared) / reading.traffic.counts["messages"]
    assert abs(figures["recipients"] - expected["recipients_per_message"]) < 4 * spread
    assert load_profile(str(tmp_path / "measured" / "profile.yaml")).calculated is not None
