"""The search for the capacity: a server without noise, any results at all, and queues whose capacity theory gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import get_args

import numpy as np
import pytest
from findings_of import codes
from finished_searches import measured
from hypothesis import given, settings
from hypothesis import strategies as st
from judged_runs import OF_CAUSE, summary, verdict
from numpy.typing import NDArray

from loadsim.analysis.criteria import Result as CriterionResult
from loadsim.analysis.criteria import missed_criteria
from loadsim.analysis.summary import Summary
from loadsim.campaign.runs import (
    FAILED,
    GENERATOR,
    PASSED,
    UNDECIDED,
    VOID,
    CampaignRun,
    Result,
    judge_run,
    nearest_to_failure,
)
from loadsim.capacity.search import AGREEING, MOST_STEPS, Found, Settings, decision, established, interval, next_step
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.ports import INBOX
from loadsim.model.terms import Window

Server = Callable[[int], Result | CampaignRun]


def searched(
    server: Server, settings: Settings, refused: Callable[[int], bool] = lambda _: False
) -> tuple[list[CampaignRun], Found]:
    """Search to the end; it always ends within the bound, and stays within its numbers.

    No run can be made with the numbers `refused`, but for the first. None of these is asked for twice.
    """
    steps: list[CampaignRun] = []
    without: list[int] = []
    for _ in range(settings.most_steps + 200):
        found = next_step(steps, settings, without)
        if not isinstance(found, int):
            assert len(steps) <= settings.most_steps and len(without) <= 40
            return steps, found
        assert settings.least <= found <= settings.most and found not in without
        if steps and refused(found):
            assert all(step.users != found for step in steps)
            without.append(found)
            continue
        result = server(found)
        steps.append(result if isinstance(result, CampaignRun) else measured(found, result))
    pytest.fail(f"no end after {len(steps)} steps")


def exact(capacity: int) -> Callable[[int], Result]:
    return lambda users: PASSED if users <= capacity else FAILED


def numbers(steps: Sequence[CampaignRun]) -> list[int]:
    return [step.users for step in steps]


@settings(max_examples=40)
@given(st.integers(1, 10_000_000), st.integers(1, 10_000_000), st.integers(1, 10_000_000), st.sampled_from((0.05, 0.2)))
def test_the_capacity_of_a_server_without_noise_is_found(capacity: int, first: int, most: int, width: float) -> None:
    first, most = min(first, most), max(first, most)
    steps, found = searched(exact(capacity), Settings(first, most, width=width))
    assert len(steps) <= 70
    if capacity >= most:
        assert found == Found(most, None, "limit")
        return
    assert found.low is not None and found.high is not None
    assert (found.low <= capacity < found.high, found.stopped_by) == (True, "criteria")
    assert found.high - found.low <= max(1, width * (found.low + found.high) / 2)


@given(st.integers(2, 1000), st.integers(2, 1000))
def test_without_any_pass_there_is_no_capacity(first: int, least: int) -> None:
    first = max(first, least)
    _, found = searched(lambda _: FAILED, Settings(first, 5000, least=least))
    assert found == Found(None, least, "criteria")


def test_steps_rise_narrow_and_end_with_the_last_pass() -> None:
    steps, found = searched(exact(1300), Settings(500, 8000))
    assert numbers(steps)[:7] == [500, 1000, 2000, 2000, 1500, 1500, 1250]
    assert Counter(numbers(steps)[7:]) == {1500: 3, 1250: 4}
    assert found == Found(1250, 1500, "criteria")


@settings(max_examples=40)
@given(st.integers(2, 100_000), st.integers(2, 100_000), st.integers(1, 100_000))
def test_the_generator_ends_the_search_unless_the_server_fails_before(capacity: int, wall: int, first: int) -> None:
    """Numbers from `wall` on cannot be generated: they bound nothing, but a smaller number that fails does."""

    def server(users: int) -> Result:
        return GENERATOR if users >= wall else exact(capacity)(users)

    _, found = searched(server, Settings(first, 100_000))
    assert found.low is None or found.low <= min(capacity, wall - 1)
    if found.stopped_by == "criteria":
        assert found.low is not None and found.high is not None
        assert found.low <= capacity < found.high < wall
    else:
        assert found.high is None
        assert found.stopped_by == ("generator" if wall <= 100_000 else "limit")
        if found.low is not None and found.stopped_by == "generator":
            assert wall - found.low <= max(1, 0.4 * wall)


@settings(max_examples=40)
@given(st.integers(2, 5000), st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000))
def test_a_refused_number_is_an_end_of_the_range(capacity: int, first: int, fewest: int, greatest: int) -> None:
    """Runs of fewer than `fewest` users have too few hits, and more than `greatest` do not fit the machine."""
    fewest, first, greatest = sorted((fewest, first, greatest))

    def refused(users: int) -> bool:
        return not fewest <= users <= greatest

    _, found = searched(exact(capacity), Settings(first, 5000), refused)
    for end in (found.low, found.high):
        assert end is None or fewest <= end <= greatest
    assert found.low is None or found.low <= capacity
    assert found.high is None or found.high > capacity
    if capacity < fewest:
        assert found == Found(None, fewest, "criteria" if fewest == 1 else "refused")
        return
    assert found.low is not None
    if found.high is None:
        assert found.stopped_by == ("refused" if greatest < 5000 else "limit")
        assert greatest - found.low <= max(1, 0.3 * greatest)
    else:
        assert found.stopped_by == "criteria"
        assert found.high - found.low <= max(1, 0.1 * (found.high + found.low))


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(get_args(Result)), min_size=MOST_STEPS, max_size=MOST_STEPS),
    st.integers(2, 7),
    st.integers(1, 100),
)
def test_a_search_with_any_refused_numbers_ends_in_an_answer(results: list[Result], every: int, first: int) -> None:
    given_results = iter(results)
    searched(lambda _: next(given_results), Settings(first, 500), lambda users: users % every == 0 and users != first)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(get_args(Result)), min_size=MOST_STEPS, max_size=MOST_STEPS),
    st.integers(1, 100),
    st.integers(100, 5000),
)
def test_any_results_end_in_a_consistent_interval(results: list[Result], first: int, most: int) -> None:
    """The end comes, both ends have evidence, and the search resumed after each step goes the same way.

    `limit`: the largest number passed. `criteria`: nothing between the ends is undecided, or they are near.
    """
    settings = Settings(first, most)
    given_results = iter(results)
    steps, found = searched(lambda _: next(given_results), settings)
    for length, step in enumerate(steps):
        assert next_step(steps[:length], settings) == step.users
    for end, result in ((found.low, PASSED), (found.high, FAILED)):
        if end is not None and len(steps) < MOST_STEPS:
            of_end = [step.result for step in steps if step.users == end and step.result != VOID]
            others = len(of_end) - of_end.count(result)
            assert (others, of_end.count(result)) >= (0, 5) if not others else of_end.count(result) >= 8 and others == 1
            assert established(steps, end)
    assert found.low is None or found.high is None or found.low < found.high
    decided = {users: decision([step.result for step in steps if step.users == users]) for users in numbers(steps)}
    for users, result in decided.items():
        assert result != PASSED or found.high is None or users < found.high
        assert result != FAILED or found.low is None or users > found.low
    if len(steps) == MOST_STEPS:
        return
    low, high = found.low or 0, found.high or most + 1
    if found.stopped_by == "limit":
        assert found.low == most
    elif found.stopped_by == "criteria":
        assert found.high is not None
        near = found.low is not None and high - low <= 0.1 * (high + low)
        undecided = [users for users, result in decided.items() if result == UNDECIDED and low < users < high]
        assert not undecided or near
    elif found.stopped_by == "generator":
        assert GENERATOR in decided.values()


@pytest.mark.parametrize(
    ("results", "decided"),
    [
        ([PASSED], PASSED),
        ([FAILED], None),
        ([FAILED, FAILED], FAILED),
        ([FAILED, PASSED], None),
        ([FAILED, PASSED, PASSED], PASSED),
        ([PASSED, FAILED, FAILED], FAILED),
        ([PASSED, FAILED, UNDECIDED], UNDECIDED),
        ([UNDECIDED], None),
        ([UNDECIDED, PASSED], None),
        ([UNDECIDED, PASSED, PASSED], PASSED),
        ([PASSED, PASSED, FAILED, FAILED], UNDECIDED),
        ([FAILED, FAILED, PASSED, PASSED], UNDECIDED),
        ([PASSED] * 6 + [FAILED], PASSED),
        ([PASSED, PASSED, GENERATOR, GENERATOR], UNDECIDED),
        ([UNDECIDED, UNDECIDED], UNDECIDED),
        ([GENERATOR], None),
        ([GENERATOR, PASSED], None),
        ([GENERATOR, PASSED, PASSED], PASSED),
        ([GENERATOR, GENERATOR], GENERATOR),
        ([VOID], None),
        ([VOID, PASSED], PASSED),
        ([VOID, FAILED, FAILED], FAILED),
        ([VOID, FAILED], None),
    ],
)
def test_two_of_three_results_decide(results: list[Result], decided: Result | None) -> None:
    assert decision(results) == decided


@pytest.mark.parametrize(
    ("results", "enough"),
    [
        ([PASSED] * 4, False),
        ([PASSED] * 5, True),
        ([FAILED] * 5, True),
        ([VOID, *[FAILED] * 4], False),
        ([FAILED, *[PASSED] * 7], False),
        ([FAILED, *[PASSED] * 8], True),
        ([UNDECIDED, *[PASSED] * 7], False),
        ([PASSED, FAILED, *[PASSED] * 9, FAILED], False),
        ([UNDECIDED] * 5, False),
    ],
)
def test_an_end_needs_a_clear_majority_of_results(results: list[Result], enough: bool) -> None:
    steps = [measured(7, result) for result in results]
    assert established([measured(8, FAILED), *steps], 7) == enough


def test_majorities_of_a_fair_coin_are_as_rare_as_stated() -> None:
    """All sequences of a fair coin: the share of those that ever are evidence is that of the documentation."""
    wrong, open_ = 0.0, [((), 1.0)]
    for _ in range(9):
        following: list[tuple[tuple[Result, ...], float]] = []
        for results, share in open_:
            for result in (PASSED, FAILED):
                own = (*results, result)
                if decision(own) == PASSED and established([measured(7, each) for each in own], 7):
                    wrong += share / 2
                else:
                    following.append((own, share / 2))
        open_ = following
    assert wrong == 1 / 32 + 5 / 512


def test_a_lucky_last_pass_is_withdrawn() -> None:
    """1250 users pass once by luck; measured again, they fail twice, and the search goes on below."""
    lucky = iter([PASSED])

    def server(users: int) -> Result:
        return next(lucky, FAILED) if users == 1250 else exact(1200)(users)

    steps, found = searched(server, Settings(500, 8000))
    assert [users for users in numbers(steps) if users < 1500][:6] == [500, 1000, 1250, 1250, 1250, 1125]
    assert found == Found(1125, 1250, "criteria")
    assert [step.result for step in steps if step.users == 1250] == [PASSED, *[FAILED] * 8]


def test_lost_mail_fails_a_number_despite_passes() -> None:
    """With a larger number, it is a reason for that number's failure."""
    for broken, stopped_by in ((1250, "broken"), (1500, "criteria")):
        lossy = iter([True])

        def server(users: int, broken: int = broken, lossy: Iterator[bool] = lossy) -> CampaignRun:
            lost = users == broken and next(lossy, False)
            return measured(users, FAILED if lost else exact(1300)(users), broken=lost)

        steps, found = searched(server, Settings(500, 8000))
        assert found == Found(1250, 1500, stopped_by)
        assert (interval(steps, found) is None) == (stopped_by == "broken")


