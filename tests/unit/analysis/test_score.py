"""The score: percentiles by their definition, statistics by hand, delivery by message, and the answer as text."""

import json
import math
import statistics
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import full_answer, short_answer
from findings_of import codes
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import GOLDEN_FILES
from timing_samples import ENDED, START_NS, done, event, ms, sample_log, skipped, write_sample, write_two_clients

from loadsim.analysis.delivery import delivery
from loadsim.analysis.score import standard_deviation
from loadsim.analysis.summary import summarise
from loadsim.errors import LogError
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.findings.severity import Severity
from loadsim.findings.verdict import EARLY_ENDS
from loadsim.model.terms import Window
from loadsim.runs.log_header import run_header
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.workload import Workload
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog import writer
from loadsim.timinglog.merge import merge
from loadsim.timinglog.records import GIVEN_UP

FAST = settings(deadline=None, max_examples=25)


@FAST
@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(1, 100))
def test_a_percentile_is_a_measured_value(samples: list[int], percent: int) -> None:
    """It is one of the samples, enough do not exceed it, and no smaller sample would do."""
    found = percentile(np.sort(samples), percent)
    assert found in samples
    assert 100 * sum(sample <= found for sample in samples) >= percent * len(samples)
    assert 100 * sum(sample < found for sample in samples) < percent * len(samples)


def test_ranks_are_computed_in_whole_numbers() -> None:
    """7 % of 100 samples are 7, though 0.07 * 100 is more than 7; 99.9 % of 1000 are 999."""
    assert percentile(np.arange(1, 101), 7) == 7
    assert percentile(np.arange(1, 1001), Fraction(999, 10)) == 999


def test_no_samples_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no samples"):
        percentile(np.array([]), 95)


@FAST
@given(st.lists(st.integers(0, 10**9), min_size=2))
def test_the_deviation_is_that_of_a_sample(samples: list[int]) -> None:
    """Python's statistics module says the same; a single sample does not deviate."""
    assert math.isclose(standard_deviation(np.array(samples)), statistics.stdev(samples), rel_tol=1e-9, abs_tol=1e-6)
    assert standard_deviation(np.array(samples[:1])) == 0


def test_the_answer_agrees_with_manual_calculation(tmp_path: Path) -> None:
    """The whole text; the figures of READ are those of 10, 20, ... 200 ms, shared by two clients.

    95 % of 20 are 19: 190 ms. SEND: 30, 50, 40 ms and one timeout. Score: (10 * 190 + 50) / 11 = 177.3 ms.
    The standard deviation of 1 to n times 10 is 10 * sqrt(n * (n + 1) / 12) = 59.2; of 5 and 15, sqrt(50) = 7.1.
    Of 4 SENDs that were due, 95 % are all 4, and one never ended: its response time is infinite, as is that of the MOVE
    that never began; so is the response score. Both users had a session for all of the 1 s.
    """
    summary = summarise([write_two_clients(tmp_path)])
    assert full_answer(summary) == (GOLDEN_FILES / "answer.txt").read_text(encoding="utf-8")
    assert short_answer(summary, 80) == (GOLDEN_FILES / "short-answer.txt").read_text(encoding="utf-8")
    assert summary.exit_status == 3


def test_failed_and_undone_tasks_have_infinite_response_times(tmp_path: Path) -> None:
    """Of 20 READs that were due, 18 were answered, after 11 to 28 ms, one failed at once, and one was never begun.

    The 90th of 20 is the slowest hit; the 95th never came. Service times know nothing of it.
    """
    tasks = [done("READ", at, at, late_ms=10) for at in range(1, 19)]
    tasks += [done("READ", 50, 1, outcome="refused"), skipped("READ", 60)]
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks)])
    (read,) = summary.score["tasks"]
    assert (read["response_p50_ms"], read["response_p90_ms"]) == (20, 28)
    assert {read[f"response_{name}_ms"] for name in ("p95", "p99", "p99_9", "max")} == {"inf"}
    assert (read["p95_ms"], read["max_ms"], read["planned"], read["done"]) == (18, 18, 20, 19)
    row = next(line.split() for line in full_answer(summary).splitlines() if line.startswith("READ"))
    assert row[5:7] == ["never", "1"]  # the 95th from the due time, and how many failed
    narrow = next(line.split() for line in short_answer(summary, 62).splitlines() if line.startswith("READ"))
    assert narrow == row[:7]
    assert "Infinity" not in json.dumps(summary.score)


