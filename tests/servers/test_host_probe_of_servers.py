"""The probe `host` in a run: its samples are in the log and the report, and its cores are those of the server."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from mailservers import StartEmbedded
from small_runs import loadsim, on, population_of, written

from loadsim.analysis.probes.statistics import probe_facts, probe_statistics
from loadsim.model.scenario import load_scenario
from loadsim.model.terms import Window
from loadsim.monitor.system.process_groups import find_processes
from loadsim.timinglog.reader import read_log
from loadsim.version import __version__

pytestmark = pytest.mark.nightly(part="runs")


def test_a_run_on_this_machine(tmp_path: Path, embedded_server: StartEmbedded) -> None:
    """The server's cores add up to no more than the time of its process; those of loadsim and others are apart."""
    path = tmp_path / "scenario.yaml"
    server = embedded_server(*population_of(load_scenario(str(written(path)))))
    run = {"day_length": "8s", "ramp_up": "1s", "warm_up": "1s", "window": "7s"}
    written(path, run=run, probes={"host": {}}, **on(server.services))
    (number,) = find_processes(server.services)()
    process = psutil.Process(number)
    before = process.cpu_times()
    ended = loadsim("run", path, "--out", tmp_path / "out", "--quiet")
    assert ended.returncode in (0, 1), ended.stderr
    after = process.cpu_times()
    machine = read_log(next((tmp_path / "out" / "logs").glob("*.machine.tlog")))
    ((probe, facts),) = probe_facts(machine).items()
    assert (probe, facts.package, facts.failures) == ("host", f"loadsim {__version__}", 0)
    samples = [each for each in machine.health if each.get("probe") == "host"]
    assert len(samples) == facts.samples >= 2
    # Each figure is that of the time since the last reading, which begins a little after the sample's instant.
    read = [each for each in samples if "loadsim_rss_bytes" in each["figures"]]
    taken_s = [
        later["figures"]["server_cpu_cores"] * (later["at_s"] - earlier["at_s"]) for earlier, later in pairwise(read)
    ]
    assert 0 < sum(taken_s) < 1.5 * (after.user + after.system - before.user - before.system)
    found = (probe_statistics(machine, Window(0, samples[-1]["at_s"] + 1)) or {})["host"]
    assert (found["loadsim_cpu_cores"].mean or 0) > 0
    assert (found["others_cpu_cores"].mean or 0) >= 0
    assert found["cores"].mean == psutil.cpu_count()
    report = (tmp_path / "out" / "report.html").read_text()
    assert "Probes: figures in the window" in report
    assert "host: server_<wbr>cpu_<wbr>cores" in report
    assert "plug-ins in the window" not in report
