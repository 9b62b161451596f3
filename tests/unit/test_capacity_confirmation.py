"""The confirmation of a capacity by 80, 100 and 120 % of its users.

Seen from outside, it could be wrong in these ways, and each has a test: a level counts as confirmed without a run; one
bad moment refutes a capacity; a change of the server is not noticed; a run that contradicts the interval confirms it;
noise counts as worse; a slow generator counts as a change of the server; runs for an earlier answer count; it never
ends; a resumed search measures a level again; the answer, its exit status, file and report differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished_searches import capacity
from hypothesis import given
from hypothesis import strategies as st

from loadsim.analysis.capacity import Capacity
from loadsim.analysis.capacity_confirmation import Confirming, next_level
from loadsim.analysis.capacity_search import (
    FAILED,
    GENERATOR,
    PASSED,
    RESULTS,
    UNDECIDED,
    VOID,
    Found,
    Result,
    Settings,
)
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.report.capacity_doubts import doubts
from loadsim.report.capacity_report import describe_capacity
from loadsim.report.capacity_text import capacity_text
from loadsim.report.html import to_html
from loadsim.runs.capacity_file import read_capacity, write

SEARCHED = capacity(Found(1000, 1200, "criteria"), (1000, "pass"), (1200, "fail"))

WIDE = capacity(Found(1000, 1500, "criteria"), (1000, "pass"), (1500, "fail"))
"""A search whose interval has the 120 % within it."""

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
        run = Confirming(level.percent, step(level.users, *server(level.users, len(level.runs))), len(searched.steps))
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
    partly = replace(SEARCHED, confirming=(Confirming(80, step(800, PASSED, 1.0), len(SEARCHED.steps)),))
    assert partly.confirmed is None


@pytest.mark.parametrize(
    ("bad", "results", "is_confirmed", "says"),
    [
        (800, [FAILED, PASSED, PASSED], True, "80 % (800 users) passed"),
        (800, [FAILED, FAILED], False, "80 % (800 users) did not pass"),
        (1000, [FAILED, PASSED, FAILED], False, "100 % (1,000 users) did not pass"),
        (1000, [UNDECIDED, UNDECIDED], False, "100 % (1,000 users) was undecided"),
        (1000, [GENERATOR, GENERATOR], False, "100 % (1,000 users) could not be generated"),
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


@pytest.mark.parametrize("score_ms", [500.1, 5000.0])
def test_a_number_that_failed_in_the_search_must_fail_again(score_ms: float) -> None:
    """However slow it is: a pass contradicts the interval."""
    found = confirmed(lambda users, _: (PASSED, score_ms if users == 1200 else 500.0))
    assert (found.confirmed, found.exit_status) == (False, 4)
    text = capacity_text(found, 400)
    assert "120 % (1,200 users) was no worse" in text
    assert "Not confirmed: 1,200 users must fail after the search, as 1,200 users did in it, and passed." in text


def scored(searched: Capacity, *scores_ms: float | None) -> Capacity:
    """The search with these scores of the runs with the capacity."""
    rest = iter(scores_ms)
    steps = tuple(replace(one, score_ms=next(rest)) if one.users == searched.users else one for one in searched.steps)
    return replace(searched, steps=steps)


SCORES_MS = (500.0, 510.0, 490.0, 505.0, 495.0)


@pytest.mark.parametrize(
    ("score_ms", "is_confirmed"), [(490.0, False), (500.1, False), (511.0, False), (515.0, False), (516.0, True)]
)
def test_slower_is_more_than_runs_differ(score_ms: float, is_confirmed: bool) -> None:
    """The limit is 500 ms + 2.015 standard deviations of 7.07 ms with Student's t, times the root of 1 + 1/6."""
    searched = scored(WIDE, *SCORES_MS)
    found = confirmed(lambda users, _: (PASSED, score_ms if users == 1200 else 500.0), searched)
    assert found.confirmed is is_confirmed
    assert ("1,200 users are no worse than the capacity, so it may be higher" in capacity_text(found, 300)) != (
        is_confirmed
    )


def test_runs_that_measured_nothing_do_not_make_slower_slower() -> None:
    searched = scored(WIDE, *SCORES_MS)
    beyond = [replace(searched.steps[0], result=result, score_ms=9000.0) for result in (GENERATOR, VOID)]
    searched = replace(searched, steps=(*searched.steps, *beyond))
    assert confirmed(lambda users, _: (PASSED, 520.0 if users == 1200 else 500.0), searched).confirmed is True