def test_response_score_and_score_have_the_same_weights(tmp_path: Path) -> None:
    """READ took 10 ms each, but the last 2 of 20 began 500 ms late; SEND 40 ms, 60 ms late; SYNC is not scored.

    The 95th percentile of 20 is the 19th: 510 ms. (10 * 510 + 1 * 100) / 11; the score: (10 * 10 + 1 * 40) / 11.
    """
    tasks = [done("READ", at, 10, late_ms=500 if at >= 18 else 0) for at in range(20)]
    tasks += [done("SEND", 5, 40, late_ms=60), done("SYNC", 5, 1, late_ms=90_000)]
    score = summarise([sample_log(tmp_path / "a.tlog", tasks)]).score
    assert score["response_score_ms"] == pytest.approx((10 * 510 + 100) / 11)
    assert score["by_protocol"]["imap"]["response_score_ms"] == score["response_score_ms"]
    assert score["score_ms"] == pytest.approx((10 * 10 + 40) / 11)


def test_failures_are_counted_by_kind(tmp_path: Path) -> None:
    """By outcome and error, the most frequent first; the text has the five most frequent of all tasks."""
    refused = {"outcome": "refused", "error": "NO FETCH"}
    tasks = [done("READ", at, 1, **refused) for at in range(3)]
    tasks += [done("READ", at, 1, outcome="lost", error="connection lost") for at in range(4)]
    tasks += [done("SEND", at, 1, outcome="lost", error="connection lost") for at in range(2)]
    tasks += [done(name, 1, 1, **refused) for name in ("MOVE", "COPY", "DELETE")] + [done("READ", 9, 1)]
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks)])
    read = next(task for task in summary.score["tasks"] if task["task"] == "READ")
    assert read["failures"] == [
        {"outcome": "lost", "kind": "connection lost", "times": 4},
        {"outcome": "refused", "kind": "NO FETCH", "times": 3},
    ]
    assert (
        "\nFailures (see events.jsonl): 4 READ lost (connection lost), 3 READ refused (NO FETCH),"
        " 2 SEND lost (connection lost), 1 COPY refused (NO FETCH), 1 DELETE refused (NO FETCH), 1 more kind\n"
    ) in full_answer(summary)


def test_few_hits_make_a_score_provisional(tmp_path: Path) -> None:
    """Fewer than 300 of a task with a weight; of a task without one they do not matter."""
    tasks = [done("READ", at, 10) for at in range(300)] + [done("SYNC", 1, 1)]
    assert not summarise([sample_log(tmp_path / "a.tlog", tasks)]).score["provisional"]
    few = summarise([sample_log(tmp_path / "b.tlog", [*tasks, *(done("SEND", at, 10) for at in range(299))])])
    assert few.score["provisional"]
    assert few.score["covers"]["few_hits"] == ["SEND"]
    assert [one.values["tasks"] for one in few.verdict.findings if one.code is Code.PROVISIONAL] == [("SEND",)]


