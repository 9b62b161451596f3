"""The answer about the logs of several runs: who took part, what lies in the window, and whose health it was."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from health_samples import CALM, sample
from timing_samples import ENDED, EPOCH_NS, HEADER, done, event, only, skipped, write_sample

from loadsim.analysis.summary import summarise
from loadsim.cli import main
from loadsim.errors import LogError
from loadsim.model.records import TaskRecord
from loadsim.report.answer import full_answer
from loadsim.timinglog.merge import merge
from loadsim.timinglog.reader import read_log, write_log
from loadsim.timinglog.writer import TimingLogWriter

CRITERIA = {"score_ms": {"below": 1000}, "failed_share": {"max": 0.01}}


def write_run(place: Path, run: str, engines: Sequence[int] = (0, 1), hour: int = 8) -> list[Path]:
    """The logs of those engines of a run of two: four users, two on each, who read in each of the first 50 s."""
    return [
        write_sample(
            place / f"{run}.{engine}.tlog",
            [done("READ", 1000 * at, 10, user=1 + 2 * engine) for at in range(50)],
            header={
                "run": run,
                "engine": str(engine),
                "users": 4,
                "criteria": CRITERIA,
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
        assert (score["users"], score["runs"]) == (4, 2)
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
            "criteria": CRITERIA,
            "engine_users": 1,
            "scenario_digest": "s2",
            "hand": {"users": 1, "step": 2_654_435_769, "begin": 0, "end": 2**32},
        },
    )
    score = summarise([*write_run(tmp_path, "large"), small], rebase=True, force=True).score
    assert (score["users"], score["verdict"]["validity"]) == (2.5, "valid")


def test_runs_that_began_far_apart_need_a_common_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is valid by itself, and no window has tasks of both: one line says what to do, also of a merged log."""
    logs = [*write_run(tmp_path, "first"), *write_run(tmp_path, "second", hour=9)]
    write_log(merge([read_log(path) for path in logs]), tmp_path / "merged.tlog")
    for given in (logs, [tmp_path / "merged.tlog"]):
        assert main(["log", "answer", *map(str, given)]) == 2
        out, error = capsys.readouterr()
        assert not out and error == (
            "loadsim: expected one run, or runs with one start; found 2 runs that began 60 min apart: name one, or add"
            " --rebase to put them on a common start\n"
        )
    rebased = summarise(logs, rebase=True)
    assert rebased.score["planned"] == 100
    assert rebased.score["verdict"]["validity"] == "valid"
    assert "\nLogs of 2 runs: users, engines, rates and counts are means per run; " in full_answer(rebased)
    assert "Logs of" not in full_answer(summarise(logs[:2]))


def test_runs_with_one_start_need_no_rebase(tmp_path: Path) -> None:
    """They began in the same hour: their windows overlap, and all tasks count."""
    logs = [*write_run(tmp_path, "first"), *write_run(tmp_path, "second")]
    score = summarise(logs).score
    assert (score["planned"], score["verdict"]["validity"]) == (100, "valid")


def test_a_run_without_tasks_in_the_window_is_named(tmp_path: Path) -> None:
    """It began 75 s after the other: the window of 50 s from the other's start has none of its tasks."""
    logs = [
        repeat(tmp_path, run, wall_clock_start=f"2026-01-05T08:{start}+00:00")
        for run, start in (("first", "00:00"), ("second", "01:15"))
    ]
    reasons = summarise(logs, end_s=50).score["verdict"]["reasons"]
    assert "no task of run second was due in the window: its own start is another one (see --rebase)" in reasons


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ({"day_s": 120.0, "users": 3}, "topology 1 and 3; run.day_length 8 h and 2 min (in runs 'run-1' and 'run-2')"),
        ({"weights": {"READ": 9}}, "weights.READ 10 and 9; weights.SEND 1 and not set (in runs 'run-1' and 'run-2')"),
    ],
)
def test_different_scenarios_are_named_by_their_keys(tmp_path: Path, header: dict[str, Any], found: str) -> None:
    """A digest says nothing to people; `report` has both runs on one page."""
    weights = {"weights": {"READ": 10, "SEND": 1}, "users": 1, "scenario_digest": "s1"}
    logs = [
        repeat(tmp_path, "run-1", **weights),
        repeat(tmp_path, "run-2", **(weights | header | {"scenario_digest": "s2"})),
    ]
    with pytest.raises(LogError) as refusal:
        summarise(logs, rebase=True)
    assert str(refusal.value) == (
        f"merge: expected runs of one scenario, found {found}: name one, or use loadsim report RUN RUN"
    )


