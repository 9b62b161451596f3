"""`loadsim size` on a real run: its demand of a task is the server's processor time, which psutil reads, too."""

import json
from pathlib import Path

import psutil
import pytest
from mailservers import StartEmbedded
from small_runs import loadsim, on, population_of, written

from loadsim.analysis.probes.statistics import probe_facts
from loadsim.monitor.process_groups import find_processes
from loadsim.scenario.scenario import load_scenario
from loadsim.timinglog.reader import read_log
from loadsim.version import __version__

pytestmark = pytest.mark.nightly(part="runs")


def test_the_estimated_demand_is_the_servers_processor_time(tmp_path: Path, embedded_server: StartEmbedded) -> None:
    """The tasks of the window took at most what the server's process took in the whole run, and most of that."""
    path = tmp_path / "scenario.yaml"
    topology = [{"profile": "loadsim-5.5/medium", "users": 8}]
    server = embedded_server(*population_of(load_scenario(str(written(path, topology=topology)))))
    run = {"day_length": "64s", "ramp_up": "1s", "warm_up": "2s", "window": "60s", "audit": False}
    written(path, topology=topology, run=run, probes={"host": {}}, **on(server.services))
    assert loadsim("init", path).returncode == 0
    (number,) = find_processes(server.services)()
    process = psutil.Process(number)
    before = process.cpu_times()
    ended = loadsim("run", path, "--out", tmp_path / "out", "--quiet", "--no-report", "--set", "initialise=never")
    assert ended.returncode in (0, 1), ended.stderr
    after = process.cpu_times()
    taken_s = after.user + after.system - before.user - before.system
    machine = read_log(next((tmp_path / "out" / "logs").glob("*.machine.tlog")))
    ((probe, facts),) = probe_facts(machine).items()
    assert (probe, facts.package, facts.failures) == ("host", f"loadsim {__version__}", 0)
    assert facts.samples == len([each for each in machine.health if each.get("probe") == "host"]) >= 2
    sized = loadsim("size", tmp_path / "out", "--json")
    assert sized.returncode in (0, 4), sized.stderr
    found = json.loads(sized.stdout)
    by_task = {each["name"]: each for each in found["demands"] if each["unit"] == "ms of processor"}
    per_task_ms = by_task["task"]["value"]["value"]
    assert 0.5 * taken_s < per_task_ms / 1000 * found["tasks_per_s"] * 60 < 1.05 * taken_s
    per_message_ms = by_task["submitted message"]["value"]["value"]
    assert per_message_ms * found["messages_per_s"] == pytest.approx(per_task_ms * found["tasks_per_s"])
    assert {each["name"] for each in found["resources"]} >= {"processor", "memory"}