def test_a_score_has_a_confidence_interval(tmp_path: Path) -> None:
    """An interval in score.json and in the text, which holds the score; the same whenever it is computed."""
    random = np.random.default_rng(8)
    took_ms = random.lognormal(3, 0.5, 3600)
    tasks = [done("READ", 1000 * at, float(took)) for at, took in enumerate(took_ms)]
    log = sample_log(tmp_path / "a.tlog", tasks, header={"window_s": [0.0, 3600.0]})
    summary = summarise([log])
    low_ms, high_ms = summary.score["score_interval_ms"]
    assert low_ms < summary.score["score_ms"] < high_ms
    assert (high_ms - low_ms) / 4 >= 1
    assert summary.score["tasks"][0]["interval_ms"] == pytest.approx([low_ms, high_ms])
    assert f", {low_ms:.1f} ms to {high_ms:.1f} ms within this run (95 %)\n" in full_answer(summary)
    assert Code.NO_INTERVAL not in {one.code for one in summary.verdict.findings}
    (average,) = (line.split() for line in full_answer(summary).splitlines() if line.startswith("Score, weighted"))
    assert average[4] == f"{summary.score['score_ms']:.1f}"
    assert summarise([log]).score == summary.score


def test_a_window_holds_what_was_due_in_it(tmp_path: Path) -> None:
    """The begin belongs to it, the end does not, and when a task ended does not matter."""
    tasks = [
        done("READ", due_ms, took_ms) for due_ms, took_ms in ((999.999, 1), (1000, 2), (1999.999, 5000), (2000, 3))
    ]
    score = summarise([sample_log(tmp_path / "a.tlog", tasks)], begin_s=1, end_s=2).score
    assert [(task["hits"], task["p50_ms"], task["p95_ms"]) for task in score["tasks"]] == [(2, 2, 5000)]


def test_weights_replace_those_of_the_header(tmp_path: Path) -> None:
    """Given weights replace the header's; a task without one is reported and not scored."""
    log = sample_log(tmp_path / "a.tlog", [done("READ", 0, 10), done("SEND", 1, 40), done("SYNC", 2, 900)])
    assert summarise([log]).score["score_ms"] == pytest.approx((10 * 10 + 40) / 11)
    score = summarise([log], weights={"READ": 1, "SEND": 1, "SYNC": 2}).score
    assert score["score_ms"] == pytest.approx((10 + 40 + 2 * 900) / 4)
    assert summarise([log], weights={"SEND": 0.5}).score["score_ms"] == 40


def test_a_scored_logon_leaves_the_score_without_an_interval(tmp_path: Path) -> None:
    """It lies outside the window, of which an interval is made: that of the other tasks is not that of the score."""
    tasks = [done("READ", 4000 * at, 10 + at % 7) for at in range(900)]
    tasks += [done("LOGON", -100 - at, 1000 + at) for at in range(400)]
    header = {"weights": {"READ": 1, "LOGON": 1}, "window_s": [0.0, 3600.0]}
    answer = summarise([sample_log(tmp_path / "a.tlog", tasks, header=header)]).score
    assert answer["score_ms"] == (16 + 1379) / 2
    assert answer["score_interval_ms"] is None
    assert {task["task"]: (task["interval_ms"], task["no_interval"]) for task in answer["tasks"]} == {
        "READ": ([16, 16], None),
        "LOGON": (None, "not-in-window"),
    }
    assert [one["values"] for one in answer["findings"] if one["code"] == "tasks-without-interval"] == [
        {"tasks": ("LOGON",)}
    ]


def test_drivers_have_separate_scores(tmp_path: Path) -> None:
    """With two of them each has its own score, the common one is null, and the text has a table for each."""
    tasks = [done("READ", 0, 10), done("READ", 1, 500, user=2, protocol="aioimaplib")]
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks)])
    assert (summary.score["score_ms"], summary.score["tasks"]) == (None, [])
    assert {name: one["score_ms"] for name, one in summary.score["by_protocol"].items()} == {
        "imap": 10,
        "aioimaplib": 500,
    }
    assert full_answer(summary).count("Score, weighted") == 2


