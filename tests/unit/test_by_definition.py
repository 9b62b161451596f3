"""All that an answer says of tasks, computed once more from the definitions, in plain Python, record by record."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import HEADER, done, write_sample

from loadsim.analysis.score import MEAN_OF_CLIENTS, MERGED
from loadsim.analysis.summary import summarise
from loadsim.model.population import group_index
from loadsim.model.records import OUTCOMES

WINDOW_S = (10.0, 120.0)
BORDERS_US = (9_999_999, 10_000_000, 59_999_999, 60_000_000, 119_999_999, 120_000_000)
CLIENTS = 3


@dataclass(frozen=True)
class Record:
    """One task; a record of one of three client machines with six users each."""

    task: str
    client: int
    user: int
    profile: str
    module: str
    due_us: int
    late_us: int
    took_us: int
    outcome: str

    @property
    def inside(self) -> bool:
        """Whether it counts."""
        return self.task == "LOGON" or 10_000_000 <= self.due_us < 120_000_000


RECORDS = st.builds(
    Record,
    task=st.sampled_from(["READ", "SEND", "MOVE", "LOGON"]),
    client=st.integers(0, CLIENTS - 1),
    user=st.integers(1, 6),
    profile=st.sampled_from(["light", "heavy"]),
    module=st.sampled_from(["imap", "other"]),
    due_us=st.sampled_from(BORDERS_US) | st.integers(0, 130_000_000),
    late_us=st.sampled_from([0, 1000, 5_000_000]),
    took_us=st.sampled_from([1, 1000, 2000]) | st.integers(0, 10_000_000),
    outcome=st.just("ok") | st.sampled_from(OUTCOMES),
)

GROUPS = (5, 6, 7)
"""The sizes of the scenario's groups: of 18 users in all."""

VALUE: Mapping[str, Callable[[Record], str]] = {
    "group": lambda record: f"{group_index(record.user + 6 * record.client, GROUPS) + 1}: any on any",
    "profile": lambda record: record.profile,
    "module": lambda record: record.module,
    "client": lambda record: f"c{record.client}",
    "minute": lambda record: f"0:{record.due_us // 60_000_000:02d}",
    "outcome": lambda record: record.outcome,
}


def nearest_rank(samples: Sequence[float], percent: Fraction) -> float | None:
    """The smallest sample that at least so many percent of all are not above."""
    count = len(samples)
    return next(
        (one for one in sorted(samples) if Fraction(100 * sum(other <= one for other in samples), count) >= percent),
        None,
    )


def figures(records: Sequence[Record], percent: Fraction, method: str) -> dict[str, Any]:
    """What the answer says of one task with these records."""

    def hits(some: Sequence[Record]) -> list[float]:
        return [record.took_us / 1000 for record in some if record.outcome == "ok"]

    def waits(some: Sequence[Record]) -> list[float]:
        return [(record.late_us + record.took_us) / 1000 if record.outcome == "ok" else math.inf for record in some]

    def percentile(times: Callable[[Sequence[Record]], list[float]], percent: Fraction) -> float | None:
        if method == MERGED:
            return nearest_rank(times(records), percent)
        each = [
            nearest_rank(times([record for record in records if record.client == client]), percent)
            for client in range(CLIENTS)
        ]
        known = [one for one in each if one is not None]
        return fmean(known) if known else None

    took = hits(records)
    return {
        "hits": len(took),
        "failed": sum(record.outcome in ("refused", "lost", "timeout") for record in records),
        "planned": len(records),
        "p50_ms": percentile(hits, Fraction(50)),
        "p95_ms": percentile(hits, Fraction(95)),
        "p99_9_ms": percentile(hits, Fraction(999, 10)),
        "percentile_ms": percentile(hits, percent),
        "max_ms": max(took, default=None),
        "mean_ms": fmean(took) if took else None,
        "stddev_ms": (stdev(took) if len(took) > 1 else 0.0) if took else None,
        "response_p50_ms": percentile(waits, Fraction(50)),
        "response_p95_ms": percentile(waits, Fraction(95)),
        "response_p99_9_ms": percentile(waits, Fraction(999, 10)),
        "response_max_ms": max(waits(records), default=None),
    }


def of_tasks(records: Sequence[Record], percent: Fraction, method: str) -> dict[str, dict[str, Any]]:
    """The same for each task in the records."""
    return {
        task: figures([record for record in records if record.task == task], percent, method)
        for task in {record.task for record in records}
    }


def score(expected: Mapping[str, Mapping[str, Any]], weights: Mapping[str, float]) -> float | None:
    """The weighted average over tasks with hits."""
    covered = [
        (weights.get(task, 0.0), found["percentile_ms"]) for task, found in expected.items() if found["hits"] > 0
    ]
    total = sum(weight for weight, _ in covered)
    return sum(weight * figure for weight, figure in covered) / total if total else None