def test_a_server_that_alternates_between_two_states_has_no_capacity() -> None:
    """A server whose every second run is worse shows both ends both states."""
    for phase in (0, 1):
        runs = count(phase)

        def server(users: int, runs: Iterator[int] = runs) -> Result:
            return exact((1300, 1000)[next(runs) % 2])(users)

        _, found = searched(server, Settings(500, 8000))
        assert found.stopped_by != "criteria" or (found.low or 0) <= 1000


def test_void_steps_are_repeated() -> None:
    """It is measured again, also as an end of the interval."""
    in_between = iter([PASSED, VOID, PASSED, VOID, *[PASSED] * 3])
    steps, found = searched(lambda users: next(in_between) if users == 10 else FAILED, Settings(10, 11))
    assert (numbers(steps).count(10), found) == (7, Found(10, 11, "criteria"))
    assert searched(lambda _: VOID, Settings(10, 100))[1] == Found(None, None, "noise")


def test_undecided_numbers_widen_the_interval() -> None:
    """A server that is undecided from 800 to 1400: no interval of 20 % exists, and the search says so."""

    def server(users: int) -> Result:
        return PASSED if users < 800 else FAILED if users > 1400 else UNDECIDED

    _, found = searched(server, Settings(500, 8000))
    assert found.low is not None and found.high is not None
    assert found.stopped_by == "noise"
    assert 720 < found.low < 800 and 1400 < found.high < 1500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "most_steps", "most_quick"), [(0.0, 18, 12), (0.02, 22, 13), (0.1, 41, 19), (0.2, 57, 22)]
)
def test_the_interval_holds_the_capacity_at_each_noise(noise: float, most_steps: float, most_quick: float) -> None:
    """Without intervals of scores, of servers whose capacity differs from run to run; the decision has the figures.

    Up to 10 %, also of those with exit status 0 alone; of servers that vary more, these may be short by chance.
    In 100 searches, the standard error of a share of 94 % is 2.4 %; the seeds are fixed.
    """
    contained, length, quick, searches = 0, 0, 0, 100
    narrow = []
    for seed in range(searches):
        random = np.random.default_rng(seed)
        truth = int(random.integers(300, 5000))

        def server(users: int, random: np.random.Generator = random, truth: int = truth) -> Result:
            return PASSED if users <= truth * math.exp(random.normal(0, noise)) else FAILED

        steps, found = searched(server, Settings(100, 10_000))
        assert found.low is not None and found.high is not None
        contained += found.low <= truth < found.high
        if found.stopped_by == "criteria":
            narrow.append(found.low <= truth < found.high)
        length += len(steps)
        quick += len(searched(server, Settings(100, 10_000, evidence=AGREEING))[0])
    assert contained >= 0.94 * searches
    assert noise > 0.1 or sum(narrow) >= 0.9 * len(narrow)
    assert length <= most_steps * searches
    assert quick <= most_quick * searches