@pytest.mark.parametrize(
    ("day", "night", "run", "line"),
    [
        ("8h", "0s", "{}", "Day: 8 h, not compressed"),
        ("8h", "0s", "{day_length: 5m}", "Day: compressed, 8 h in 5 min (96 x)"),
        ("10h", "0s", "{day_length: 8h}", "Day: compressed, 10 h in 8 h (1.25 x)"),
        ("6h", "0s", "{day_length: 12h}", "Day: stretched, 6 h in 12 h (0.5 x)"),
        ("10h", "5h", "{day_length: 1h}", "Day: compressed, 10 h in 1 h with a night of 30 min (10 x)"),
    ],
)
def test_load_equivalent_users_have_a_day_of_eight_hours(
    tmp_path: Path, day: str, night: str, run: str, line: str
) -> None:
    """Users set out to do so much per second by day; one with the same activities in 8 hours does so much of it."""
    profile = tmp_path / "worker.yaml"
    profile.write_text(f"name: worker\nfrom: loadsim-5.5/medium\nday: {day}\nnight: {night}\n")
    topology = f"topology=[{{profile: {profile}, users: 20}}]"
    load = Workload(load_scenario("quickstart", [topology, f"run={run}"]))
    header = run_header(load, "run-1", "somewhere", "p1", None, None) | {"users": 20, "limits": {}, "criteria": {}}
    at_ms = 1000 * (header["window_s"][0] + 1)
    score = summarise([sample_log(tmp_path / "a.tlog", [done("READ", at_ms, 5)], header=header)])

    days_s = load.scenario.run.active_s
    per_s = sum(1 for user in range(1, 21) for _ in load.activities(user)) / days_s
    profile.write_text("name: worker\nfrom: loadsim-5.5/medium\nday: 8h\n")
    office = Workload(load_scenario("quickstart", [topology, "run={}"]))
    one_per_s = sum(1 for user in range(1, 21) for _ in office.activities(user)) / 28800 / 20
    assert score.score["load_equivalent_users"] == round(per_s / one_per_s)
    assert f"\n{line}\n" in full_answer(score)


@pytest.mark.parametrize(
    ("mails", "expected"),
    [
        ([("accepted", "n1.0", 2, 10), ("seen", "n1.0", 2, 25)], (1, 1, 15)),
        ([("accepted", "n1.0", 2, 10), ("seen", "n1.0", 3, 25)], (1, 0, math.inf)),  # somebody else's copy
        ([("accepted", "n1.0", 2, 10), ("seen", "n1.00", 2, 25)], (1, 0, math.inf)),
        ([("accepted", "n1.0", 2, 10), ("found", "n1.0", 2, 25)], (1, 1, 15)),
        ([("accepted", "n1.0", 2, 10), ("found", "n1.0", 2, 9)], (1, 1, 0)),
        ([("accepted", "n1.0", 2, 10), ("seen", "n1.0", 2, 9)], (1, 1, 0)),  # shown before the acceptance was read
        ([("accepted", "n1.0", 2, 10), ("seen", "n1.0", 2, 30), ("seen", "n1.0", 2, 20)], (1, 1, 10)),  # twice
        ([("accepted", "n1.0", 2, 99_999), ("seen", "n1.0", 2, 100_100)], (1, 1, 101)),  # seen after the window
        ([("accepted", "n1.0", 2, 100_000), ("seen", "n1.0", 2, 100_100)], (0, 0, None)),
        ([("seen", "n1.0", 2, 5), ("read", "n1.0", 2, 6)], (0, 0, None)),
        ([("accepted", "n1.0", 256, 10), ("seen", "n1.0", 1, 11), ("seen", "n1.0", 65536, 11)], (1, 0, math.inf)),
    ],
)
def test_delivery_joins_message_and_recipient(
    tmp_path: Path, mails: list[tuple[str, str, int, float]], expected: tuple[int, int, float | None]
) -> None:
    """Accepted, delivered, and how long it took."""
    log = sample_log(tmp_path / "a.tlog", mails=[event(*mail) for mail in mails])
    found = delivery(log, Window(0, 100))
    assert (found.accepted, found.delivered, found.took.p95_ms) == expected


