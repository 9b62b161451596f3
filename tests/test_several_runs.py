"""The answer about the logs of several runs: who took part, what lies in the window, and whose health it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from test_generator import CALM, sample
from timing_samples import ENDED, EPOCH_NS, HEADER, done, skipped, write_sample

from loadsim.errors import LogError
from loadsim.report.answer import summarise
from loadsim.results.logwriter import TimingLogWriter
from loadsim.results.merge import merge
from loadsim.results.timinglog import read_log, write_log


def write_run(place: Path, run: str, engines: Sequence[int] = (0, 1), hour: int = 8) -> list[Path]:
    """The logs of those engines of a run of two: four users, two on each, who read in each of the first 50 s."""
    return [
        write_sample(
            place / f"{run}.{engine}.tlog",
            [done("READ", 1000 * at, 10, user=1 + 2 * engine) for at in range(50)],
            header={
                "run": run,
                "criteria": {"score_ms": {"below": 1000}},
                "engine": str(engine),
                "users": 4,
                "wall_clock_start": f"2026-01-05T{hour:02d}:00:00+00:00",
            },
        )
        for engine in engines
    ]


@pytest.mark.parametrize("short", ["first", "second"])
def test_an_engine_without_a_log_is_missed_in_any_run(tmp_path: Path, short: str) -> None:
    """Its users count as lost, whichever run it belongs to; another run's users do not stand in for them."""
    logs = [path for run in ("first", "second") for path in write_run(tmp_path, run, (0,) if run == short else (0, 1))]
    write_log(merge([read_log(path) for path in logs], rebase=True), tmp_path / "merged.tlog")
    for score in (summarise(logs, rebase=True).score, summarise([tmp_path / "merged.tlog"]).score):
        assert (score["users"], score["runs"]) == (8, 2)
        assert score["verdict"]["validity"] == "invalid"
        assert score["verdict"]["reasons"] == [
            "the generator lost 2 of 8 users, at most 1 % allowed",
            f"run {short} by itself is invalid: the generator lost 2 of 4 users, at most 1 % allowed;"
            " the logs are of 2 of 4 users",
            f"the logs of run {short} are of 2 of 4 users",
        ]


def test_users_of_different_scenarios_are_not_lost(tmp_path: Path) -> None:
    """Forced together, a run of four users and one of one: each has those of its own scenario."""
    small = write_sample(
        tmp_path / "small.tlog",
        [done("READ", 1000 * at, 10) for at in range(50)],
        header={
            "run": "small",
            "users": 1,
            "engine_users": 1,
            "scenario_digest": "s2",
            "hand": {"users": 1, "step": 2_654_435_769, "begin": 0, "end": 2**32},
        },
    )
    score = summarise([*write_run(tmp_path, "large"), small], rebase=True, force=True).score
    assert (score["users"], score["verdict"]["validity"]) == (5, "valid")


def test_a_run_beyond_the_window_is_named(tmp_path: Path) -> None:
    """It began an hour after the other: unless rebased, none of its tasks counts, and the answer says so."""
    logs = [*write_run(tmp_path, "first"), *write_run(tmp_path, "second", hour=9)]
    apart, rebased = summarise(logs), summarise(logs, rebase=True)
    assert apart.score["planned"] == 100 and rebased.score["planned"] == 200
    assert apart.score["verdict"]["validity"] == "invalid"
    assert apart.score["verdict"]["reasons"] == [
        "run second by itself is invalid: the logs hold no task: there is no score",
        "no task of run second was due in the window: its own start is another one (see --rebase)",
    ]
    assert rebased.score["verdict"]["validity"] == "valid"
    assert "\nLogs of 2 runs: users, engines, rates and counts are those of all together\n" in rebased.text
    assert "Logs of" not in summarise(logs[:2]).text


