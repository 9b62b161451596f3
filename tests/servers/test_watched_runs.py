"""Real runs that somebody watches: on a terminal, by Prometheus, or not at all; and one that is given up."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from findings_of import findings_in
from mailservers import StartEmbedded
from patience import PATIENCE_S
from small_runs import AFTER_TEN_S, AT_WORK, await_line, loadsim, on, population_of, written
from terminals import Terminal

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.merge import read_logs

LONG = {"day_length": "2m", "ramp_up": "1s"}


@pytest.mark.nightly(part="runs")
def test_a_terminal_shows_the_run_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """The screen with rates and times of tasks; after Ctrl-C the cursor is back, and the answer stands alone."""
    path = written(tmp_path / "small.yaml", run=LONG)
    command = [sys.executable, "-m", "loadsim", "run", "--no-report", str(path), "--out", str(tmp_path / "out")]
    terminal = Terminal(command, columns=120)
    terminal.read("(mean, lately)")
    terminal.process.send_signal(signal.SIGINT)
    terminal.read()
    printed, _ = terminal.process.communicate(timeout=PATIENCE_S)
    terminal.close()
    assert terminal.process.returncode == 3
    for shown in ("of the run's 0:02:00", "6 of 6 on", "event loop", "LOGON", "95th, about"):
        assert shown in terminal.seen
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("event loop")
    assert "\x1b" not in printed
    assert f"[{Code.STOPPED.id}]" in printed


@pytest.mark.nightly(part="runs")
def test_prometheus_scrapes_a_run(tmp_path: Path) -> None:
    """All users have logged on, tasks are counted alike in histograms and counters, and counts grow."""
    from metrics_pages import fetched, samples, value

    path = str(written(tmp_path / "small.yaml", run=LONG))
    command = [sys.executable, "-m", "loadsim", "run", "--no-report", path, "--out", str(tmp_path / "out")]
    with subprocess.Popen(
        [*command, "--engines", "2", "--metrics", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        told = re.fullmatch(r"Metrics: http://127\.0\.0\.1:(\d+)/metrics\n", process.stderr.readline())
        assert told is not None
        await_line(process, AT_WORK)
        first = samples(fetched("127.0.0.1", int(told[1])))
        await_line(process, AFTER_TEN_S)
        second = samples(fetched("127.0.0.1", int(told[1])))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert value(first, "users") == value(first, "users_on") == 6
    assert value(first, "task_seconds_count", task="LOGON") == 6
    assert 0 < value(second, "task_seconds_sum", task="LOGON") < 6 * PATIENCE_S
    assert value(second, "phase", phase="warm-up") + value(second, "phase", phase="window") == 1
    assert value(second, "run_seconds") >= 10
    tasks = {dict(labels)["task"] for name, labels in second if name == "loadsim_task_seconds_count"}
    assert len(tasks) > 2
    for task in tasks:
        done = value(second, "tasks_total", task=task, outcome="ok")
        assert value(second, "task_seconds_count", task=task) == done
        assert value(second, "task_seconds_bucket", task=task, le="+Inf") == done
    for key, count in first.items():
        if key[0].endswith(("_total", "_count", "_bucket", "_sum")):
            assert second[key] >= count


@pytest.mark.nightly(part="runs")
def test_a_hopeless_run_is_given_up(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """The server goes away: the run ends by itself, its logs are whole, and every answer about them says why."""
    path = written(tmp_path / "small.yaml")
    server = embedded_server(*population_of(load_scenario(str(path))))
    limits = {"grace": "1s", "drain": "1s"}
    abort_on = {"lost_users": "50%", "period": "2s"}
    written(path, run=LONG, limits=limits, abort_on=abort_on, **on(server.services))
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "run", "--no-report", str(path), "--out", str(out), "--engines", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        await_line(process, AT_WORK)
        server.stop()
        printed, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    why = "100 % of the users without a session over 2 s, at most 50 %"
    aborted = finding(Code.ABORTED, why=why)
    assert findings_in(json.loads((out / "score.json").read_text()))[0] == aborted
    assert aborted.text in " ".join(printed.split())
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    (abort,) = [event for event in events if event["event"] == "abort"]
    assert abort["why"] == why
    assert {event["ended"] for event in events if event["event"] == "end"} == {"early"}
    assert [source.facts.ended for source in read_logs([out]).sources if source.simulates] == ["early", "early"]
    again = loadsim("log", "answer", out)
    assert (again.returncode, aborted.text in " ".join(again.stdout.split())) == (3, True)