def judged(
    *findings: Finding,
    score_ms: float = 500.0,
    limit_ms: float = 1000.0,
    failed_share: float = 0.0,
    more: Sequence[CriterionResult] = (),
) -> Result:
    criteria = [
        CriterionResult("score_ms", {"below": limit_ms}, score_ms),
        CriterionResult("failed_share", {"max": 0.01}, failed_share),
        *more,
    ]
    return judge_run(verdict(criteria, findings), criteria)


DEGRADED = finding(Code.LOAD_UNKNOWN)
STATE = finding(
    Code.SERVER_STATE_WRONG, rule="uid-reused", section="RFC 9051 2.3.1.1", times=1, user=1, folder=INBOX, excerpt="t1"
)
LOAD, ABORT, GENERATOR_LATE, FAULT, _, TERMS = OF_CAUSE.values()


@pytest.mark.parametrize(
    ("findings", "figures", "result"),
    [
        ([], {}, PASSED),
        ([], {"score_ms": 1100}, FAILED),
        ([], {"failed_share": 0.02}, FAILED),
        ([DEGRADED], {}, UNDECIDED),
        ([DEGRADED], {"failed_share": 0.02}, FAILED),
        ([finding(Code.MAIL_FAULTS, accounts=1, faults=("1 lost",))], {}, FAILED),
        ([LOAD], {}, FAILED),
        ([LOAD, ABORT], {}, FAILED),
        ([GENERATOR_LATE], {}, GENERATOR),
        ([GENERATOR_LATE, LOAD], {"failed_share": 0.5}, GENERATOR),
        ([FAULT], {}, VOID),
        ([FAULT, LOAD], {}, VOID),
        ([TERMS], {}, VOID),
    ],
)
def test_a_step_is_judged_by_the_whole_verdict(
    findings: list[Finding], figures: dict[str, float], result: Result
) -> None:
    assert judged(*findings, **figures) == result


