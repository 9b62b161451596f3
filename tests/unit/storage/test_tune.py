"""Tuning: its rules on simulated disks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_recordings import GOOD, SCENARIO, recording, sample

from loadsim.findings.catalogue import Code
from loadsim.storage.recording import RECORDING, End, RecordingWriter
from loadsim.storage.runs import machine_words, run_once
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.store import Io
from loadsim.storage.tune import MOST_THREADS, Result, Setting, Try, best_of, exit_status, next_setting, result_of, tune
from loadsim.version import __version__

MOST_RUNS = 40


def tuned(disk: Callable[[Setting], tuple[Result, float]]) -> tuple[list[Try], Code]:
    """Tune a disk that returns the result and the operations per second of a setting."""
    tries: list[Try] = []
    while not isinstance(setting := next_setting(tries), Code):
        assert setting not in [each.setting for each in tries]
        result, per_s = disk(setting)
        tries.append(Try(setting, result, True, 4 * per_s, per_s))
        assert len(tries) < MOST_RUNS
    return tries, setting


def disk_of(most_per_s: float, service_s: float) -> Callable[[Setting], tuple[Result, float]]:
    """A disk on which each operation takes a time, and that fails above a rate."""

    def run(setting: Setting) -> tuple[Result, float]:
        threads, pause_s = setting
        per_s = threads / (service_s + pause_s)
        return ("pass" if per_s <= most_per_s else "fail"), per_s

    return run


@given(st.floats(1.0, 60.0), st.floats(0.001, 0.1))
def test_the_best_run_is_near_the_limit_of_the_disk(threads: float, service_s: float) -> None:
    """Threads alone come within one thread, and pauses halve that three times."""
    most_per_s = threads / service_s
    tries, ended = tuned(disk_of(most_per_s, service_s))
    best = best_of(tries)
    assert ended is Code.TUNING_FOUND
    assert best is not None
    assert best.operations_per_s <= most_per_s
    assert best.operations_per_s >= int(threads) / service_s
    assert any(each.result == "fail" for each in tries)


def test_runs_follow_the_rules_in_order() -> None:
    tries, _ = tuned(disk_of(530.0, 0.01))
    assert [each.setting for each in tries][:6] == [(1, 0.0), (2, 0.0), (4, 0.0), (8, 0.0), (6, 0.0), (5, 0.0)]
    assert all(each.setting[0] == 6 for each in tries[6:])
    assert len(tries) == 9


@pytest.mark.parametrize(
    ("result_of", "code", "runs"),
    [
        (lambda setting: ("fail", 1.0), Code.TUNING_NONE, 1),
        (lambda setting: ("pass", float(setting[0])), Code.TUNING_NO_LIMIT, MOST_THREADS.bit_length()),
        (lambda setting: ("generator" if setting[0] > 2 else "pass", 1.0), Code.TUNING_GENERATOR, 3),
        (lambda setting: ("void", 1.0), Code.TUNING_VOID, 1),
    ],
)
def test_tuning_gives_up_with_a_reason(
    result_of: Callable[[Setting], tuple[Result, float]], code: Code, runs: int
) -> None:
    tries, ended = tuned(result_of)
    assert (ended, len(tries)) == (code, runs)


@pytest.mark.parametrize(
    ("reached", "why", "status"),
    [
        (True, Code.TUNING_FOUND, 0),
        (True, Code.TUNING_NO_LIMIT, 0),
        (True, Code.TUNING_GENERATOR, 0),
        (True, Code.STOPPED, 3),
        (False, Code.TUNING_FOUND, 1),
        (False, Code.TUNING_NO_LIMIT, 3),
        (False, Code.TUNING_GENERATOR, 3),
        (None, Code.TUNING_NONE, 1),
        (None, Code.TUNING_GENERATOR, 3),
        (None, Code.TUNING_VOID, 3),
    ],
)
def test_only_faults_of_disks_fail_a_tuning(reached: bool | None, why: Code, status: int) -> None:
    tries = [] if reached is None else [Try((1, 0.0), "pass", reached, 400.0, 1.0)]
    assert exit_status([Try((2, 0.0), "fail", True, 500.0, 1.0), *tries], why) == status


def test_a_fast_database_does_not_reach_the_target_for_a_slow_one() -> None:
    """Of a target of 400, one makes 500 and the other 100; another run makes less in all, and each its half."""
    unequal, equal = (
        result_of(
            recording([[sample({**GOOD, Io.READ: (reads, 15.0), Io.WRITE: (0.0, 1.0)})] * 480 for reads in rates])
        )
        for rates in ((500.0, 100.0), (200.0, 201.0))
    )
    assert exit_status([unequal], Code.TUNING_FOUND) == 1
    assert best_of([unequal, equal]) is equal
    assert exit_status([unequal, equal], Code.TUNING_FOUND) == 0


WHOLE = End(stopped=False, full=False, failure=None)


def made(scenario: StorageScenario, directory: Path, machine: str = "", end: End = WHOLE) -> None:
    """Make a run of two hours that fails with more than two threads."""
    directory.mkdir()
    reads, length_s = (400.0 + scenario.threads, 25.0 if scenario.threads > 2 else 15.0), scenario.duration_s
    of = recording([[sample({**GOOD, Io.READ: reads}, length_s)]], scenario=scenario, sample_s=length_s, end=end)
    terms = of.header._replace(software=__version__, scenario=asdict(scenario), machine=machine or machine_words())
    with (directory / RECORDING).open("w") as file:
        writer = RecordingWriter(file.write, terms)
        writer.add("sample", {"database": "db-001", "sample": of.samples["db-001"][0]})
        for kind in ("window", "checked", "proved", "end"):
            value = getattr(of, kind)
            writer.add(kind, [asdict(each) for each in value] if kind in ("checked", "proved") else value)


def test_an_interrupted_tuning_repeats_no_run(tmp_path: Path) -> None:
    """Those of another scenario or machine, and that have no end, or that a full disk or a fault ended, are none."""
    made(replace(SCENARIO, mailboxes=5), tmp_path / "1")
    made(replace(SCENARIO, threads=1), tmp_path / "2")
    (tmp_path / "2" / RECORDING).write_bytes((tmp_path / "2" / RECORDING).read_bytes()[:-5])
    made(replace(SCENARIO, threads=1), tmp_path / "3", "another, 2 cores")
    made(replace(SCENARIO, threads=1), tmp_path / "4", end=WHOLE._replace(full=True))
    made(replace(SCENARIO, threads=1), tmp_path / "5", end=WHOLE._replace(failure="db-001: its process ended"))
    (tmp_path / "6").mkdir()
    (tmp_path / "6" / RECORDING).touch()
    whole, again = list[Try](), list[Try]()
    new: list[Path] = []

    def run(scenario: StorageScenario, directory: Path) -> None:
        made(scenario, directory)
        new.append(directory)

    assert tune(SCENARIO, lambda one: run_once(one, "performance", tmp_path, run), whole) is Code.TUNING_FOUND
    assert [path.name for path in new] == [str(7 + number) for number in range(len(whole))]
    assert tune(SCENARIO, lambda one: run_once(one, "performance", tmp_path, run), again) is Code.TUNING_FOUND
    assert again == whole
    assert len(new) == len(whole)
