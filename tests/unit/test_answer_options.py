"""`loadsim log answer --by`: figures by hand, and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from documents import full_answer
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import done, skipped, write_sample

from loadsim.analysis.summary import summarise
from loadsim.cli import parser
from loadsim.findings.formats import duration
from loadsim.model.population import group_index
from loadsim.timinglog.header import UserGroup, group_numbers


def run_answer(*arguments: str | Path) -> int:
    args = parser().parse_args(["log", "answer", *map(str, arguments)])
    status: int = args.run(args)
    return status


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    run_answer("--json", *arguments)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


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
        title = f"\n{by.capitalize()} {value}, driver {module} (ms)\n"
        table = text.partition(title)[2].partition("\n\n")[0].splitlines()
        rows = {line[: line.index("  ")]: line.split() for line in table[1:]}
        assert set(tasks) == rows.keys() - {"Score, weighted"}
        for task, (times, p95_ms) in tasks.items():
            assert str(times) in rows[task]
            assert ("-" if p95_ms is None else duration(p95_ms).split()[0]) in rows[task]


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
    groups = [UserGroup("medium", "imap", size) for size in sizes]
    users = data.draw(st.lists(st.integers(1, sum(sizes)), max_size=50))
    assert group_numbers(groups, np.array(users, np.uint32)).tolist() == [group_index(user, sizes) for user in users]
    everybody = group_numbers(groups, np.arange(1, sum(sizes) + 1))
    assert np.bincount(everybody, minlength=len(sizes)).tolist() == sizes


def test_minutes_count_on_beyond_the_first_hour(tmp_path: Path) -> None:
    tasks = [done("READ", 3_659_999, 10), done("READ", 3_660_000, 20), done("READ", 3_661_000, 30)]
    log = write_sample(tmp_path / "a.tlog", tasks, header={"window_s": [0.0, 7200.0]})
    minutes = summarise([log], by="minute").score["by"]["tables"]
    assert [(table["value"], table["tasks"][0]["hits"]) for table in minutes] == [("1:00", 1), ("1:01", 2)]