@pytest.mark.parametrize(
    ("mails", "expected"),
    [
        ([("seen", 2, 25)], (15, 0)),
        ([("seen", 2, 25), ("seen", 2, 30), ("found", 2, 90_000)], (15, 2)),
        ([("found", 2, 20), ("seen", 2, 30)], (10, 1)),  # there was one before anything was announced
        ([("seen", 2, 20), ("found", 2, 30)], (10, 1)),
        ([("seen", 2, 25), ("seen", 3, 30)], (15, 1)),  # it was not accepted for user 3
        ([("seen", 2, 4), ("seen", 2, 30)], (0, 1)),
        ([("seen", 2, 25), ("doubled", 2, 30), ("doubled", 2, 40)], (15, 1)),  # a folder had it twice
    ],
)
def test_copies_beyond_the_first_are_duplicates(
    tmp_path: Path, mails: list[tuple[str, int, float]], expected: tuple[float | None, int]
) -> None:
    """Of a message that was accepted at 10 ms for user 2: its delivery is that of the first copy."""
    events = [event("accepted", "n1.0", 2, 10), *(event(name, "n1.0", user, at_ms) for name, user, at_ms in mails)]
    summary = summarise([write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], events)])
    found = summary.score["delivery"]
    assert (found["max_ms"], found["duplicates"]) == expected
    told = next(line for line in full_answer(summary).splitlines() if line.startswith("Delivery: "))
    assert (told.endswith("; 1 duplicate"), "duplicate" in told) == (expected[1] == 1, expected[1] > 0)


def test_mail_is_missing_only_if_users_waited_for_it(tmp_path: Path) -> None:
    """An engine waited for mail until the tenth second: of what it never saw, for the first message all of the drain.

    The others came later, from a machine that had lost its controller: it is unknown if they arrived.
    """
    log = sample_log(
        tmp_path / "c1.1.tlog",
        mails=[
            *(event("accepted", f"n1.{number}", 1, at_s * 1000) for number, at_s in enumerate((5, 7, 8, 11))),
            event("seen", "n1.1", 1, 8000),
        ],
        header={"engine_users": 2, "hand": {"users": 2, "step": 1, "begin": 1, "end": 3}},
        facts=ENDED | {"watched_until_ns": ms(10_000), "drain_s": 4.0},
    )
    found = delivery(log, Window(0, 100))
    assert (found.accepted, found.delivered, found.unwatched) == (4, 1, 2)
    assert found.undelivered == found.undelivered_at_end == 1


def test_there_is_no_answer_beyond_the_end_of_the_run(tmp_path: Path) -> None:
    """Tasks per second over hours of which the load lasted 100 s would be a wrong number; up to the end is fine."""
    log = sample_log(tmp_path / "a.tlog", [done("READ", 0, 1)], header={"duration_s": 100.0})
    assert summarise([log], end_s=100.0000001).score["planned"] == 1  # sums of durations are not exact
    with pytest.raises(LogError, match=r"window: expected an end within the run's 100 s, found 14400 s"):
        summarise([log], end_s=14_400)


def test_sessions_that_broke_are_counted(tmp_path: Path) -> None:
    """Over all engines, also where every user came back."""
    facts = {**ENDED, "sessions_lost": 3, "sessions_restored": 2}
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], facts=facts)
    write_sample(tmp_path / "b.tlog", [done("READ", 0, 1)], facts=facts, header={"client": "c2"})
    both = summarise([tmp_path / "a.tlog", tmp_path / "b.tlog"])
    assert (both.score["sessions_lost"], both.score["sessions_restored"]) == (6, 4)