@pytest.mark.parametrize(
    ("findings", "figures", "result"),
    [
        ([], {}, VOID),
        ([], {"score_ms": 1100}, FAILED),
        ([DEGRADED], {}, UNDECIDED),
        ([], {"failed_share": 0.02}, FAILED),
        ([LOAD], {}, FAILED),
        ([STATE], {}, FAILED),
        ([GENERATOR_LATE], {}, GENERATOR),
    ],
)
def test_a_criterion_without_a_figure_is_no_failure_of_the_server(
    findings: list[Finding], figures: dict[str, float], result: Result
) -> None:
    """As of a probe that failed: with its figure, the run might have passed, unless the server broke a rule."""
    unmeasured = CriterionResult("probes.rspamd.rss_bytes.max", {"max": 1e9}, None)
    assert judged(*findings, **figures, more=[unmeasured]) == result


@pytest.mark.parametrize(
    ("findings", "broken"),
    [([], True), ([LOAD, ABORT], False), ([GENERATOR_LATE], False), ([FAULT], False), ([GENERATOR_LATE, STATE], True)],
)
def test_an_invalid_run_does_not_blame_the_server(findings: list[Finding], broken: bool) -> None:
    """Mail that an early end or a late generator left counts for nothing; a broken rule does."""
    criteria = [CriterionResult("delivery.undelivered_at_end", {"max": 0}, 3.0)]
    found = Summary(verdict(criteria, findings), criteria, summary(4, True).figures)
    assert CampaignRun("runs/x", "x", 4).with_summary(found).broken is broken


