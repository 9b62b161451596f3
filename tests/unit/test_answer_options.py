"""`loadsim log answer` with --percentile and --by: figures by hand, tables, and the one line of errors."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import done, skipped, write_sample, write_two_clients

from loadsim.analysis.summary import summarise
from loadsim.cli import parser
from loadsim.errors import ConfigError, LogError
from loadsim.model.population import group_index
from loadsim.model.scenario import load_scenario
from loadsim.report.answer import full_answer
from loadsim.report.answer_tables import ordinal
from loadsim.timinglog.groups import Groups


def run_answer(*arguments: str | Path) -> int:
    """Parse and run `loadsim log answer ...`; the exit status."""
    args = parser().parse_args(["log", "answer", *map(str, arguments)])
    status: int = args.run(args)
    return status


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    """What `loadsim log answer --json ...` prints."""
    run_answer("--json", *arguments)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def times_of(score: dict[str, Any], key: str) -> dict[str, Any]:
    """One figure of each task."""
    return {task["task"]: task[key] for task in score["tasks"]}


# --- percentile ---


@pytest.mark.parametrize("percent", ["50", "99.9", "100", "12.5", "0.001"])
def test_the_score_is_made_of_the_percentile_that_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], percent: str
) -> None:
    """Those of numpy, on all records; the score is their weighted average; the 95th stays what it is."""
    random = np.random.default_rng(5)
    took_us = {"READ": random.integers(1, 10**6, 1234), "SEND": random.integers(1, 10**6, 377)}
    tasks = [
        done(name, 30 * at, int(took) / 1000) for name, all_us in took_us.items() for at, took in enumerate(all_us)
    ]
    write_sample(tmp_path / "a.tlog", tasks)
    score = answer(capsys, "--percentile", percent, tmp_path)
    expected = {
        name: np.percentile(all_us, float(percent), method="inverted_cdf") / 1000 for name, all_us in took_us.items()
    }
    assert times_of(score, "percentile_ms") == pytest.approx(expected)
    assert score["score_ms"] == pytest.approx((10 * expected["READ"] + expected["SEND"]) / 11)
    assert score["percentile"] == float(percent)
    p95_ms = {name: np.percentile(all_us, 95, method="inverted_cdf") / 1000 for name, all_us in took_us.items()}
    assert times_of(score, "p95_ms") == pytest.approx(p95_ms)


def test_the_table_has_the_percentile_that_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its heads, their columns, and the scores below: the 97.5th of 10, 20, ... 200 ms is the longest; SEND's 50 ms.

    The response score is infinite: one of four SENDs never ended, and the MOVE never began.
    """
    log = write_two_clients(tmp_path)
    run_answer("--percentile", "97.5", log)
    lines = capsys.readouterr().out.splitlines()
    head = next(line for line in lines if line.startswith("Category"))
    assert "50th  97.5th" in head
    assert head.endswith("Due 97.5th  Failed")
    assert next(line for line in lines if line.startswith("READ")).split()[3:] == [
        *("100", "200", "105", "59.2", "200", "0"),
    ]
    assert next(line for line in lines if line.startswith("Weighted Avg")).split()[-3:] == ["-", "-", "1"]  # invalid
    score = summarise([log], percent=Fraction("97.5")).score
    assert (score["score_ms"], score["response_score_ms"]) == (pytest.approx((10 * 200 + 50) / 11), "inf")


@pytest.mark.parametrize(
    ("options", "score_ms"),
    [(("--percentile", "50"), 10), (("--percentile", "99"), 900)],
)
def test_criteria_and_verdict_are_those_of_the_95th(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, str], score_ms: float
) -> None:
    """A fifth of c1's READs takes 900 ms and none of c2's: merged 900 ms, at the median 10."""
    criteria = {"score_ms": {"below": 500}, "tasks.READ.p95_ms": {"below": 500}}
    for client, slow in (("c1", 20), ("c2", 0)):
        tasks = [done("READ", 900 * at, 900 if at < slow else 10) for at in range(100)]
        header = {"client": client, "criteria": criteria, "users": 4, "weights": {"READ": 1}}
        write_sample(tmp_path / f"{client}.tlog", tasks, header=header)
    plain, other = answer(capsys, tmp_path), answer(capsys, *options, tmp_path)
    assert (plain["score_ms"], other["score_ms"]) == (900, score_ms)
    for key in ("verdict", "warnings", "advice"):
        assert other[key] == plain[key]
    assert [one["figure"] for one in other["verdict"]["criteria"]] == [900, 900]
    said = "Criteria and verdict: by the 95th percentiles, not by those shown\n"
    assert run_answer(*options, tmp_path) == run_answer(tmp_path) == 1
    assert capsys.readouterr().out.count(said) == 1


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        (95, "95th"),
        (99.9, "99.9th"),
        (1, "1st"),
        (2, "2nd"),
        (93, "93rd"),
        (11, "11th"),
        (100, "100th"),
        (0.5, "0.5th"),
    ],
)
def test_ordinals(percent: float, said: str) -> None:
    """As they are spoken."""
    assert ordinal(percent) == said