def test_a_run_that_is_invalid_does_not_count_among_many(tmp_path: Path) -> None:
    """A third of its tasks were never begun: of all ten runs' together 95 % were, which would be enough."""
    logs = []
    for number in range(10):
        tasks = [done("READ", 1000 * at, 10) for at in range(60)]
        tasks += [skipped("READ", 1000 * at) for at in range(60, 90)] if number == 4 else []
        header = {"run": f"run-{number}", "limits": {"hits": 1, "done": 0.9}, "criteria": CRITERIA}
        logs.append(write_sample(tmp_path / f"{number}.tlog", tasks, header=header))
    score = summarise(logs, rebase=True).score
    assert score["attempted_share"] == score["done_share"] == pytest.approx(600 / 630)
    assert (score["verdict"]["validity"], score["verdict"]["reasons"]) == (
        "invalid",
        ["run run-4 by itself is invalid: 60 of 90 tasks that were due were begun (66.67 %), at least 90 % needed"],
    )
    assert summarise([*logs[:4], *logs[5:]], rebase=True).score["verdict"]["validity"] == "valid"


def repeat(place: Path, run: str, reads: int = 90, refused: int = 0, **header: Any) -> Path:
    """The log of a run of 100 s with so many READs of 10 ms, some of which are refused."""
    tasks = [done("READ", at * 100_000 / reads, 10) for at in range(reads - refused)]
    tasks += [done("READ", at * 100_000 / reads, 10, outcome="refused", error="NO") for at in range(refused)]
    return write_sample(
        place / f"{run}.tlog", tasks, header={"run": run, "limits": {"hits": 1}, "criteria": CRITERIA, **header}
    )


def test_counts_and_rates_are_per_run(tmp_path: Path) -> None:
    """Three runs of 24 tasks/s are no 72: criteria, users, counts and equivalents are those of one run, on average."""
    header = {"criteria": {"tasks_per_s": {"min": 60}, "planned": {"max": 2500}}, "day_s": 14_400.0, "compression": 2.0}
    logs = [repeat(tmp_path, f"run-{number}", 2400, **header) for number in range(3)]
    summary = summarise(logs, rebase=True)
    score = summary.score
    assert (score["offered_per_s"], score["achieved_per_s"], score["tasks_per_s"]) == (24, 24, 24)
    assert (score["users"], score["engines"], score["load_equivalent_users"], score["planned"]) == (2, 1, 4, 2400)
    (read,) = score["tasks"]
    assert (read["hits"], read["done_per_s"], score["by_protocol"]["imap"]["users"]) == (2400, 24, 1)
    assert summary.exit_status == 1
    assert "tasks_per_s 24.0 per s, at least 60 per s wanted" in score["verdict"]["reasons"]
    assert "24.0 tasks/s achieved of 24.0 due" in full_answer(summary)
    alone = summarise(logs[:1]).score
    assert {key: alone[key] for key in ("users", "planned", "tasks_per_s")} == {
        key: score[key] for key in ("users", "planned", "tasks_per_s")
    }


