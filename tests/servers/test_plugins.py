"""The example of a package with plug-ins, installed by pip: each is found by its entry point, and works in a run."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from example_plugins import package_of, python_with, with_package
from mailservers import StartEmbedded
from patience import PATIENCE_S
from small_runs import on, population_of, written

from loadsim.analysis.probes.statistics import probe_facts, samples_of
from loadsim.analysis.summary import summarise
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.reader import read_log

pytestmark = pytest.mark.slow

SENDMAIL = """#!{python}
import smtplib, sys
sender, recipients = sys.argv[3], sys.argv[5:]
with open({called!r}, "a") as calls:
    print(sender, file=calls)
with smtplib.SMTP({host!r}, {port}) as server:
    server.sendmail(sender, recipients, sys.stdin.buffer.read().replace(b"\\n", b"\\r\\n"))
"""
"""A sendmail that passes each message to a server, and notes that it was called."""


def test_a_run_uses_the_example_plug_ins(tmp_path: Path, example_package: Path, embedded_server: StartEmbedded) -> None:
    """Its driver submits by the command, and its profile's users send mail, and look it up by its task."""
    profile = python_with(example_package, "-m", "loadsim_example").stdout.strip()
    path = tmp_path / "scenario.yaml"
    topology = [{"profile": profile, "users": 4, "protocol": "sendmail"}]
    server = embedded_server(*population_of(load_scenario(str(written(path, topology=topology)))))
    run = {"day_length": "15s", "ramp_up": "1s", "warm_up": "1s", "window": "14s"}
    written(path, topology=topology, run=run, weights={"FIND SENT": 2}, **on(server.services))
    called = tmp_path / "called"
    sendmail = tmp_path / "sendmail"
    smtp = server.services.smtp
    sendmail.write_text(SENDMAIL.format(python=sys.executable, called=str(called), host=smtp.host, port=smtp.port))
    sendmail.chmod(0o700)
    for queue in ("incoming", "active/sub", "deferred"):
        (tmp_path / "spool" / queue).mkdir(parents=True)
    (tmp_path / "spool" / "active" / "sub" / "message").touch()
    probe = f"probes.mail-queue.directory={tmp_path / 'spool'}"
    words = (
        "-m",
        "loadsim",
        "run",
        path,
        "--set",
        probe,
        "--no-report",
        "--engines",
        2,
        "--out",
        tmp_path / "out",
        "--json",
    )
    ended = python_with(example_package, *words, SENDMAIL=str(sendmail))
    assert ended.returncode == 0, ended.stderr
    score = json.loads(ended.stdout)
    assert list(score["by_protocol"]) == ["sendmail"]
    tasks = {task["task"]: task for task in score["by_protocol"]["sendmail"]["tasks"]}
    assert tasks["SEND"]["hits"] > 4 * 4  # the Medium user's rate
    sent = sum(tasks[task]["done"] for task in ("SEND", "REPLY", "REPLY ALL", "FORWARD") if task in tasks)
    assert len(called.read_text().splitlines()) >= sent
    assert score["delivery"]["undelivered_at_end"] == 0
    assert score["delivery"]["delivered"] > 0
    assert tasks["FIND SENT"]["hits"] > 4
    assert (tasks["FIND SENT"]["weight"], tasks["FIND SENT"]["failed"]) == (2, 0)
    scored = [task for task in tasks.values() if task["weight"] and task["hits"]]
    weights = sum(task["weight"] for task in scored)
    assert score["score_ms"] == pytest.approx(sum(task["weight"] * task["p95_ms"] for task in scored) / weights)
    # The logs are read without the package, and name it.
    assert summarise([tmp_path / "out"]).score["score_ms"] == score["score_ms"]
    (log, *_) = sorted((tmp_path / "out" / "logs").glob("*.tlog"))
    origin = "loadsim-example 0.1"
    assert read_log(log).header.plugins == {"driver sendmail": origin, "task FIND SENT": origin}
    machine = read_log(next((tmp_path / "out" / "logs").glob("*.machine.tlog")))
    (figures,) = samples_of(machine).values()
    assert {name: {value for _, value in samples} for name, samples in figures.items()} == {
        "incoming_messages": {0},
        "active_messages": {1},
        "deferred_messages": {0},
    }
    assert [(facts.package, facts.failures) for facts in probe_facts(machine).values()] == [(origin, 0)]