def test_noise_is_seldom_slower() -> None:
    """Of runs that do not differ, the limit takes one of 20 for slower, however much they vary."""
    random = np.random.default_rng(1)
    for spread in (0.02, 0.3):
        slower = 0
        for _ in range(400):
            *before, again, above = (float(each) for each in 500 * np.exp(random.normal(0, spread, 7)))
            runs = [(80, 800, again), (100, 1000, again), (120, 1200, above)]
            searched = scored(WIDE, *before)
            confirming = tuple(Confirming(percent, step(users, PASSED, ms), 10) for percent, users, ms in runs)
            slower += replace(searched, confirming=confirming).levels[-1].result == PASSED
        assert 8 <= slower <= 32


@pytest.mark.parametrize("scores_ms", [(None,) * 5, ("inf",) * 5])
def test_without_a_score_a_pass_within_the_interval_is_undecided(scores_ms: Sequence[Any]) -> None:
    """As with several drivers, which have no common score."""
    searched = scored(WIDE, *scores_ms)
    percents = ((80, 800), (100, 1000), (120, 1200), (120, 1200))
    runs = [
        Confirming(percent, replace(step(users, PASSED, 1.0), score_ms=scores_ms[0]), 10) for percent, users in percents
    ]
    found = replace(searched, confirming=tuple(runs))
    assert found.confirmed is False
    text = capacity_text(found, 400)
    assert "120 % (1,200 users) was undecided" in text and "no worse" not in text
    assert "the runs with 1,200 users do not decide: they passed, and have no score to compare with that of" in text
    failing = replace(searched, confirming=(*runs[:2], Confirming(120, step(1200, FAILED, 1.0), 10)))
    assert failing.confirmed is True


@pytest.mark.parametrize("bad", [800, 1000, 1200])
def test_a_generator_that_is_too_slow_is_no_change_of_the_server(bad: int) -> None:
    found = confirmed(lambda users, number: (GENERATOR, 9.0) if users == bad else honest(users, number))
    (doubt,) = (one for one in doubts(found) if one.startswith("Not confirmed"))
    assert doubt.startswith(f"Not confirmed: the load generator was too slow for {bad:,} users.")
    assert "its data" not in doubt and "no worse" not in doubt


def test_an_undecided_level_says_why() -> None:
    found = confirmed(lambda users, number: (UNDECIDED, 9.0) if users == 1000 else honest(users, number))
    steps = [replace(one, step=replace(one.step, reasons=("a probe lost\x1b[2Jits file",))) for one in found.confirming]
    said = "\n".join(doubts(replace(found, confirming=tuple(steps))))
    assert "the runs with 1,000 users do not decide: a probe lost" in said and "\x1b" not in said


def test_more_users_than_allowed_are_not_measured() -> None:
    """The largest number passed, so its search had no end by criteria."""
    at_most = capacity(Found(4000, None, "limit"), (4000, "pass"))
    found = confirmed(lambda users, _: (PASSED, float(users)), at_most)
    assert [one.step.users for one in found.confirming] == [3200, 4000]
    assert (found.confirmed, found.exit_status) == (False, 4)
    assert "120 % are more than the 4,000 users that this search allows" in capacity_text(found, 300)


def test_a_level_is_not_cut_off_at_the_most_users() -> None:
    """With 1,010 users of at most 1,010, "120 %" would be 101 %."""
    searched = capacity(Found(1000, 1010, "criteria"), (1000, "pass"), (1010, "fail"))
    cut = confirmed(honest, replace(searched, terms=replace(searched.terms, settings=Settings(500, 1010))))
    assert [one.step.users for one in cut.confirming] == [800, 1000]
    assert (cut.confirmed, cut.exit_status) == (False, 4)


def test_120_per_cent_of_few_users_are_more_than_the_capacity() -> None:
    searched = capacity(Found(2, 3, "criteria"), (2, "pass"), (3, "fail"))
    found = confirmed(lambda users, _: (PASSED if users <= 2 else FAILED, 1.0), searched)
    assert [one.step.users for one in found.confirming] == [2, 2, 3]
    assert found.confirmed is True


def test_runs_before_later_steps_do_not_count() -> None:
    """A quick search that was confirmed, and then measured further steps: the server may have changed."""
    found = confirmed(honest)
    later = replace(found, steps=(*found.steps, found.steps[-1]))
    assert later.confirmed is None
    assert "onfirm" not in capacity_text(later, 300)
    assert [one.after_steps for one in confirmed(honest, later).confirming] == [10, 10, 10, 11, 11, 11]


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
