"""Log-on storms on real servers: all sessions dropped, a server that its command restarts, a command that fails."""

import csv
import io
import json
import math
import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from mailservers import StartDovecotPostfix
from processes import ended
from small_runs import loadsim, on, population_of, written

from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

pytestmark = pytest.mark.slow

USERS = 8
AT_S = 6
STORM: dict[str, Any] = {
    "topology": [{"profile": "loadsim-5.5/medium", "users": USERS}],
    "run": {"day_length": "24s", "ramp_up": "1s", "warm_up": "2s", "window": "22s"},
}
LOGGED_IN = re.compile(r"^(\d+) imap-login: Info: (?:Login|Logged in): user=<([^>]+)>", re.MULTILINE)


def stormy(directory: Path, outage: dict[str, Any], **changes: Any) -> tuple[dict[str, Any], int]:
    """Make a run with an outage. Return `score.json` and the exit status."""
    run = {**STORM["run"], "audit": False, "outage": {"at": f"{AT_S}s"} | outage}
    scenario = written(directory / "storm.yaml", **STORM | {"run": run} | changes)
    done = loadsim("run", "--no-report", scenario, "--out", directory / "run", "--json")
    return json.loads(done.stdout), done.returncode


def log_ons(directory: Path) -> dict[str, list[tuple[float, float, str]]]:
    """Each user's log-ons: when they began and ended, in seconds, and their outcomes."""
    exported = loadsim("log", "export", "csv", "--kind", "tasks", directory / "run").stdout
    found: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for row in csv.DictReader(io.StringIO(exported)):
        if row["task"] == "LOGON":
            begun_s = float(row["started_s"])
            found[row["user"]].append((begun_s, begun_s + float(row["service_ms"] or 0) / 1000, row["outcome"]))
    return found


def nearest(times: list[float], percent: int) -> float:
    return sorted(times)[math.ceil(len(times) * percent / 100) - 1]


def events(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "run" / "events.jsonl").read_text().splitlines()]


def test_all_sessions_are_dropped_at_the_same_instant(tmp_path: Path) -> None:
    criteria = {"recovery_p95_s": {"max": 1e6}, "recovery_unrecovered": {"max": 0}}
    score, _ = stormy(tmp_path, {"drop_sessions": True}, criteria=criteria)
    ends_s = [min(end for _, end, how in each if how == "ok" and end > AT_S) for each in log_ons(tmp_path).values()]
    assert (score["recovery_at_s"], score["recovery_users"], score["recovery_unrecovered"]) == (AT_S, USERS, 0)
    assert score["recovery_p50_s"] == pytest.approx(nearest(ends_s, 50) - AT_S, abs=0.001)
    assert score["recovery_max_s"] == pytest.approx(max(ends_s) - AT_S, abs=0.001)
    assert {each["name"]: each["passed"] for each in score["verdict"]["criteria"] if "recovery" in each["name"]} == {
        "recovery_p95_s": True,
        "recovery_unrecovered": True,
    }
    assert sum(each["users_on"] for each in events(tmp_path) if each["event"] == "outage") == USERS
    assert score["down_share"] == 0


@pytest.mark.system
def test_the_recovery_of_a_restarted_dovecot_is_that_of_its_own_log(
    tmp_path: Path, dovecot_postfix: StartDovecotPostfix
) -> None:
    """Each user's first log-in after the restart, by Dovecot's clock, lies within the log-on that ended the outage."""
    server = dovecot_postfix(*population_of(load_scenario(str(written(tmp_path / "before.yaml", **STORM)))))
    conf, log = server.layout.dovecot_conf, server.layout.dovecot_log
    server.layout.dovecot_extra.write_text('log_timestamp = "%s "\n')  # only the restarted server reads it
    group = os.getpgid(int((server.layout.dovecot_run / "master.pid").read_text()))
    restart = tmp_path / "restart.sh"
    again = f"for attempt in $(seq 300); do dovecot -c {conf} && exit 0; sleep 0.1; done; exit 1"
    # Stopped by doveadm, its imap processes went on for 30 s. The killed master is a zombie of ours, hence the rm.
    restart.write_text(f"kill -9 -{group}\nrm {server.layout.dovecot_run}/master.pid\n{again}\n")
    try:
        changes = on(server.services) | {"limits": {"drain": "1s"}}  # Postfix retries later
        score, _ = stormy(tmp_path, {"command": f"/bin/sh {restart}"}, **changes)
    finally:
        server.doveadm("stop")
    # By the timing log. On a machine that is too busy, some users do not come back before the run ends.
    recovering = {
        user: next((begun, end) for begun, end, how in each if how == "ok" and end > AT_S)
        for user, each in log_ons(tmp_path).items()
        if any(how == "ok" and end > AT_S for _, end, how in each)
    }
    assert recovering
    assert (score["recovery_users"], score["recovery_unrecovered"]) == (USERS, USERS - len(recovering))
    ends_s = [end for _, end in recovering.values()] + [math.inf] * score["recovery_unrecovered"]
    for percent, figure in ((50, "p50_s"), (95, "p95_s"), (100, "max_s")):
        counted = nearest(ends_s, percent) - AT_S
        assert float(score[f"recovery_{figure}"]) == pytest.approx(counted, abs=0.001)
    # By Dovecot's.
    zero_s = read_logs([tmp_path / "run"]).sources[0].zero_wall_ns / 1e9
    first: dict[str, int] = {}
    for at, login in LOGGED_IN.findall(log.read_text()):
        first.setdefault(str(int(login.removeprefix("user"))), int(at))
    assert first.keys() >= recovering.keys()
    for user, (begun, end) in recovering.items():
        assert math.floor(zero_s + begun) <= first[user] <= zero_s + end
    assert [each for each in events(tmp_path) if each["event"] == "outage command ended"]


@pytest.mark.parametrize("command", [f"{sys.executable} -c 'print(1); exit(7)'", "/does/not/exist"])
def test_a_command_that_fails_ends_the_run(tmp_path: Path, command: str) -> None:
    score, status = stormy(tmp_path, {"command": command}, criteria={"recovery_p95_s": {"max": 60}})
    assert status == 3
    assert [each["code"] for each in score["findings"] if each["cause"] == "fault"] == ["fault-ended"]
    assert (tmp_path / "run" / "outage.out").read_text() == ("1\n" if "exit" in command else "")
    assert score["recovery_users"] == 0


def test_a_command_that_hangs_is_ended_with_the_load(tmp_path: Path) -> None:
    """The load goes on meanwhile. The command's own children end with it."""
    pid = tmp_path / "pid"
    hangs = tmp_path / "hangs.sh"
    hangs.write_text(f"sleep 3600 & echo $! > {pid}; wait\n")
    run = {"day_length": "9s", "ramp_up": "1s", "warm_up": "2s", "window": "7s", "audit": False}
    run |= {"outage": {"at": "6s", "command": f"/bin/sh {hangs}"}}
    score, status = stormy(tmp_path, {}, run=run)
    assert status == 3
    (fault,) = (each["code"] for each in score["findings"] if each["cause"] == "fault")
    assert fault in ("fault-ended", "fault-at-end")  # the command's limit is the load's end
    assert ended(int(pid.read_text()))
