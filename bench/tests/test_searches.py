"""Searches on a limited server: the limits hold for the whole server, and what was found is stated as it is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.control_groups import ROOT, Limits, disk_of, limited
from bench.processes import short_directory
from bench.searches import FIRST, Search, row, scenario, searches
from loadsim.errors import ConfigError
from loadsim.scenario.scenario import load_scenario
from loadsim.servers.dovecot_postfix import start_dovecot_postfix


def test_half_of_the_processor_is_half_of_the_quota(tmp_path: Path) -> None:
    """Seen from outside, the comparison could be wrong so: the searches differ in more than the named limit."""
    first, second, half, slow = searches(0.5, 200)
    assert first.limits == second.limits == Limits(cores=0.5)
    assert (half.limits, slow.limits) == (Limits(cores=0.25), Limits(cores=0.5, writes_per_s=200))

    def quota(search: Search) -> float:
        files = search.limits.settings(tmp_path)["cpu"]
        return int(files["cpu.cfs_quota_us"]) / int(files["cpu.cfs_period_us"])

    assert (quota(first), quota(half)) == (0.5, 0.25)
    assert "cpu.cfs_quota_us" not in Limits().settings(tmp_path)["cpu"]
    assert first.limits.settings(tmp_path)["blkio"] == {}


def test_the_disk_is_one_that_the_kernel_counts(tmp_path: Path) -> None:
    """`/proc/diskstats` has the numbers of disks and of partitions; `/sys/block` only disks."""
    try:
        numbers = disk_of(tmp_path)
    except ConfigError as error:  # such as an overlay, which is no disk
        assert "on one disk" in str(error)
        return
    disks = {(one / "dev").read_text().strip() for one in Path("/sys/block").iterdir()}
    assert numbers in disks


def test_the_scenario_can_be_run_with_the_first_number(tmp_path: Path) -> None:
    (tmp_path / "scenario.json").write_text(json.dumps(scenario(FIRST)))
    assert load_scenario(str(tmp_path / "scenario.json")).users == FIRST


def test_a_row_names_the_measured_resource_nearest_to_saturation() -> None:
    """A resource that was not measured has no share, and is named for nothing."""
    found = {"users": 100, "failed_users": 115, "interval": [100, 115], "stopped_by": "criteria", "tasks_per_s": 130.5}
    found |= {"steps": [{}, {}], "resources": [{"name": "network", "mean": None}, {"name": "storage", "mean": 0.8}]}
    assert row(Search("slow disk", Limits(), ()), found) == {
        "search": "slow disk",
        "users": 100,
        "failed_users": 115,
        "interval": [100, 115],
        "stopped_by": "criteria",
        "steps": 2,
        "tasks_per_s": 130.5,
        "nearest": {"name": "storage", "mean": 0.8},
    }
    assert row(Search("slow disk", Limits(), ()), found | {"resources": None})["nearest"] is None


def arguments(process: Path) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.nightly(part="runs")
def test_every_process_of_the_server_is_limited(tmp_path: Path) -> None:
    """And this process is not; afterwards, nothing is left of the group."""
    scenario_file = tmp_path / "scenario.json"
    scenario_file.write_text(json.dumps(scenario(2)))
    nowhere = load_scenario(str(scenario_file))
    accounts = [nowhere.account(index) for index in (1, 2)]
    with short_directory() as directory:
        name = f"loadsim-{Path(directory).name}"
        if not (ROOT / "cpu").is_dir():
            with pytest.raises(ConfigError, match="version 1"), limited(name, Limits(0.5), tmp_path):
                pass
            return
        with limited(name, Limits(0.5, 200), Path(directory)) as group:
            with group.joined():
                server = start_dovecot_postfix(accounts, {}, Path(directory) / "server")
            try:
                configured = str(Path(directory) / "server")
                for place in group.places.values():
                    members = set((place / "cgroup.procs").read_text().split())
                    started = {each.name for each in Path("/proc").glob("[0-9]*") if configured in arguments(each)}
                    assert len(started) >= 2  # Dovecot's and Postfix's masters
                    assert started <= members
                    assert len(members) > len(started)  # their children, too
                    assert str(os.getpid()) not in members
            finally:
                server.stop()
        assert not any((ROOT / controller / name).exists() for controller in group.places)