def test_companions_are_counted_over_all_engines(tmp_path: Path) -> None:
    """Two engines of one run are added up; an engine that died has reported none. Without any, there is no line."""
    counted = {"count": 2, "tried": 2, "log_ons": 5, "log_ons_failed": 1, "sessions_lost": 2, "failures": 4}
    facts = {**ENDED, "companions": {**counted, "looks": 0, "listed": 7, "planned_ns": 2 * 10**11, "down_ns": 10**10}}
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)], facts=facts)
    write_sample(tmp_path / "b.tlog", [done("READ", 0, 1)], facts=facts, header={"client": "c2"})
    write_sample(tmp_path / "dead.tlog", [done("READ", 0, 1)], header={"client": "c3"})
    found = summarise([tmp_path / "a.tlog", tmp_path / "b.tlog", tmp_path / "dead.tlog"])
    counts = {"count": 4, "log_ons": 10, "log_ons_failed": 2, "sessions_lost": 4, "failures": 8, "looks": 0}
    assert found.score["companions"] == {**counts, "listed": 14, "down_share": 0.05}
    alone = summarise([sample_log(tmp_path / "c.tlog", [done("READ", 0, 1)])])
    assert alone.score["companions"] is None


def test_a_late_generator_invalidates_runs_except_on_the_embedded_server(tmp_path: Path) -> None:
    """From the records through the limit to the exit status; busy users do not."""
    late = [done("READ", 0, 1, late_generator_s=0.25)]
    busy = [done("READ", 0, 1, late_ms=5000)]
    nothing_asked = {"criteria": {"score_ms": None}}
    values = {"late_p95_ms": 250.0, "limit_ms": 50.0}
    spoilt = summarise([sample_log(tmp_path / "a.tlog", late, header=nothing_asked)])
    assert (spoilt.exit_status, spoilt.verdict.defects) == (3, (finding(Code.GENERATOR_LATE, **values),))
    embedded = summarise([sample_log(tmp_path / "b.tlog", late, header={"embedded": True, **nothing_asked})])
    says = finding(Code.GENERATOR_LATE, "", Severity.WARNING, **values)
    assert (embedded.exit_status, embedded.verdict.warnings) == (0, (says,))
    assert summarise([sample_log(tmp_path / "c.tlog", busy, header=nothing_asked)]).exit_status == 0


@pytest.mark.parametrize(
    ("key", "first", "second"),
    [("plan_digest", "p1", "p2"), ("submission", "sequential", "own"), ("programs", "nothing", "thunderbird")],
)
def test_logs_with_different_plans_or_programs_are_not_merged(
    tmp_path: Path, key: str, first: str, second: str
) -> None:
    one = sample_log(tmp_path / "a.tlog", [done("READ", 0, 1)])
    another = sample_log(tmp_path / "b.tlog", [done("READ", 0, 2)], header={"engine": "1", key: second})
    found = rf"{key}: .*'{first}' in c1\.0 and '{second}' in c1\.1"
    with pytest.raises(LogError, match=found):
        merge([one, another])


def test_the_same_log_twice_is_refused(tmp_path: Path) -> None:
    """Doubled records would double the hits."""
    write_sample(tmp_path / "a.tlog", [done("READ", 0, 1)])
    (tmp_path / "copy.tlog").write_bytes((tmp_path / "a.tlog").read_bytes())
    with pytest.raises(LogError, match=r"c1\.0 of run 'run-1' twice"):
        summarise([tmp_path / "a.tlog", tmp_path / "copy.tlog"])
    assert summarise([tmp_path / "a.tlog", tmp_path / "a.tlog"]).score["tasks"][0]["hits"] == 1


def test_an_engine_that_never_started_is_placed_by_the_wall_clock(tmp_path: Path) -> None:
    """Its log-ons come where they were: before the common start of the others, 3 s after their epoch."""
    one = sample_log(tmp_path / "a.tlog", [done("LOGON", -2000, 1)])
    dead = sample_log(tmp_path / "b.tlog", [done("LOGON", -1000, 1)], header={"engine": "1"}, facts={})
    assert dead.tasks["scheduled_us"].tolist() == [2_000_000] and START_NS - ms(-1000) == 10**9
    assert merge([one, dead]).tasks["scheduled_us"].tolist() == [-2_000_000, -1_000_000]


