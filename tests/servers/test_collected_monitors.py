"""Whole runs whose monitors the controller starts and ends, on the embedded server."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import client, controller, on_server
from findings_of import findings_in
from machines import machines
from mailservers import StartDovecotPostfix, StartEmbedded
from patience import PATIENCE_S, PATIENT_CRITERIA
from processes import ended as gone
from small_runs import AT_WORK, await_line, loadsim, on, population_of, written

from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

FIGURE = "probes.host@mx1.cpu_busy_share.mean"
CRITERIA = PATIENT_CRITERIA | {FIGURE: {"max": 1}}
SMALL: dict[str, Any] = {
    "topology": [{"profile": "loadsim-5.5/light", "users": 2}],
    "mailbox": {"folders": 1, "messages_per_folder": 1, "inbox": 2, "deleted_items": 0},
}
SHORT = {"day_length": "8s", "ramp_up": "1s", "warm_up": "1s", "window": "7s"}
MONITOR = f"{sys.executable} -m loadsim monitor --probe host --name mx1"


def declared(place: Path) -> dict[str, Any]:
    """A monitor on this machine, whose process writes its number into the file `pid`."""
    script = f"echo $$ > {place / 'pid'}; exec {MONITOR}"
    return {"mx1": {"command": f"sh -c {shlex.quote(script)}"}}


def monitored(place: Path, **changes: Any) -> Path:
    basic = {**SMALL, "run": SHORT, "criteria": CRITERIA, "monitors": declared(place)}
    return written(place / "small.yaml", **basic | changes)


def criterion(score: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in score["verdict"]["criteria"] if each["name"] == FIGURE]
    return dict(found)


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "loadsim", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_of(place: Path) -> int:
    return int((place / "pid").read_text())


@pytest.mark.system
def test_a_criterion_on_a_declared_monitor_is_judged_at_the_end(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path
) -> None:
    """Its samples cover the window, and it has ended by itself; the scenario of the run does not have its command."""
    out = tmp_path / "out"
    server = dovecot_postfix(*population_of(load_scenario(str(monitored(tmp_path)))))
    ended = loadsim("run", monitored(tmp_path, **on(server.services)), "--out", out)
    assert ended.returncode == 0, ended.stderr
    assert "criteria need the file" not in ended.stderr
    score = json.loads((out / "score.json").read_text())
    assert criterion(score)["passed"] is True
    assert 0 < criterion(score)["figure"] <= 1
    assert not [one for one in findings_in(score) if one.where == "mx1"]
    assert any(resource["probe"] == "host@mx1" for resource in score["resources"])
    (source,) = (one for one in read_logs([out]).sources if one.monitor)
    assert (source.client, source.ended, source.facts.collection) == ("mx1", True, None)
    assert source.monitor and source.monitor.damages == ()
    assert gone(pid_of(tmp_path))
    assert "--name mx1" not in "".join(path.read_text() for path in (out / "scenario.yaml", out / "answer.txt"))


@pytest.mark.nightly(part="runs")
def test_a_monitor_ends_with_a_controller_that_is_killed(tmp_path: Path) -> None:
    """Its samples until then are in the logs of the run."""
    out = tmp_path / "out"
    with running(
        "run", monitored(tmp_path, run={**SHORT, "day_length": "10m", "window": "9m"}), "--out", out
    ) as process:
        await_line(process, AT_WORK)
        monitor = pid_of(tmp_path)
        process.kill()
        process.wait(PATIENCE_S)
        assert gone(monitor)
    assert (out / "logs" / "mx1.tlog").stat().st_size


@pytest.mark.nightly(part="runs")
def test_a_search_judges_a_criterion_on_a_declared_monitor(tmp_path: Path) -> None:
    """Each step has the figures; it also says which resource was nearest to full."""
    out = tmp_path / "out"
    ended = loadsim("capacity", monitored(tmp_path), "--most", "2", "--quick", "--pause", "0", "--out", out, "--quiet")
    assert ended.returncode == 4, ended.stderr  # the only number passes, so the capacity is above it
    document = json.loads((out / "campaign.json").read_text())
    assert {step["result"] for step in document["runs"]} == {"passed"}
    for step in document["runs"]:
        score = json.loads((out / step["run"] / "score.json").read_text())
        assert criterion(score)["passed"] is True
        assert any(resource["probe"] == "host@mx1" for resource in score["resources"])


@pytest.mark.nightly(part="runs")
def test_the_controller_of_a_cluster_starts_monitors(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    path = on_server(embedded_server, tmp_path / "small.yaml", criteria=CRITERIA, monitors=declared(tmp_path))
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        ended = loadsim("run", path, "--cluster", address, "--clients", "2", "--out", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert criterion(json.loads((tmp_path / "out" / "score.json").read_text()))["passed"] is True


@pytest.mark.nightly(part="runs")
def test_check_starts_each_monitor(tmp_path: Path) -> None:
    """A line for each monitor: the figures that it samples, or the reason why not."""
    good = loadsim("check", monitored(tmp_path))
    assert good.returncode == 0, good.stderr
    rows = good.stdout.partition("\nMonitors:\n")[2].splitlines()
    assert rows[0].startswith("  - mx1: host@mx1: ")
    assert rows[0].endswith(" figures")
    monitors = declared(tmp_path) | {"mx2": {"command": MONITOR}}
    bad = loadsim("check", monitored(tmp_path, monitors=monitors))
    assert bad.returncode == 1
    assert bad.stdout.startswith("This scenario cannot run on this server.\nTo change:\n")
    row = " ".join(bad.stdout.partition("\nMonitors:\n")[2].split())
    assert "mx2: FAILED: expected the log of the monitor mx2 (--name mx2), found that of the monitor mx1" in row


CONNECT = "coproc SSH {{ exec ssh mx1 {command}; }}; head -c 100 <&${{SSH[0]}} > /dev/null; kill -9 $SSH_PID"


@pytest.mark.nightly(part="hosts")
def test_a_monitor_runs_over_ssh(tmp_path: Path) -> None:
    """It samples on another host than the load, and ends with a connection that breaks."""
    script = f"echo $$ > {tmp_path / 'pid'}; exec loadsim/.venv/bin/loadsim {' '.join(MONITOR.split()[3:])}"
    command = shlex.quote(script)
    scenario = monitored(tmp_path, monitors={"mx1": {"command": f"ssh mx1 {command}"}})
    with machines(tmp_path, "load", "mx1") as place:
        ended = place["load"].type(f"loadsim run {scenario} --out {tmp_path / 'out'}")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert criterion(json.loads((tmp_path / "out" / "score.json").read_text()))["passed"] is True
        assert gone(pid_of(tmp_path))
        place["load"].type(CONNECT.format(command=command))
        assert gone(pid_of(tmp_path))