# --- by ---


def write_mixed(path: Path) -> Path:
    """Two client modules, two profiles, two minutes, and all that can become of a task."""
    return write_sample(
        path,
        [
            done("LOGON", -500, 3),
            done("READ", 10_000, 10, profile="light"),
            done("READ", 50_000, 20, profile="medium"),
            done("READ", 60_000, 30, profile="medium", protocol="aioimaplib", user=2),
            done("SEND", 70_000, 40, profile="light"),
            done("SEND", 80_000, 5, profile="light", outcome="refused", error="550 RCPT"),
            done("SEND", 90_000, 60_000, profile="light", outcome="timeout", error="SMTP DATA"),
            done("SEND", 99_000, 0, profile="light", ended_ns=None, outcome="unfinished"),
            skipped("READ", 99_500, profile="light"),
            done("READ", 150_000, 999, profile="light"),  # due after the window
        ],
    )


BY_HAND = {
    "profile": [
        ("light", "imap", {"READ": (1, 10), "SEND": (1, 40)}),
        ("medium", "aioimaplib", {"READ": (1, 30)}),
        ("medium", "imap", {"READ": (1, 20), "LOGON": (1, 3)}),
    ],
    "client": [
        ("c1", "aioimaplib", {"READ": (1, 30)}),
        ("c1", "imap", {"READ": (2, 20), "SEND": (1, 40), "LOGON": (1, 3)}),
    ],
    "minute": [
        ("0:00", "imap", {"READ": (2, 20)}),
        ("0:01", "aioimaplib", {"READ": (1, 30)}),
        ("0:01", "imap", {"READ": (0, None), "SEND": (1, 40)}),
    ],
}


@pytest.mark.parametrize("by", BY_HAND)
def test_a_table_for_each_value(tmp_path: Path, capsys: pytest.CaptureFixture[str], by: str) -> None:
    """Value, client module, and of each task how often and its 95th percentile; the same in JSON and in the text."""
    log = write_mixed(tmp_path / "a.tlog")
    found = answer(capsys, "--by", by, log)["by"]
    assert found["what"] == by
    tables = [
        (table["value"], table["module"], {task["task"]: (task["hits"], task["p95_ms"]) for task in table["tasks"]})
        for table in found["tables"]
    ]
    assert tables == BY_HAND[by]
    text = full_answer(summarise([log], by=by))
    for value, module, tasks in BY_HAND[by]:
        title = f"\n{by.capitalize()} {value}" + f", driver {module}\n"
        table = text.partition(title)[2].partition("\n\n")[0].splitlines()
        rows = {line[: line.index("  ")]: line.split() for line in table[1:]}
        assert set(tasks) == rows.keys() - {"Weighted Avg"}
        for task, (times, p95_ms) in tasks.items():
            assert str(times) in rows[task]
            assert ("-" if p95_ms is None else f"{p95_ms:,.1f}") in rows[task]


