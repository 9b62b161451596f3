"""The needs of a run are compared with the machine before the load, and a run that cannot fit is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from loadsim.cli import main
from loadsim.dryrun.plan import make_plan
from loadsim.engine.rlimits import FILES_PER_USER, OTHER_FILES
from loadsim.errors import ConfigError
from loadsim.model.partition import all_users
from loadsim.model.scenario import load_scenario
from loadsim.model.workload import Workload
from loadsim.monitor.machine_needs import (
    LOG_BYTES_PER_TASK,
    LONGER_DAY,
    RESULT_BYTES,
    Needs,
    Pace,
    Resources,
    check_memory,
    describe,
    needs_of,
    resources_for,
    shortages,
)
from loadsim.timinglog.planned_load import PlannedLoad

NEEDS = Needs(
    users=10,
    engines=2,
    open_files=100,
    memory_bytes=1 << 30,
    log_bytes=1 << 20,
    pace=Pace((500.0,) * 360, 3600.0),
    messages=1401,
    day_s=3600.0,
)
EQUAL = Resources(
    tasks_per_s=50.0,
    cores=2,
    memory_bytes=1 << 30,
    memory_available_bytes=1 << 30,
    open_files=100,
    disk_free_bytes=1 << 20,
)
UNKNOWN = Resources(50.0, 2, None, None, None, None)


def workload(*overrides: str) -> Workload:
    """The load of 100 users who log on to a server elsewhere."""
    server = "server={imap: {host: mail.example.org}, smtp: {host: mail.example.org}}"
    users = "topology=[{profile: loadsim-5.5/medium, users: 100}]"
    numbered = "accounts={user: 'u{index}', password: p}"
    return Workload(
        load_scenario("quickstart", [server, users, numbered, "allow_hosts=[mail.example.org]", *overrides])
    )


def test_a_machine_that_just_suffices_gives_no_warning() -> None:
    assert shortages(NEEDS, EQUAL) == []
    assert shortages(NEEDS, UNKNOWN) == []
    check_memory(NEEDS, EQUAL)
    check_memory(NEEDS, UNKNOWN)


@pytest.mark.parametrize(
    ("lacking", "warning"),
    [
        (
            replace(EQUAL, tasks_per_s=49.0),
            "this run may become invalid: in its busiest 10 s it plans 50 tasks per second, and this machine (2 cores,"
            " 2 engines) keeps pace with about 49; take a day of about 68 min (--set run.day_length=68m), or about 9"
            " users, or more machines",
        ),
        (
            replace(EQUAL, memory_available_bytes=(1 << 30) - 1),
            "memory may run out: the run needs about 1.0 GiB, available are 1,024 MiB",
        ),
        (
            replace(EQUAL, open_files=99),
            "open files will run out: each engine needs 100, its hard limit is 99; take more --engines, or raise it as"
            " root with `ulimit -n 100`",
        ),
        (
            replace(EQUAL, disk_free_bytes=2048),
            "the disk may fill up: the logs need about 1.0 MiB, free are 2.0 KiB",
        ),
    ],
)
def test_each_shortage_is_one_warning_with_both_figures(lacking: Resources, warning: str) -> None:
    assert shortages(NEEDS, lacking) == [warning]


def test_the_day_and_the_users_that_suffice_are_named() -> None:
    """In proportion, rounded to the safe side; a number of users below two is none."""
    pinned = shortages(NEEDS, replace(EQUAL, tasks_per_s=49.0, cores=1), pin=True)
    assert "this machine (1 core with --pin, 2 engines) keeps pace" in pinned[0]
    many = replace(NEEDS, users=3000, pace=Pace((27410.0,) * 12, 120.0), day_s=120.0)
    (warning,) = shortages(many, replace(EQUAL, tasks_per_s=250.0))
    assert warning.endswith(
        "; take a day of about 25 min (--set run.day_length=25m), or about 270 users, or more machines"
    )
    (warning,) = shortages(many, replace(EQUAL, tasks_per_s=250.0, embedded=True))
    assert warning.endswith("; take a day of about 25 min (--set run.day_length=25m), or about 270 users")
    (warning,) = shortages(replace(many, users=3), replace(EQUAL, tasks_per_s=250.0, embedded=True))
    assert warning.endswith(", or fewer users")


OBEYED = [
    ("light", 30, "20s", 0.6),
    ("light", 30, "90s", 0.3),
    ("heavy", 8, "20s", 0.3),
    ("heavy", 8, "90s", 0.6),
]


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "users", "day_length", "share"), OBEYED)
def test_the_longer_day_ends_the_warning(profile: str, users: int, day_length: str, share: float) -> None:
    """As printed, and planned again: the busiest rate falls by less than the day grows."""
    settings = [f"topology=[{{profile: loadsim-5.5/{profile}, users: {users}}}]", "run.warm_up=1s", "run.window=1s"]

    def needs(day: str) -> Needs:
        planned = workload(*settings, f"run.day_length={day}")
        return needs_of(planned, all_users(users), 1, make_plan(planned.scenario).load())

    before = needs(day_length)
    assert before.busiest_tasks_per_s is not None
    keeps = replace(UNKNOWN, tasks_per_s=before.busiest_tasks_per_s * share)
    (warning,) = shortages(before, keeps)
    (longer,) = re.findall(r"--set run\.day_length=([^)]*)\)", warning)
    assert shortages(needs(longer), keeps) == [], (keeps, longer)


def test_a_day_grows_until_its_peak_suffices() -> None:
    """A part with the tasks of 10 s is still as busy in 20 s, until a part is longer than 10 s."""
    peak = Pace((*(1.0,) * 99, 100.0, *(1.0,) * 100), 200.0)
    assert Pace((), 200.0).busiest_per_s() == 0
    assert (peak.busiest_per_s(), peak.busiest_per_s(2.0), peak.busiest_per_s(20.0)) == (10.9, 10.4, 5.0)
    needs = replace(NEEDS, pace=peak, day_s=200.0)
    (warning,) = shortages(needs, replace(UNKNOWN, tasks_per_s=5.0))
    assert "a day of about 75 min (--set run.day_length=1.25h)" in warning
    assert LONGER_DAY * peak.busiest_per_s(75 * 60 / 200.0) <= 5.0


def test_a_run_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(ConfigError) as refused:
        check_memory(NEEDS, replace(EQUAL, memory_bytes=(1 << 30) - 1))
    assert str(refused.value) == (
        "topology: expected users that fit into the 1,024 MiB of this machine's memory, found 10 users, which need"
        " about 1.0 GiB; take fewer users, or several machines (loadsim run --cluster)"
    )


def test_the_needs_follow_users_connections_and_engines() -> None:
    """Counted by hand: 50 users in each of 2 engines, 100 plain connections or 500 with TLS."""
    plain = needs_of(workload(), all_users(100), 2, None)
    assert plain.open_files == 50 * FILES_PER_USER + OTHER_FILES
    assert plain.memory_bytes == 2 * 60 * 1024**2 + 100 * 13 * 1024
    assert plain.messages == 100 * 205
    assert (plain.log_bytes, plain.busiest_tasks_per_s) == (None, None)

    tls = workload(
        "server={imap: {host: mail.example.org, tls: implicit}, smtp: {host: mail.example.org}}",
        "topology=[{profile: loadsim-5.5/medium, users: 100, program: thunderbird}]",
    )
    several = needs_of(tls, all_users(100), 2, None)
    assert several.open_files == plain.open_files + 200
    assert several.memory_bytes == 2 * 60 * 1024**2 + 500 * (13 + 37) * 1024


def test_the_busiest_stretch_is_ten_seconds_and_a_slice_has_its_share() -> None:
    """In 400 parts of 1 s: 10 s of 30 tasks, in two kinds, and a single second of 200."""
    reads = [1] * 400
    reads[100:110] = [20] * 10
    sends = [0] * 400
    sends[100:110] = [10] * 10
    sends[300] = 200
    load = PlannedLoad(400.0, {"READ": tuple(reads), "SEND": tuple(sends)})
    needs = needs_of(workload(), all_users(100), 1, load)
    assert needs.busiest_tasks_per_s == 30.0
    assert needs.log_bytes == (sum(reads) + sum(sends)) * LOG_BYTES_PER_TASK + RESULT_BYTES
    half = needs_of(workload(), range(1, 51), 1, load)
    assert half.busiest_tasks_per_s == 15.0
    assert half.messages == 50 * 205


def test_a_machine_leaves_half_of_its_cores_to_a_server_of_its_own(tmp_path: Path) -> None:
    """The directory of the logs need not exist yet."""
    logs = tmp_path / "not" / "yet"
    remote = resources_for(workload().scenario, 1000, logs)
    here = resources_for(workload("server={imap: {host: 127.0.0.1}, smtp: {host: 127.0.0.1}}").scenario, 1000, logs)
    assert remote.tasks_per_s == 250.0 * remote.cores
    assert here.tasks_per_s == 250.0 * max(1, here.cores // 2)
    assert remote.disk_free_bytes is not None
    assert not logs.exists()
    if Path("/proc/meminfo").exists():
        assert remote.memory_bytes is not None and remote.memory_available_bytes is not None
        assert 0 < remote.memory_available_bytes <= remote.memory_bytes


def test_the_needs_are_told_in_words() -> None:
    assert describe(NEEDS, EQUAL) == [
        "Needs, about: memory 1.0 GiB (1.0 GiB available), logs 1.0 MiB (1.0 MiB available)",
        "Open files: 100 in each of 2 engines (100 allowed)",
        "Busiest 10 s: 50.0 tasks per second; this machine keeps pace with about 50, if nothing else keeps it busy",
        "First preparation: 1,401 messages into 10 mailboxes, about 0:00:02 on a Dovecot with two cores",
    ]
    assert describe(replace(NEEDS, log_bytes=None, pace=None, messages=0, engines=1), UNKNOWN) == [
        "Needs, about: memory 1.0 GiB",
        "Open files: 100 in each of 1 engine",
    ]


def test_run_refuses_what_cannot_fit_before_it_creates_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100,000 mailboxes of the embedded server need some hundred GiB."""
    out = tmp_path / "run"
    many = "topology=[{profile: loadsim-5.5/light, users: 100000}]"
    assert main(["run", "quickstart", "--set", many, "--out", str(out), "--engines", "1"]) == 2
    assert "fit into the" in capsys.readouterr().err
    assert not out.exists()
