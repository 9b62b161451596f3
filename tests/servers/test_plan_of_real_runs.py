"""The traffic of a plan and of a run: by loadsim's log, and by Dovecot's and Postfix's own counts."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mailservers import short_directory
from small_runs import loadsim, on, population_of, written

from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

pytestmark = pytest.mark.nightly(part="runs")

USERS, DAY_S = 30, 240
"""A day of 8 hours in that time. In a shorter day, a server gathers more announcements, and a busy machine falls
behind: of 60 s, with 15 processes for two cores, 6 % of the messages were not sent before the end.
"""

SERVER_DEPENDENT = {"IMAP UID FETCH": 0.05, "IMAP IDLE": 0.1}
"""The commands after an announcement, each with the difference allowed.

A server that gathers announcements receives fewer of them. Users who are behind their plan idle less often: a busy
machine made 8 % fewer IDLE, and 2.6 % fewer IMAP commands in all.
"""

NOT_COUNTED = ("IMAP CONNECT", "IMAP DONE", "SMTP CONNECT", "SMTP QUIT")


SCENARIO: dict[str, Any] = {
    "topology": [{"profile": "loadsim-5.5/medium", "users": USERS}],
    "run": {"day_length": f"{DAY_S}s", "ramp_up": "1s", "warm_up": "2s", "window": f"{DAY_S - 4}s"},
}


def within_the_hours(log: TimingLog, day_s: float) -> Counter[str]:
    """The commands of a run by name, from the common start to the end of the day."""
    begun = log.commands[(log.commands["started_us"] >= 0) & (log.commands["started_us"] < day_s * 1_000_000)]
    found = Counter(log.strings[number] for number in begun["command"].tolist())
    return Counter({name: times for name, times in found.items() if name not in NOT_COUNTED})


def of_service(commands: Counter[str], service: str) -> int:
    return sum(times for name, times in commands.items() if name.startswith(f"{service} "))


def planned(path: Path) -> dict[str, Any]:
    ended = loadsim("plan", path, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def made(path: Path, out: Path) -> TimingLog:
    ended = loadsim("run", "--no-report", path, "--out", out)
    assert ended.returncode in (0, 1), ended.stderr + ended.stdout
    return read_logs([out])


def compare(plan: dict[str, Any], log: TimingLog, gathers: bool = False, keywords: bool = True) -> None:
    """Commands, messages and bytes per second within 5 %, in all and by name.

    A server that `gathers` receives fewer commands: as many as the plan states, half of them IDLE and half UID FETCH.
    One that keeps no `keywords` receives none for messages that were forwarded.
    """
    day_s, rates = plan["day_s"], plan["rates_per_s"]
    found = within_the_hours(log, day_s)
    expected: Counter[str] = Counter()
    for hour in plan["by_hour"][1:-1]:
        expected.update(hour["commands"])
        if not keywords:
            expected["IMAP UID STORE"] -= hour["tasks"]["FORWARD"]
    gathered = 2 * plan["gathered_syncs"] if gathers else 0
    # 1. Each command by name.
    for name in (expected.keys() | found.keys()) - {*SERVER_DEPENDENT, *NOT_COUNTED}:
        assert found[name] == pytest.approx(expected[name], rel=0.05, abs=3), name
    for name, within in SERVER_DEPENDENT.items():
        assert found[name] == pytest.approx(expected[name] - gathered / 2, rel=within), name
    # 2. The rates of all.
    assert of_service(found, "IMAP") == pytest.approx(rates["imap_commands"] * day_s - gathered, rel=0.05)
    assert of_service(found, "SMTP") == pytest.approx(rates["smtp_commands"] * day_s, rel=0.05)
    assert found["SMTP DATA"] == pytest.approx(rates["messages"] * day_s, rel=0.05)
    assert found["SMTP RCPT"] == pytest.approx(expected["SMTP RCPT"], rel=0.05)
    data = log.commands[log.commands["command"] == log.strings.index("SMTP DATA")]
    assert data["sent_bytes"].sum() == pytest.approx(rates["bytes_sent"] * day_s, rel=0.05)


def test_a_run_on_the_embedded_server_does_the_plan(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", **SCENARIO)
    compare(planned(path), made(path, tmp_path / "out"), keywords=False)


def test_a_run_on_dovecot_and_postfix_does_the_plan(tmp_path: Path) -> None:
    """Less the commands of gathered announcements, which the plan states.

    Postfix's own lines say as many messages, recipients and bytes; the mailboxes grow by what is received.
    """
    path = written(tmp_path / "small.yaml", **SCENARIO)
    with (
        short_directory() as directory,
        start_dovecot_postfix(*population_of(load_scenario(str(path))), directory) as server,
    ):
        written(path, **SCENARIO, **on(server.services))
        plan = planned(path)
        compare(plan, made(path, tmp_path / "out"), gathers=True)
        lines = server.postfix.log.read_text().splitlines()
    taken = [line for line in lines if "/qmgr[" in line and "queue active" in line]
    sizes = [int(line.partition("size=")[2].partition(",")[0]) for line in taken]
    delivered = sum("status=sent" in line for line in lines)
    totals = plan["totals"]
    assert len(taken) == pytest.approx(totals["messages_sent"], rel=0.05)
    assert delivered == pytest.approx(totals["messages_received"], rel=0.05)
    # Postfix adds a Received line before it counts.
    assert sum(sizes) == pytest.approx(totals["bytes_sent"] + 200 * len(sizes), rel=0.05)