def test_the_missed_criteria_of_a_degraded_run_come_first() -> None:
    results = [
        CriterionResult("failed_share", {"max": 0.01}, 0.05),
        *(CriterionResult(f"tasks.{task}.failed_share", {"max": 0.01}, 0.05, each=True) for task in ("READ", "SEND")),
    ]
    missed = missed_criteria(results, ended_early=False)
    defects = [finding(Code.LOG_DAMAGED, damage="cut"), finding(Code.LOAD_UNKNOWN)]
    run = CampaignRun("runs/4", "4 users", 4, result=FAILED, validity="degraded", findings=(*defects, *missed))
    assert codes(missed) == [Code.CRITERION_MISSED] * 2
    assert run.reasons == tuple(one.text for one in (*missed, *defects))


HOUR_S, MINUTES_S = Window(600, 4200), Window(600, 900)
"""Windows of an hour and of five minutes, after ten minutes of warm-up; all in virtual time."""

LIMIT_MS = 1000.0
RATE_PER_S, SERVED_PER_S = 0.01, 10.0
"""The requests of each user, and those that the server serves at most."""

CAPACITY = (SERVED_PER_S - math.log(20) / (LIMIT_MS / 1000)) / RATE_PER_S
"""The users whose 95th percentile is the limit: in M/M/1, the sojourn time is exponential with the rate mu - lambda."""