def test_a_run_that_is_invalid_does_not_count_among_many(tmp_path: Path) -> None:
    """A third of its tasks were never begun: of all ten runs' together 95 % were, which would be enough."""
    logs = []
    for number in range(10):
        tasks = [done("READ", 1000 * at, 10) for at in range(60)]
        tasks += [skipped("READ", 1000 * at) for at in range(60, 90)] if number == 4 else []
        asked = {"limits": {"hits": 1, "done": 0.9}, "criteria": {"score_ms": {"below": 1000}}}
        header = {"run": f"run-{number}", **asked}
        logs.append(write_sample(tmp_path / f"{number}.tlog", tasks, header=header))
    score = summarise(logs, rebase=True).score
    assert score["attempted_share"] == score["done_share"] == pytest.approx(600 / 630)
    assert (score["verdict"]["validity"], score["verdict"]["reasons"]) == (
        "invalid",
        ["run run-4 by itself is invalid: 60 of 90 planned tasks were begun (66.67 %), at least 90 % needed"],
    )
    assert summarise([*logs[:4], *logs[5:]], rebase=True).score["verdict"]["validity"] == "valid"


def test_no_window_reaches_beyond_the_runs(tmp_path: Path) -> None:
    """Rates would count time without load. Of runs that lie apart in time nobody knows that: theirs may be longer."""
    logs = [
        write_sample(tmp_path / f"{run}.tlog", [done("READ", 1000, 10)], header={"run": run, "duration_s": 100})
        for run in ("first", "second")
    ]
    with pytest.raises(LogError, match="window: expected an end within the run's 100 s, found 200 s"):
        summarise(logs, end_s=200, rebase=True)
    write_log(merge([read_log(path) for path in logs], rebase=True), tmp_path / "merged.tlog")
    with pytest.raises(LogError, match="window: expected an end within"):
        summarise([tmp_path / "merged.tlog"], end_s=200)
    assert summarise(logs, end_s=200).score["window_s"] == [0, 200]


def watched(place: Path, run: str, samples: Sequence[dict[str, Any]], hour: int) -> Path:
    """The log of a run's one engine, which saw this of itself."""
    header = HEADER | {
        "run": run,
        "wall_clock_start": f"2026-01-05T{hour:02d}:00:00+00:00",
        "limits": HEADER["limits"] | {"generator_lag_share": None},
    }
    writer = TimingLogWriter(place / f"{run}.tlog", header, EPOCH_NS)
    for at in range(100):
        writer.task(**done("READ", 1000 * at, 100))
    for one in samples:
        writer.health(one)
    writer.facts(ENDED)
    writer.close()
    return place / f"{run}.tlog"


@pytest.mark.parametrize("again", [False, True])
def test_the_generator_of_one_run_does_not_excuse_that_of_another(tmp_path: Path, again: bool) -> None:
    """One tick in 50 of a run was 30 ms late: its own 99th percentile is, that of both runs' ticks is not."""
    late = [30_000 if tick % 50 == 0 else 100 for tick in range(100)]
    bad = watched(tmp_path, "bad", [sample(at, late, cpu_share=0.9) for at in range(1, 101)], 8)
    good = [watched(tmp_path, f"good-{number}", [sample(at, CALM) for at in range(1, 101)], 9) for number in range(2)]
    logs = [bad, *good]
    if again:
        write_log(merge([read_log(path) for path in logs], rebase=True), tmp_path / "merged.tlog")
        logs = [tmp_path / "merged.tlog"]
    score = summarise(logs, rebase=True).score
    assert (score["generator"]["lag_p99_ms"], score["generator"]["cpu_share"]) == (30, pytest.approx(0.9))
    assert score["verdict"]["validity"] == "invalid"
    reasons = score["verdict"]["reasons"]
    assert [reason for reason in reasons if reason.startswith("the event loop of engine bad: c1.0 was late")]
    assert not [reason for reason in reasons if "good" in reason]


def test_health_keeps_its_distance_in_time_as_records_do(tmp_path: Path) -> None:
    """Of a run that began an hour later, what was seen there is no health of the first run's window."""
    calm = watched(tmp_path, "calm", [sample(at) for at in range(1, 101)], 8)
    later = watched(tmp_path, "later", [sample(at, [80_000] * 100) for at in range(1, 101)], 9)
    assert summarise([calm, later]).score["generator"]["lag_p99_ms"] == 0.1
    merged = merge([read_log(calm), read_log(later)])
    assert [one["at_s"] for one in merged.health if one["run"] == "later"] == pytest.approx(
        [3600.0 + at for at in range(1, 101)]
    )