@pytest.mark.slow
def test_merged_names_beyond_the_table_are_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors give way, tasks and users' profiles stay. Older logs have that many kinds of error."""
    monkeypatch.setattr(writer, "MOST_ERRORS", writer.MOST_NAMES)
    logs = [
        sample_log(
            tmp_path / f"{engine}.tlog",
            [done("READ", number, 1, error=f"{engine}/{number}") for number in range(40_000)],
            header={"engine": engine},
        )
        for engine in ("0", "1")
    ]
    whole = merge(logs)
    assert len(whole.strings) == 65_535
    errors = whole.names(whole.tasks, "error")
    assert set(whole.names(whole.tasks, "task")) == {"READ"} and set(whole.names(whole.tasks, "engine")) == {"0", "1"}
    assert errors[0] == "0/0" and errors[-1] == "other" and np.count_nonzero(errors == "other") > 14_000


def test_lost_users_are_counted_from_the_logs(tmp_path: Path) -> None:
    """The generator has lost those of a log without an end and those of a log that is missing.

    The server has left without a session those of whom an engine says so.
    """
    four = {"users": 9, "engine_users": 3}
    logons = [
        done("LOGON", -1000, 1, user=1),
        done("LOGON", -1000, 1, user=2, outcome="refused"),
        done("LOGON", -900, 1, user=2),
        done("LOGON", -1000, 1, user=3, outcome="refused"),
        done("READ", 1, 1),
    ]
    complete = sample_log(tmp_path / "0.tlog", logons, header=four, facts=ENDED | {"lost_users": 1})
    down = sample_log(
        tmp_path / "1.tlog", [done("READ", 1, 1)], header=four | {"engine": "1"}, facts=ENDED | {"lost_users": 2}
    )
    killed = sample_log(tmp_path / "2.tlog", [done("READ", 1, 1)], header=four | {"engine": "2"}, facts={"start_ns": 0})
    alone = {"start_ns": START_NS, "ended": GIVEN_UP, "given_up_why": "no engine left"}
    given_up = sample_log(tmp_path / "3.tlog", [done("READ", 1, 1)], header=four | {"engine": "3"}, facts=alone)
    for third, why in (
        ([], finding(Code.LOGS_MISSING, present=6, users=9, missing=None)),
        ([killed], finding(Code.LOG_WITHOUT_END, "c1.2", last_s=None, users=3)),
        ([given_up], finding(Code.ENGINE_GIVEN_UP, "c1.3", last_s=None, why="no engine left", users=3)),
    ):
        summary = summarise([complete, down, *third])
        score, defects = summary.score, summary.verdict.defects
        assert (score["lost_users"], score["users_without_session"]) == (3, 3)  # user 3 never on, two of engine 1 down
        assert finding(Code.NO_SESSION_AT_END, without=3, users=9) in summary.verdict.warnings
        assert finding(Code.USERS_LOST, lost=3, users=9, limit_share=0.01) in defects
        assert why in defects
        assert not {*EARLY_ENDS} & {*codes(defects)}


@pytest.mark.parametrize("facts", [{"start_ns": START_NS}, {"start_ns": START_NS, "ended": GIVEN_UP}])
def test_a_run_that_no_engine_finished_is_invalid(tmp_path: Path, facts: Mapping[str, Any]) -> None:
    """With any limit of lost users and any number of tasks: no log states the end. One finished engine is enough."""
    header = {"limits": {"hits": 1, "window_s": 1, "lost_users": 1, "done": 0}, "users": 4}
    killed = sample_log(tmp_path / "0.tlog", [done("READ", 1, 1)], header=header, facts=facts)
    assert summarise([killed]).verdict.defects[0] == finding(Code.NO_END)
    lived = sample_log(tmp_path / "1.tlog", [done("READ", 1, 1)], header=header | {"engine": "1"})
    assert summarise([killed, lived]).score["verdict"]["validity"] == "degraded"