def test_a_plug_in_with_a_failing_import_is_one_line(tmp_path: Path) -> None:
    """It names plug-in, package and reason, and the status is that of bad input."""
    package = package_of(tmp_path / "other", "import nothing_of_this_name\n", protocols="broken = other:open_driver")
    topology = [{"profile": "loadsim-5.5/light", "users": 2, "protocol": "broken"}]
    scenario = written(tmp_path / "scenario.yaml", topology=topology)
    fault = (
        "driver broken: expected to import other:open_driver of the package other 1,"
        " found ModuleNotFoundError: No module named 'nothing_of_this_name'"
    )
    ended = python_with(package, "-m", "loadsim", "run", scenario, "--out", tmp_path / "out")
    assert ended.returncode == 2, ended.stderr
    assert [line for line in ended.stderr.splitlines() if line.startswith("loadsim: ")] == [f"loadsim: {fault}"]
    assert "Traceback" not in ended.stderr


def test_a_name_of_two_packages_is_refused(tmp_path: Path) -> None:
    """Which of them was measured could not be known."""
    package = package_of(tmp_path / "other", "", protocols="imap = other:open_driver")
    scenario = written(tmp_path / "scenario.yaml")
    ended = python_with(package, "-m", "loadsim", "plan", scenario)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("loadsim: driver imap: expected one package with a driver of this name, found loadsim ")
    assert line.endswith(" and other 1")


PRINTING = """
import subprocess, sys
print("imported")
early = sys.stdout

def open_probe(services):
    print("opened")
    def sample():
        print("sampled")
        early.write("written\\n")
        subprocess.run(["echo", "of a child"])
        return {"a_count": 1}
    return sample
"""
"""A probe that prints in each way."""

IN_MEMORY = [{"profile": "loadsim-5.5/light", "users": 2, "protocol": "fake"}]
SHORT = {"day_length": "3s", "ramp_up": "1s", "warm_up": "0s", "window": "3s"}


@pytest.mark.nightly(part="runs")
def test_standard_output_has_only_the_answer(tmp_path: Path) -> None:
    """A probe that prints, and starts processes that print, changes nothing in it."""
    package = package_of(tmp_path / "other", PRINTING, probes="printing = other:open_probe")
    scenario = written(tmp_path / "scenario.yaml", topology=IN_MEMORY, run=SHORT, probes={"printing": {}})
    ended = python_with(
        package, "-m", "loadsim", "run", scenario, "--json", "--quiet", "--no-report", "--out", tmp_path / "out"
    )
    assert json.loads(ended.stdout)["verdict"], ended.stderr
    for printed in ("imported", "opened", "sampled", "written", "of a child"):
        assert printed in ended.stderr.splitlines()


@pytest.mark.nightly(part="runs")
def test_a_signal_ends_a_run_whose_probe_blocks(tmp_path: Path) -> None:
    """It blocks in a thread, while the event loop takes signals."""
    code = """
import sys, threading
def open_probe(services):
    print("blocking", file=sys.stderr, flush=True)
    threading.Event().wait()
"""
    package = package_of(tmp_path / "other", code, probes="blocking = other:open_probe")
    scenario = written(tmp_path / "scenario.yaml", topology=IN_MEMORY, run=SHORT, probes={"blocking": {}})
    words = [sys.executable, "-m", "loadsim", "run", str(scenario), "--quiet", "--out", str(tmp_path / "out")]
    with subprocess.Popen(words, env=os.environ | with_package(package), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line == "blocking\n":
                break
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert said == "loadsim: interrupted\n"
    assert process.returncode == 130
