"""The traffic of a plan beside that of a run: by loadsim's log, and by what Dovecot and Postfix count themselves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mailservers import short_directory
from small_runs import loadsim, on, population_of, written

from loadsim.model.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog

pytestmark = pytest.mark.slow

MEDIUM = {"topology": [{"profile": "loadsim-5.5/medium", "users": 10}]}
RUN = {"run": {"day_length": "40s", "ramp_up": "1s", "warm_up": "2s", "window": "36s"}}

SERVER_DEPENDENT = ("IMAP IDLE", "IMAP UID FETCH")
"""The commands after an announcement; servers gather announcements, and slow ones make fewer users idle."""


def within_the_hours(log: TimingLog) -> Counter[str]:
    """The commands of a run by name, from the common start to the end of the day."""
    begun = log.commands[(log.commands["started_us"] >= 0) & (log.commands["started_us"] < 40_000_000)]
    return Counter(log.strings[number] for number in begun["command"].tolist())


def planned(path: Path) -> dict[str, Any]:
    ended = loadsim("plan", path, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def made(path: Path, out: Path) -> TimingLog:
    ended = loadsim("run", "--no-report", path, "--out", out)
    assert ended.returncode in (0, 1), ended.stderr + ended.stdout
    return read_logs([out])


def compare(plan: dict[str, Any], log: TimingLog) -> None:
    """Commands, messages and bytes per second within 5 %; those that depend on the server are at most as planned."""
    found, rates = within_the_hours(log), plan["rates_per_s"]
    expected: Counter[str] = Counter()
    for hour in plan["by_hour"][1:-1]:
        expected.update(hour["commands"])
    for name in expected.keys() - SERVER_DEPENDENT:
        assert found[name] == pytest.approx(expected[name], rel=0.05, abs=3), name
    for name in SERVER_DEPENDENT:
        assert 0.5 * expected[name] < found[name] < 1.02 * expected[name], name
    smtp = sum(n for name, n in found.items() if name.startswith("SMTP ")) - found["SMTP CONNECT"]
    assert smtp / 40 == pytest.approx(rates["smtp_commands"], rel=0.05)
    assert found["SMTP DATA"] / 40 == pytest.approx(rates["messages"], rel=0.05)
    data = log.strings.index("SMTP DATA")
    sent = log.commands[log.commands["command"] == data]["sent_bytes"].sum()
    assert sent / 40 == pytest.approx(rates["bytes_sent"], rel=0.05)


def test_on_the_embedded_server(tmp_path: Path) -> None:
    path = written(tmp_path / "small.yaml", **MEDIUM, **RUN)
    compare(planned(path), made(path, tmp_path / "out"))


def test_on_dovecot_and_postfix(tmp_path: Path) -> None:
    """Postfix's own lines say as many messages, recipients and bytes; the mailboxes grow by what is received."""
    path = written(tmp_path / "small.yaml", **MEDIUM, **RUN)
    with (
        short_directory() as directory,
        start_dovecot_postfix(*population_of(load_scenario(str(path))), directory) as server,
    ):
        written(path, **MEDIUM, **RUN, **on(server.services))
        plan = planned(path)
        compare(plan, made(path, tmp_path / "out"))
        lines = server.postfix.log.read_text().splitlines()
    taken = [line for line in lines if "/qmgr[" in line and "queue active" in line]
    sizes = [int(line.partition("size=")[2].partition(",")[0]) for line in taken]
    delivered = sum("status=sent" in line for line in lines)
    totals = plan["totals"]
    assert len(taken) == pytest.approx(totals["messages_sent"], rel=0.05)
    assert delivered == pytest.approx(totals["messages_received"], rel=0.05)
    # Postfix adds a Received line before it counts.
    assert sum(sizes) == pytest.approx(totals["bytes_sent"] + 200 * len(sizes), rel=0.05)