def test_groups_are_those_of_the_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two groups of the same profile on the same client module are two; by hand: users 3 and 5, 2 and 4, and 1."""
    sizes = [2, 2, 1]
    assert [group_index(user, sizes) for user in range(1, 6)] == [2, 1, 0, 1, 0]
    groups = [{"profile": "medium", "module": "imap", "users": users} for users in sizes]
    tasks = [done("READ", 1000 * user, 10 * user, user=user) for user in range(1, 6)]
    log = write_sample(tmp_path / "a.tlog", tasks, header={"users": 5, "engine_users": 5, "groups": groups})
    tables = answer(capsys, "--by", "group", log)["by"]["tables"]
    assert [(table["value"], [(task["hits"], task["max_ms"]) for task in table["tasks"]]) for table in tables] == [
        ("1: medium on imap", [(2, 50)]),
        ("2: medium on imap", [(2, 40)]),
        ("3: medium on imap", [(1, 10)]),
    ]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.data())
def test_a_log_knows_the_groups_of_its_users(sizes: list[int], data: st.DataObject) -> None:
    """By the rule in its header every user is in the group in which the scenario had him, whoever is asked for."""
    groups = Groups(("medium",) * len(sizes), ("imap",) * len(sizes), tuple(sizes))
    users = data.draw(st.lists(st.integers(1, sum(sizes)), max_size=50))
    assert groups.numbers(np.array(users, np.uint32)).tolist() == [group_index(user, sizes) for user in users]
    everybody = groups.numbers(np.arange(1, sum(sizes) + 1))
    assert np.bincount(everybody, minlength=len(sizes)).tolist() == sizes


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ([{"profile": "medium", "users": 2}], "groups: 0: module: expected a value, found nothing"),
        ([{"profile": "medium", "module": "imap", "users": 2}], "groups: expected users from 1 to 2, found 3 to 3"),
    ],
)
def test_a_header_whose_groups_are_none_is_one_line(tmp_path: Path, groups: list[dict[str, Any]], says: str) -> None:
    """It lacks the client module; or it has fewer users than took part."""
    log = write_sample(tmp_path / "a.tlog", [done("READ", 1000, 10, user=3)], header={"groups": groups})
    with pytest.raises(LogError, match=says):
        summarise([log], by="group")


def test_parts_have_scores_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """c1's READs 190 ms and SENDs 50 ms, c2's 200 and 40: the parts' scores, whole or with another percentile."""
    directory = write_two_clients(tmp_path)
    tables = answer(capsys, "--by", "client", directory)["by"]["tables"]
    assert [table["score_ms"] for table in tables] == pytest.approx([1950 / 11, 2040 / 11])
    tables = answer(capsys, "--by", "client", "--percentile", "50", directory)["by"]["tables"]
    assert [table["score_ms"] for table in tables] == pytest.approx([(10 * 90 + 30) / 11, (10 * 100 + 40) / 11])
    assert "by" not in answer(capsys, directory)


def test_minutes_count_on_beyond_the_first_hour(tmp_path: Path) -> None:
    tasks = [done("READ", 3_659_999, 10), done("READ", 3_660_000, 20), done("READ", 3_661_000, 30)]
    log = write_sample(tmp_path / "a.tlog", tasks, header={"window_s": [0.0, 7200.0]})
    minutes = summarise([log], by="minute").score["by"]["tables"]
    assert [(table["value"], table["tasks"][0]["hits"]) for table in minutes] == [("1:00", 1), ("1:01", 2)]


# --- errors ---


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_weight_beyond_all_numbers_is_one_line(tmp_path: Path, digits: int) -> None:
    """It has more digits than a floating-point number can be large, or than Python reads."""
    (tmp_path / "weights.yaml").write_text("READ: " + "9" * digits)
    with pytest.raises(ConfigError) as refusal:
        run_answer("--weights", tmp_path / "weights.yaml", tmp_path / "a.tlog")
    assert "\n" not in str(refusal.value)
    with pytest.raises(ConfigError, match=r"weights\.READ: expected whole numbers of at most 300 digits"):
        load_scenario("quickstart", ["weights.READ=" + "9" * 400])


def test_a_window_of_less_than_a_microsecond_is_none(tmp_path: Path) -> None:
    """Instants are whole microseconds: nothing can be due in it, and nothing is divided by its length."""
    log = write_sample(tmp_path / "a.tlog", [done("READ", 1000, 10)])
    with pytest.raises(LogError, match="window: expected a begin before its end"):
        summarise([log], begin_s=1.0, end_s=1.0000001)


def test_a_name_that_is_too_long_is_one_line() -> None:
    """No file can have it: it is a log that is missing."""
    with pytest.raises(LogError, match=r"^x{300}: expected a timing log or a run directory"):
        run_answer("x" * 300)
