"""Criteria on a send queue, from samples of a queue to answer, JUnit and exit status."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from findings_of import codes
from hypothesis import given
from hypothesis import strategies as st
from timing_samples import ENDED, START_NS, done, sample_log

from loadsim.analysis.probes.send_queue import build_ups_s, growth_s
from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.model.terms import Window

LENGTH_S = 600
PER_S = 10.0
"""Deliveries per second: 50 recipients are the 5 s of throughput from which on a queue is a build-up."""

LIMITS = {"oldest_message_s": 60, "send_queue_build_up_s": 60, "send_queue_growth_s": 1}
NAMES = {f"probes.postfix.{figure}.max": {"max": most} for figure, most in LIMITS.items()}

Queue = Callable[[int], float]
"""Recipients by the second."""


def judged(
    place: Path,
    queue: Queue,
    age: Queue = lambda _: 0,
    at_s: Sequence[int] = range(LENGTH_S),
    per_s: float | None = PER_S,
    probe: str = "postfix",
) -> Summary:
    """The summary of a run whose only criteria are those that the name stands for."""
    health = [
        {
            "at_ns": START_NS + at * 10**9,
            "probe": probe,
            "figures": {"send_queue_recipients": float(queue(at)), "oldest_message_s": float(age(at))}
            | ({} if per_s is None else {"sent_per_s": per_s}),
        }
        for at in at_s
    ]
    header = {"window_s": [0.0, float(LENGTH_S)], "duration_s": float(LENGTH_S), "criteria": NAMES}
    tasks = [done("READ", 1000 * number + 500, 40) for number in range(LENGTH_S)]
    return summarise([sample_log(place / "a.tlog", tasks, header=header, health=health, facts=ENDED)])


def missed(summary: Summary) -> set[str]:
    return {one.name.split(".")[2] for one in summary.criteria if not one.passed}


def found(summary: Summary) -> dict[str, float | None]:
    return {one.name.split(".")[2]: one.figure for one in summary.criteria}


def triangle(begin: int, top: float, end: int) -> Queue:
    """A queue that rises from 0 at `begin` to the top in the middle, and falls to 0 at `end`."""
    middle, half = (begin + end) / 2, (end - begin) / 2
    return lambda at: max(0.0, top * (1 - abs(at - middle) / half))


def noise(seed: int, most: int) -> Queue:
    values = np.random.default_rng(seed).integers(0, most + 1, LENGTH_S)
    return lambda at: float(values[at])


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        (lambda _: 2, "a busy server, always with two under way: 0.2 s of throughput"),
        (lambda _: 50, "a standing queue of just 5 s of throughput"),
        (noise(1, 9), "a queue of 0 to 9, at random"),
        (triangle(280, 400, 320), "40 s of throughput, built up in 20 s, and delivered in 20 s"),
        (lambda at: triangle(100, 300, 140)(at) + triangle(300, 300, 340)(at) + noise(2, 4)(at), "two, with noise"),
        (lambda at: 100 if at < 30 else 0, "a rest of before the window, which is delivered in it"),
    ],
)
def test_an_emptying_queue_meets_the_criterion(queue: Queue, why: str, tmp_path: Path) -> None:
    summary = judged(tmp_path, queue)
    assert not missed(summary), f"{why}: {found(summary)}"
    assert summary.verdict.passed


@pytest.mark.parametrize(
    ("queue", "age", "expected", "why"),
    [
        (lambda at: 30 * at / 600, lambda _: 3, {"send_queue_growth_s"}, "3 s of throughput more, and never 5 s"),
        (
            lambda at: at,
            lambda at: min(at, 60),
            {"send_queue_growth_s", "send_queue_build_up_s"},
            "a recipient more each second: above 50 for 549 s, though no message is older than 60 s",
        ),
        (lambda _: 100, lambda _: 10, {"send_queue_build_up_s"}, "10 s of throughput that never empties"),
        (lambda _: 3, lambda at: 400 + at, {"oldest_message_s"}, "three deferred messages that are stuck"),
        (triangle(100, 400, 300), lambda _: 0, {"send_queue_build_up_s"}, "a build-up of 3 min"),
        (
            lambda at: 40 * max(0, at - 580),
            lambda at: max(0, at - 580),
            {"send_queue_build_up_s"},
            "20 s before the end 40 a second come: the 760 at 599 s need 76 s, and nothing shows that they leave",
        ),
    ],
)
def test_a_growing_queue_misses_the_criterion(
    queue: Queue, age: Queue, expected: set[str], why: str, tmp_path: Path
) -> None:
    summary = judged(tmp_path, queue, age)
    assert missed(summary) == expected, f"{why}: {found(summary)}"
    assert summary.exit_status == 1


def test_a_build_up_lasts_between_the_samples_around_it(tmp_path: Path) -> None:
    """Above 50 recipients from 103 to 117 s, so from the sample at 102 s to that at 118 s. The least are all 0."""
    summary = judged(tmp_path, triangle(100, 200, 120))
    assert found(summary) == {"oldest_message_s": 0, "send_queue_build_up_s": 16, "send_queue_growth_s": 0}


def test_a_build_up_at_the_end_lasts_until_it_could_be_delivered(tmp_path: Path) -> None:
    """From the sample at 589 s to the end of the window 11 s, and 100 recipients for 10 s."""
    summary = judged(tmp_path, lambda at: 100 if at >= 590 else 0)
    assert found(summary)["send_queue_build_up_s"] == pytest.approx(21.0)


QUIET = {"send_queue_build_up_s", "send_queue_growth_s"}


@pytest.mark.parametrize(
    ("at_s", "per_s", "expected", "reason"),
    [
        ((), PER_S, {*LIMITS}, Code.NO_PROBE),
        (range(LENGTH_S), None, QUIET, Code.NO_DELIVERIES),
        (range(LENGTH_S), 0.0, QUIET, Code.NO_DELIVERIES),
        ([*range(200), *range(240, LENGTH_S)], PER_S, {*LIMITS}, Code.NO_SAMPLES),
        (range(300), PER_S, {*LIMITS}, Code.NO_SAMPLES),
    ],
)
def test_unmeasured_queues_miss_the_criterion(
    at_s: Sequence[int], per_s: float | None, expected: set[str], reason: Code, tmp_path: Path
) -> None:
    summary = judged(tmp_path, lambda _: 0, at_s=at_s, per_s=per_s)
    assert missed(summary) == expected
    assert all(one.figure is None and codes(one.reasons) == [reason] for one in summary.criteria if not one.passed)
    assert not summary.verdict.passed


QUEUES = st.lists(st.integers(0, 3000), min_size=10, max_size=120)


@given(QUEUES)
def test_a_build_up_is_a_stretch_above_the_limit(queue: list[int]) -> None:
    """By a second way: a window ends with an empty queue, so a build-up lies between two samples that are short."""
    queue = [*queue, 0]
    short = [-1, *(at for at, length in enumerate(queue) if length <= 50)]
    widths = [after - before for before, after in pairwise(short) if after - before > 1]
    # The window begins a second before the first sample.
    ages = build_ups_s(range(len(queue)), np.array(queue) / 10, Window(-1, len(queue)))
    assert max(ages) == max(widths, default=0)


@given(QUEUES)
def test_growth_is_the_lower_bound_of_the_slope_of_minima(queue: list[int]) -> None:
    """By numpy's regression, and by Student's t in the table of the NIST handbook: 2.896 for 99 % and 8 degrees."""
    values = np.array(queue) / 10
    (grown_s,) = {*growth_s(range(len(queue)), values, Window(0, len(queue)))}  # type: ignore[misc]
    parts = np.array_split(np.arange(len(queue)), 10)
    least = [int(part[np.argmin(values[part])]) for part in parts]
    (slope, _), covariance = np.polyfit(least, values[least], 1, cov=True)
    bound = max(0.0, slope - 2.896 * np.sqrt(covariance[0, 0]))
    assert grown_s == pytest.approx(bound * len(queue), rel=1e-3, abs=0.05)


def test_the_growth_of_fewer_samples_than_parts_is_unknown() -> None:
    assert growth_s(range(9), np.arange(9.0), Window(0, 9)) is None


@given(st.lists(st.integers(1, 300), min_size=2, max_size=30), st.integers(0, 29))
def test_larger_build_ups_are_no_growth_while_the_queue_empties(part: list[int], empty_at: int) -> None:
    part[empty_at % len(part)] = 0
    values = np.array([number * length for number in range(1, 11) for length in part]) / 10
    grown_s = growth_s(range(len(values)), values, Window(0, len(values)))
    assert grown_s is not None
    assert not grown_s.any()


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_simulated_queue_with_spare_capacity_meets_the_criterion(load: float, tmp_path: Path) -> None:
    """M/M/1 has a queue that empties: at 10 deliveries a second, above 50 recipients once in 1e5 samples at most."""
    rng = np.random.default_rng(round(load * 10))
    count = round(PER_S * LENGTH_S * 1.1)
    came_s = np.cumsum(rng.exponential(1 / PER_S, count))
    takes_s = rng.exponential(load / PER_S, count)
    left_s = np.empty(count)
    free_s = 0.0
    for number, (came, takes) in enumerate(zip(came_s, takes_s, strict=True)):
        left_s[number] = free_s = max(free_s, came) + takes
    waiting = [int(np.count_nonzero((came_s <= at) & (left_s > at))) for at in range(LENGTH_S)]
    assert max(waiting) > 2
    assert not missed(judged(tmp_path, lambda at: waiting[at]))


@pytest.mark.parametrize("load", [1.05, 1.3])
def test_a_simulated_overloaded_queue_misses_the_criterion(load: float, tmp_path: Path) -> None:
    """5 % more than it delivers: after 600 s, 30 s of throughput wait."""
    rng = np.random.default_rng(4)
    walk = np.cumsum(rng.poisson(PER_S * load, LENGTH_S) - rng.poisson(PER_S, LENGTH_S))
    waiting = walk - np.minimum.accumulate(np.minimum(walk, 0))
    assert missed(judged(tmp_path, lambda at: waiting[at])) == QUIET