def agree(found: Sequence[Mapping[str, Any]], expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Each task once, and each figure that the answer has of it."""
    assert sorted(task["task"] for task in found) == sorted(expected)
    for task in found:
        own = expected[task["task"]]
        said = {name: None if task[name] is None else float(task[name]) for name in own.keys() & task.keys()}
        assert said == pytest.approx({name: own[name] for name in said}, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(RECORDS, min_size=1, max_size=40),
    st.sampled_from([Fraction(95), Fraction(999, 10), Fraction(100), Fraction(1, 10), Fraction(7)]),
    st.sampled_from([MERGED, MEAN_OF_CLIENTS]),
    st.sampled_from([*VALUE]),
    st.sampled_from([None, {"READ": 10.0, "MOVE": 0.5, "SEND": 0.0}, {"LOGON": 2.0, "READ": 1.0}]),
)
def test_the_answer_is_what_the_definitions_say(
    records: list[Record], percent: Fraction, method: str, by: str, weights: dict[str, float] | None
) -> None:
    """Every percentile, count, share and score, of the whole and of each part; and the parts are the whole."""
    with tempfile.TemporaryDirectory() as directory:
        for client in range(CLIENTS):
            tasks = [_as_written(record, number) for number, record in enumerate(records) if record.client == client]
            header = {
                "client": f"c{client}",
                "window_s": list(WINDOW_S),
                "users": 18,
                "engine_users": 6,
                "groups": [{"profile": "any", "module": "any", "users": users} for users in GROUPS],
            }
            write_sample(Path(directory) / f"{client}.tlog", tasks, header=header)
        answer = summarise([directory], percent=percent, method=method, by=by, weights=weights).score
    assert json.dumps(answer, allow_nan=False)
    inside = [record for record in records if record.inside]
    windowed = [record for record in inside if record.task != "LOGON"]
    assert answer["planned"] == len(windowed)
    assert answer["failed"] == sum(record.outcome in ("refused", "lost", "timeout") for record in windowed)
    assert answer["done"] == sum(record.outcome not in ("unfinished", "skipped", "generator") for record in windowed)
    assert set(answer["by_protocol"]) == {record.module for record in inside}
    for module, found in answer["by_protocol"].items():
        own = [record for record in inside if record.module == module]
        expected = of_tasks(own, percent, method)
        agree(found["tasks"], expected)
        assert found["score_ms"] == pytest.approx(score(expected, weights or HEADER["weights"]))
        assert found["users"] == len({(record.client, record.user) for record in own})
    parted = windowed if by == "minute" else inside
    tables = answer["by"]["tables"]
    assert sorted((table["value"], table["module"]) for table in tables) == sorted(
        {(VALUE[by](record), record.module) for record in parted}
    )
    for table in tables:
        own = [record for record in parted if (VALUE[by](record), record.module) == (table["value"], table["module"])]
        if by == "outcome":
            assert {task["task"]: task["count"] for task in table["tasks"]} == {
                task: sum(record.task == task for record in own) for task in {record.task for record in own}
            }
        else:
            expected = of_tasks(own, percent, method)
            agree(table["tasks"], expected)
            assert table["score_ms"] == pytest.approx(score(expected, weights or HEADER["weights"]))


def _as_written(record: Record, number: int) -> dict[str, Any]:
    """What the recorder is told."""
    never = {"skipped": ("started_ns", "ended_ns"), "unfinished": ("ended_ns",)}.get(record.outcome, ())
    return done(
        record.task,
        record.due_us / 1000,
        record.took_us / 1000,
        record.late_us / 1000,
        user=record.user + 6 * record.client,
        profile=record.profile,
        protocol=record.module,
        outcome=record.outcome,
        error=f"error {number % 3}" if record.outcome != "ok" else "",
    ) | dict.fromkeys(never)


def test_a_scored_logon_leaves_the_score_without_an_interval(tmp_path: Path) -> None:
    """It lies outside the window, of which an interval is made: that of the other tasks is not that of the score."""
    tasks = [done("READ", 4000 * at, 10 + at % 7) for at in range(900)]
    tasks += [done("LOGON", -100 - at, 1000 + at) for at in range(400)]
    write_sample(tmp_path / "a.tlog", tasks, header={"weights": {"READ": 1, "LOGON": 1}, "window_s": [0.0, 3600.0]})
    answer = summarise([tmp_path]).score
    assert answer["score_ms"] == (16 + 1379) / 2
    assert answer["score_interval_ms"] is None
    assert answer["no_score_interval"] == "LOGON is scored, and lies outside the window"
    (read,) = (task for task in answer["tasks"] if task["task"] == "READ")
    assert read["interval_ms"] == [16, 16]
