"""The needs of a run are compared with the machine before the load, and a run that cannot fit is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadsim.cli import main
from loadsim.errors import ConfigError
from loadsim.processes.rlimits import FILES_PER_USER, OTHER_FILES
from loadsim.runs.needs import (
    LOG_BYTES_PER_TASK,
    RESULT_BYTES,
    Needs,
    Resources,
    check_memory,
    describe,
    needs_of,
    resources_for,
    shortages,
)
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.planned_load import PlannedLoad

NEEDS = Needs(
    users=10, engines=2, open_files=100, memory_bytes=1 << 30, log_bytes=1 << 20, busiest_tasks_per_s=50.0, day_s=3600.0
)
EQUAL = Resources(
    tasks_per_s=50.0,
    cores=2,
    memory_bytes=1 << 30,
    memory_available_bytes=1 << 30,
    open_files=100,
    disk_free_bytes=1 << 20,
)


def workload(*overrides: str) -> Workload:
    """The load of 100 users who log on to a server elsewhere."""
    server = "server={imap: {host: mail.example.org}, smtp: {host: mail.example.org}}"
    users = "topology=[{profile: loadsim-5.5/medium, users: 100}]"
    numbered = "accounts={user: 'u{index}', password: p}"
    return Workload(
        load_scenario("quickstart", [server, users, numbered, "allow_hosts=[mail.example.org]", *overrides])
    )


def test_a_just_sufficient_machine_has_no_warning() -> None:
    assert shortages(NEEDS, EQUAL) == []
    assert shortages(NEEDS, replace(EQUAL, open_files=None)) == []
    check_memory(NEEDS, EQUAL)


@pytest.mark.parametrize(
    ("lacking", "words"),
    [
        ({"tasks_per_s": 49.0}, ("50 tasks", "2 cores, 2 engines", "about 49", "run.day_length=62m")),
        ({"tasks_per_s": 49.0, "embedded": True}, ("50 tasks", "embedded server", "about 49")),
        ({"memory_available_bytes": (1 << 30) - 1}, ("memory", "1.0 GiB", "1,024 MiB")),
        ({"open_files": 99}, ("open files", "needs 100", "99", "ulimit -n 100")),
        ({"disk_free_bytes": 2048}, ("the disk", "1.0 MiB", "2.0 KiB")),
    ],
)
def test_each_shortage_is_one_warning_with_both_figures(lacking: dict[str, Any], words: Sequence[str]) -> None:
    (warning,) = shortages(NEEDS, replace(EQUAL, **lacking))
    assert [word for word in words if word not in warning] == []


def test_a_run_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        check_memory(NEEDS, replace(EQUAL, memory_bytes=(1 << 30) - 1))
    assert "found 10 users, which need about 1.0 GiB" in str(refused.value)


def test_the_needs_follow_users_connections_and_engines() -> None:
    """Counted by hand: 50 users in each of 2 engines, 100 plain connections or 500 with TLS."""
    plain = needs_of(workload(), 2, None)
    assert plain.open_files == 50 * FILES_PER_USER + OTHER_FILES
    assert plain.memory_bytes == 2 * 60 * 1024**2 + 100 * 13 * 1024
    assert (plain.log_bytes, plain.busiest_tasks_per_s) == (None, None)

    tls = workload(
        "server={imap: {host: mail.example.org, tls: implicit}, smtp: {host: mail.example.org}}",
        "topology=[{profile: loadsim-5.5/medium, users: 100, program: thunderbird}]",
    )
    several = needs_of(tls, 2, None)
    assert several.open_files == plain.open_files + 200
    assert several.memory_bytes == 2 * 60 * 1024**2 + 500 * (13 + 37) * 1024

    at = "host: mail.example.org"
    apart = needs_of(
        workload(
            f"server={{imap: {{{at}}}, smtp: {{{at}}}, caldav: {{{at}}}, nntp: {{{at}}}, ldap: {{url: 'ldap://127.0.0.1/o=x'}}}}",
            "folders.public=example.board",
            "mailbox.public=1",
            "topology=[{profile: loadsim-5.5/medium, users: 100, calendar: caldav}]",
        ),
        2,
        None,
    )
    assert apart.open_files == plain.open_files + 50 * 3
    assert apart.memory_bytes == plain.memory_bytes + 100 * 3 * 13 * 1024


@pytest.mark.parametrize(("scheme", "kib"), [("http", 2 * 17), ("https", 2 * 17 + 2 * 70)])
def test_users_over_mapi_have_two_connections(scheme: str, kib: int) -> None:
    """Their memory was measured: 24 KiB without a user's state, and 166 KiB with TLS."""
    needs = needs_of(
        workload(
            f'server={{mapi: {{url: "{scheme}://mail.example.org"}}}}',
            "topology=[{profile: loadsim-5.5/medium, users: 100, protocol: mapi}]",
        ),
        2,
        None,
    )
    assert needs.open_files == 50 * (FILES_PER_USER + 1) + OTHER_FILES
    assert needs.memory_bytes == 2 * 60 * 1024**2 + 100 * kib * 1024


def test_the_busiest_stretch_is_ten_seconds() -> None:
    """In 400 parts of 1 s: 10 s of 30 tasks, in two kinds, and a single second of 200."""
    reads = [1] * 400
    reads[100:110] = [20] * 10
    sends = [0] * 400
    sends[100:110] = [10] * 10
    sends[300] = 200
    load = PlannedLoad(400.0, {"READ": tuple(reads), "SEND": tuple(sends)})
    needs = needs_of(workload(), 1, load)
    assert needs.busiest_tasks_per_s == 30.0
    assert needs.log_bytes == (sum(reads) + sum(sends)) * LOG_BYTES_PER_TASK + RESULT_BYTES


def test_a_machine_leaves_half_of_its_cores_to_a_server_of_its_own(tmp_path: Path) -> None:
    """The directory of the logs need not exist yet."""
    logs = tmp_path / "not" / "yet"
    remote = resources_for(workload().scenario, 1000, logs)
    here = resources_for(workload("server={imap: {host: 127.0.0.1}, smtp: {host: 127.0.0.1}}").scenario, 1000, logs)
    assert remote.tasks_per_s == 600.0 * remote.cores
    assert here.tasks_per_s == 600.0 * max(1, here.cores // 2)
    assert remote.disk_free_bytes > 0
    assert not logs.exists()
    assert 0 < remote.memory_available_bytes <= remote.memory_bytes


def test_only_known_needs_are_shown() -> None:
    assert len(describe(NEEDS, EQUAL)) == 3
    assert len(describe(replace(NEEDS, log_bytes=None, busiest_tasks_per_s=None), EQUAL)) == 2


def test_a_run_that_cannot_fit_is_refused_before_it_creates_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100,000 mailboxes of the embedded server need some hundred GiB."""
    out = tmp_path / "run"
    many = "topology=[{profile: loadsim-5.5/light, users: 100000}]"
    assert main(["run", "quickstart", "--set", many, "--out", str(out), "--engines", "1"]) == 2
    assert "fit into the" in capsys.readouterr().err
    assert not out.exists()