def test_means_of_counts_are_exact_where_they_decide_and_short_where_they_are_read(tmp_path: Path) -> None:
    """One refused task in three runs of 90 is a third of one, which is more than none."""
    header = {"criteria": {"failed": {"max": 0}, "tasks.READ.refused": {"max": 0.3}}}
    logs = [repeat(tmp_path, f"run-{number}", refused=number == 1, **header) for number in range(3)]
    summary = summarise(logs, rebase=True)
    assert summary.score["failed"] == 1 / 3
    assert summary.score["failed_share"] == pytest.approx(1 / 270)
    assert summary.score["tasks"][0]["failures"][0]["times"] == 1 / 3
    assert "Tasks in the window: 90 due, 90 ended (0.3 failed)" in full_answer(summary)
    assert "Failures: 0.3 READ refused (NO)" in full_answer(summary)
    assert [one["passed"] for one in summary.score["verdict"]["criteria"]] == [False, False]


def test_few_hits_are_those_of_all_runs(tmp_path: Path) -> None:
    """Of 3 runs of 90 and of 120 READs, 270 are below 300 and 360 are not; the text prints what was compared."""
    few, enough = (
        full_answer(summarise([repeat(tmp_path, f"{reads}-{run}", reads) for run in range(3)], rebase=True))
        for reads in (90, 120)
    )
    assert "provisional, with fewer than 300 hits in 3 runs together: READ 270.\n" in few
    assert "provisional" not in enough
    alone = full_answer(summarise([tmp_path / "90-0.tlog"]))
    assert "provisional, with fewer than 300 hits: READ 90.\n" in alone


def test_a_run_that_misses_criteria_by_itself_is_named(tmp_path: Path) -> None:
    """Every fifteenth READ of one run in ten is refused: 7 %, and 0.7 % of all runs', which would be few enough."""
    logs = [repeat(tmp_path, f"run-{number}", refused=6 * (number == 4)) for number in range(10)]
    summary = summarise(logs, rebase=True)
    verdict = summary.score["verdict"]
    assert [one["passed"] for one in verdict["criteria"]] == [True] * 2
    assert (verdict["validity"], verdict["passed"], summary.exit_status) == ("valid", False, 1)
    assert verdict["reasons"] == ["run run-4 by itself misses criteria: failed_share 6.667 %, at most 1 % wanted"]
    others = summarise([*logs[:4], *logs[5:]], rebase=True)
    assert (others.score["verdict"]["passed"], others.exit_status) == (True, 0)


