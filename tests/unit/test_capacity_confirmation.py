"""The confirmation of a capacity by 80, 100 and 120 % of its users.

Seen from outside, it could be wrong in these ways, and each has a test: a level counts as confirmed without a run; one
bad moment refutes a capacity; a change of the server is not noticed; runs for an earlier answer count; it never ends; a
resumed search measures a level again; the answer, its exit status, file and report differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from finished_searches import capacity
from hypothesis import given
from hypothesis import strategies as st

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_confirmation import Confirming, levels, next_level
from loadsim.analysis.capacity_search import FAILED, GENERATOR, PASSED, RESULTS, UNDECIDED, VOID, Found, Result
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.capacity_text import capacity_text
from loadsim.report.html import to_html
from loadsim.runs.capacity_file import read_capacity, write

SEARCHED = capacity(Found(1000, 1200, "criteria"), (1000, "pass"), (1200, "fail"))

Server = Callable[[int, int], tuple[Result, float]]
"""The result and the score of a run with so many users, which is the n-th of its level."""


def step(users: int, result: Result, score_ms: float) -> MeasuredStep:
    return replace(SEARCHED.steps[0], users=users, result=result, score_ms=score_ms, run=f"confirm/1-{users:05d}-1")


def confirmed(server: Server, searched: Capacity = SEARCHED) -> Capacity:
    """Measure the levels until all are decided, which takes at most three runs of each, void ones aside."""
    for _ in range(16):
        level = next_level(searched.levels)
        if level is None:
            return searched
        assert level.users is not None
        run = Confirming(level.percent, step(level.users, *server(level.users, len(level.runs))))
        searched = replace(searched, confirming=(*searched.confirming, run))
    pytest.fail("no end")


def honest(users: int, _: int) -> tuple[Result, float]:
    return (PASSED if users <= 1100 else FAILED), users / 2


def test_a_capacity_is_confirmed_by_one_run_of_each_level() -> None:
    found = confirmed(honest)
    assert [(one.percent, one.step.users) for one in found.confirming] == [(80, 800), (100, 1000), (120, 1200)]
    assert (found.confirmed, found.exit_status) == (True, 0)
    text = capacity_text(found, 300)
    assert "Confirmation: 80 % (800 users) passed; 100 % (1,000 users) passed; 120 % (1,200 users) was worse" in text


def test_without_runs_nothing_is_confirmed() -> None:
    assert (SEARCHED.confirmed, SEARCHED.exit_status) == (None, 0)
    assert "onfirm" not in capacity_text(SEARCHED, 300)
    partly = replace(SEARCHED, confirming=(Confirming(80, step(800, PASSED, 1.0)),))
    assert partly.confirmed is None


@pytest.mark.parametrize(
    ("bad", "results", "is_confirmed", "says"),
    [
        (800, [FAILED, PASSED, PASSED], True, "80 % (800 users) passed"),
        (800, [FAILED, FAILED], False, "80 % (800 users) did not pass"),
        (1000, [FAILED, PASSED, FAILED], False, "100 % (1,000 users) did not pass"),
        (1000, [UNDECIDED, UNDECIDED], False, "100 % (1,000 users) was undecided"),
        (1000, [GENERATOR, GENERATOR], False, "100 % (1,000 users) was undecided"),
        (1000, [VOID, VOID], False, "100 % (1,000 users) was undecided"),
        (1000, [VOID, PASSED], True, "100 % (1,000 users) passed"),
        (1200, [PASSED, FAILED, FAILED], True, "120 % (1,200 users) was worse"),
        (1200, [PASSED, PASSED], False, "120 % (1,200 users) was no worse"),
        (1200, [UNDECIDED, UNDECIDED], False, "120 % (1,200 users) was undecided"),
    ],
)
def test_two_of_three_results_decide_a_level(
    bad: int, results: Sequence[Result], is_confirmed: bool, says: str
) -> None:
    """The scores of the levels are equal: only results tell them apart."""

    def server(users: int, number: int) -> tuple[Result, float]:
        return (results[number] if users == bad else honest(users, number)[0]), 500.0

    found = confirmed(server)
    assert len([one for one in found.confirming if one.step.users == bad]) == len(results)
    assert (found.confirmed, found.exit_status) == (is_confirmed, 0 if is_confirmed else 4)
    text = capacity_text(found, 300)
    assert says in text
    assert ("Not confirmed" in text) != is_confirmed
    page = to_html(describe_capacity(found, (), {}))
    assert says in page and ("do not quote this number" in page) != is_confirmed
    assert (found.levels and describe_capacity(found, (), {}).tone) == ("good" if is_confirmed else "doubtful")


def test_a_larger_score_is_worse() -> None:
    assert confirmed(lambda users, _: (PASSED, users / 2)).confirmed is True
    assert confirmed(lambda users, _: (PASSED, 500.0)).confirmed is False


def test_more_users_than_allowed_are_not_measured() -> None:
    """The largest number passed, so its search had no end by criteria."""
    at_most = capacity(Found(4000, None, "limit"), (4000, "pass"))
    found = confirmed(lambda users, _: (PASSED, float(users)), at_most)
    assert [one.step.users for one in found.confirming] == [3200, 4000]
    assert (found.confirmed, found.exit_status) == (False, 4)
    assert "120 % are more than --most allows" in capacity_text(found, 300)
    clipped = levels((), 3900, 2, 4000)
    assert [level.users for level in clipped] == [3120, 3900, 4000]


def test_runs_for_an_earlier_answer_do_not_count() -> None:
    found = confirmed(honest)
    later = replace(found, found=Found(900, 1000, "criteria"))
    assert later.confirmed is None
    level = next_level(later.levels)
    assert level is not None and (level.percent, level.users) == (80, 720)


@given(st.lists(st.sampled_from(RESULTS), min_size=16, max_size=16), st.integers(2, 50))
def test_any_results_end_and_two_of_three_confirm(results: list[Result], users: int) -> None:
    searched = replace(SEARCHED, found=Found(users, users + 1, "criteria"))
    given_results = iter(results)
    found = confirmed(lambda *_: (next(given_results), 1.0), searched)
    assert found.confirmed is not None
    if found.confirmed:
        for level in found.levels:
            wanted = PASSED if level.percent <= 100 else FAILED
            own = [one.result for one in level.runs if one.result != VOID]
            assert own == [wanted] or (own.count(wanted) == 2 and len(own) == 3)


def test_the_file_keeps_the_runs(tmp_path: Path) -> None:
    found = replace(confirmed(honest), directory=tmp_path)
    write(found)
    assert read_capacity(tmp_path) == found
    document = json.loads((tmp_path / "capacity.json").read_text())
    assert (document["confirmed"], [one["percent"] for one in document["confirming"]]) == (True, [80, 100, 120])
    assert 'href="confirm/1-00800-1/"' in to_html(describe_capacity(found, (), {}))