def lindley(came: NDArray[np.float64], service: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sojourn times of one server by Lindley's recursion, without a loop."""
    walk = np.cumsum(np.concatenate(([0.0], service[:-1] - np.diff(came))))
    return walk - np.minimum.accumulate(walk) + service


def queue(seed: int, window_s: Window) -> Server:
    """A queue with Poisson arrivals and exponential service (M/M/1): each step has draws of its own.

    It is measured by the 95th percentile of the sample.
    """
    number = count()

    def measure(users: int) -> CampaignRun:
        random = np.random.default_rng((seed, next(number)))
        arrivals = int(window_s.end_s * users * RATE_PER_S) + 1
        came = np.cumsum(random.exponential(1 / (users * RATE_PER_S), arrivals))
        took_s = lindley(came, random.exponential(1 / SERVED_PER_S, arrivals))
        within = (came >= window_s.begin_s) & (came < window_s.end_s)
        score_ms = float(np.percentile(took_s[within], 95)) * 1000
        return measured(users, judged(score_ms=score_ms, limit_ms=LIMIT_MS), score_ms / LIMIT_MS)

    return measure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window_s", "seeds", "most_steps", "most_wide"), [(HOUR_S, 40, 24, 0.0), (MINUTES_S, 60, 34, 0.25)]
)
def test_the_capacity_of_a_queue_is_within_the_interval(
    window_s: Window, seeds: int, most_steps: float, most_wide: float
) -> None:
    """In at least 95 % of the seeds; the interval is at most +-10 % wide, or the search says that it is not.

    The mean number of steps of 10 seeds has a standard error of about 3.
    """
    contained, lengths, wide = 0, 0, 0
    for seed in range(seeds):
        steps, found = searched(queue(seed, window_s), Settings(100, 5000))
        assert found.low is not None and found.high is not None
        low, high = interval(steps, found) or (0, None)
        contained += (low or 0) <= CAPACITY < (high or math.inf)
        lengths += len(steps)
        short = found.high - found.low <= 0.2 * (found.high + found.low) / 2
        assert found.stopped_by == "order" or short == (found.stopped_by == "criteria")
        wide += not short
    assert contained >= 0.95 * seeds
    assert lengths <= most_steps * seeds
    assert wide <= most_wide * seeds


@pytest.mark.slow
def test_the_plan_of_one_seed_is_the_same_in_all_steps() -> None:
    """As in a real search: a user's arrivals are the same in each step, and more users are those and others.

    The interval is that of the plan then. In windows of five minutes, it still holds the capacity of theory in at least
    90 of 100 seeds.
    """
    most, window_s, contained = 5000, MINUTES_S, 0
    for seed in range(100):
        planned = np.random.default_rng((seed, 5))
        arrivals = planned.poisson(most * RATE_PER_S * window_s.end_s)
        came_s, user = np.sort(planned.uniform(0, window_s.end_s, arrivals)), planned.integers(0, most, arrivals)
        number = count()

        def measure(
            users: int,
            came_s: NDArray[np.float64] = came_s,
            user: NDArray[np.int64] = user,
            number: count[int] = number,
            seed: int = seed,
        ) -> Result:
            came = came_s[user < users]
            service = np.random.default_rng((seed, next(number))).exponential(0.1, len(came))
            took = lindley(came, service)[came >= window_s.begin_s]
            return PASSED if np.percentile(took, 95) * 1000 < LIMIT_MS else FAILED

        _, found = searched(measure, Settings(100, most))
        assert found.low is not None and found.high is not None
        contained += found.low <= CAPACITY < found.high
    assert contained >= 90


@pytest.mark.parametrize(
    ("figures", "nearest"), [([-5.0], None), ([0.0], None), ([-5.0, 3.0], 0.3), ([math.inf], None)]
)
def test_figures_of_zero_have_no_logarithm(figures: list[float], nearest: float | None) -> None:
    """A probe may measure a temperature below 0."""
    criteria = [CriterionResult("probes.x.y.max", {"max": 10.0}, figure) for figure in figures]
    assert nearest_to_failure(criteria, PASSED) == nearest