def test_the_longest_queue_is_that_of_the_worst_run(tmp_path: Path) -> None:
    """Three runs have 4, 1 and 1 messages under way at 2 s: the most are 4, and 2 on average, never 6."""
    logs = [
        write_sample(
            tmp_path / f"{run}.tlog",
            [done("READ", 1000, 10)],
            [event("accepted", f"n1.{number}", 2, 1500) for number in range(many)],
            header={"run": f"run-{run}"},
        )
        for run, many in enumerate((4, 1, 1))
    ]
    mail = summarise(logs, rebase=True).score["delivery"]
    assert (mail["accepted"], mail["under_way_max"], mail["under_way_at_end"]) == (2, 4, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("header", "named"),
    [
        ({"criteria": {"score_ms": {"below": 500}}}, "criteria.score_ms.below: .* found 1000 in .* and 500 in"),
        ({"criteria": {"score_ms": None}}, "criteria.score_ms: .* found {'below': 1000} in .* and None in"),
        ({"limits": {"hits": 7}}, "limits.hits: .* found 1 in .* 'run-1' and 7 in .* 'run-2'"),
        ({"limits": {}}, "limits.hits: .* found 1 in .* and the default in"),
        (
            {"limits": {"hits": 1, "generator_lag_share": None}},
            r"limits.generator.lag_share: .* found the default in .* and off \(null\) in",
        ),
        (
            {"scenario_digest": "s2", "limits": {"hits": 1, "generator_cpu": 0.07}},
            r"expected runs of one scenario, found limits.generator.cpu the default and 7 % \(in runs 'run-1' and",
        ),
        ({"weights": {"READ": 9, "SEND": 1, "MOVE": 1, "COPY": 1}}, "weights.READ: .* found 10 in .* and 9 in"),
        ({"window_s": [0.0, 90.0]}, r"window_s: .* found \[0.0, 100.0\] in .* and \[0.0, 90.0\] in"),
        ({"compression": 2.0}, "compression: .* found 1.0 in .* and 2.0 in"),
    ],
)
def test_runs_that_are_judged_differently_are_not_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: dict[str, Any], named: str
) -> None:
    """The difference is named; merged by force, they are invalid, and so is the merged log, as often as it is read."""
    criteria = {"criteria": {"score_ms": {"below": 1000}}}
    logs = [repeat(tmp_path, "run-1", **criteria), repeat(tmp_path, "run-2", **(criteria | header))]
    with pytest.raises(LogError, match=f"merge: {named}"):
        summarise(logs, rebase=True)
    assert main(["log", "answer", "--rebase", *map(str, logs)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    name = found[0] if (found := re.findall(r"limits\.[a-z._]+\w", named)) else named.partition(":")[0]
    write_log(merge([read_log(path) for path in logs], rebase=True, force=True), tmp_path / "forced.tlog")
    third = repeat(tmp_path, "run-3", **criteria)
    for forced in (logs, [tmp_path / "forced.tlog"], [tmp_path / "forced.tlog", third]):
        summary = summarise(forced, rebase=True, force=True)
        assert summary.exit_status == 3
        assert f"the logs were merged by force, and differ in {name}" in summary.score["verdict"]["reasons"]


def test_no_window_reaches_beyond_the_runs(tmp_path: Path) -> None:
    """Rates and shares of time would count time without load."""
    logs = [
        write_sample(tmp_path / f"{run}.tlog", [done("READ", 1000, 10)], header={"run": run, "duration_s": 100})
        for run in ("first", "second")
    ]
    with pytest.raises(LogError, match="window: expected an end within the run's 100 s, found 200 s"):
        summarise(logs, end_s=200, rebase=True)
    write_log(merge([read_log(path) for path in logs], rebase=True), tmp_path / "merged.tlog")
    with pytest.raises(LogError, match="window: expected an end within"):
        summarise([tmp_path / "merged.tlog"], end_s=200)
    with pytest.raises(LogError, match="window: expected an end within"):
        summarise(logs, end_s=200)


def watched(place: Path, run: str, samples: Sequence[dict[str, Any]], hour: int, minutes: str = "00:00") -> Path:
    """The log of a run's one engine, which saw this of itself."""
    header = HEADER | {
        "run": run,
        "wall_clock_start": f"2026-01-05T{hour:02d}:{minutes}+00:00",
        "limits": HEADER["limits"] | {"generator_lag_share": None},
        "criteria": only(CRITERIA),
    }
    writer = TimingLogWriter(place / f"{run}.tlog", header, EPOCH_NS)
    for at in range(100):
        writer.task(TaskRecord(**done("READ", 1000 * at, 100)))
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
    assert not [reason for reason in reasons if "good" in reason and "event loop" in reason]


def test_health_keeps_its_distance_in_time_as_records_do(tmp_path: Path) -> None:
    """What was seen of a run that began 90 s later, 20 s after its start, is no health of the first run's window."""
    calm = watched(tmp_path, "calm", [sample(at) for at in range(1, 101)], 8)
    later = watched(tmp_path, "later", [sample(at, [80_000] * 100) for at in range(20, 101)], 8, "01:30")
    assert summarise([calm, later]).score["generator"]["lag_p99_ms"] == 0.1
    merged = merge([read_log(calm), read_log(later)])
    assert [one["at_s"] for one in merged.health if one["run"] == "later"] == pytest.approx(
        [90.0 + at for at in range(20, 101)]
    )
