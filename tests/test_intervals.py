"""Intervals within a run: the bootstrap hit by hit against numpy, its coverage against a known truth, and when there is
none.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loadsim.results import intervals as module
from loadsim.results.intervals import MOST_BLOCKS, REPLICATES, Intervals, draw, drawn_percentiles, intervals
from loadsim.results.score import percentile
from loadsim.results.slots import Hits, block_slots, covariances, excess, in_order, slot_of, slots_in, slow_and_all

SIMULATED = 100
P95 = NormalDist().inv_cdf(0.95)


def hits_of(
    task: str,
    weight: float,
    due_us: NDArray[np.int64],
    took_us: NDArray[np.int64],
    window_s: tuple[float, float],
) -> Hits:
    """The hits of a task, as the records of a window would give them."""
    return Hits(task, weight, *in_order(took_us, slot_of(due_us, window_s)))


def autoregressive(random: np.random.Generator, length: int, correlation: float) -> NDArray[np.float64]:
    """An AR(1) series of standard normal variables."""
    shocks = random.normal(size=length)
    series = np.empty(length)
    series[0] = shocks[0]
    for at in range(1, length):
        series[at] = correlation * series[at - 1] + math.sqrt(1 - correlation**2) * shocks[at]
    return series


def simulated(random: np.random.Generator, length_s: int, hits: int, moods: NDArray[np.float64], own: float) -> Hits:
    """Log-normal times around 8 ms, of Poisson arrivals; the server's mood, in each second, is in all of them."""
    due_us = random.integers(0, length_s * 1_000_000, hits)
    took_us = np.exp(9 + moods[due_us // 1_000_000] + own * random.normal(size=hits)).astype(np.int64)
    return hits_of("READ", 10, due_us, took_us, (0, length_s))


# --- the bootstrap ---


@settings(deadline=None, max_examples=15)
@given(
    took_us=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    percent=st.sampled_from([50, 95]),
    data=st.data(),
)
def test_each_replicate_has_numpys_percentile_of_what_was_drawn(
    took_us: list[int], percent: int, data: st.DataObject
) -> None:
    """The outside oracle: every hit repeated as often as its slot was drawn, and numpy's own nearest rank."""
    slots = data.draw(st.integers(1, 8))
    slot = data.draw(st.lists(st.integers(0, slots - 1), min_size=len(took_us), max_size=len(took_us)))
    hits = Hits("READ", 1, *in_order(np.array(took_us), np.array(slot, np.uint16)))
    drawn = draw(slots, data.draw(st.integers(1, slots)), data.draw(st.text(max_size=3)))
    found = drawn_percentiles(hits, drawn, percent)
    often = drawn.astype(int)[:, hits.slot]
    if not often.sum(axis=1).all():
        assert found is None
        return
    assert found is not None
    for replicate in range(0, REPLICATES, 97):
        repeated = np.repeat(hits.took_us, often[replicate])
        assert found[replicate] == np.percentile(repeated, percent, method="inverted_cdf")


def test_many_hits_are_gone_through_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in memory at a time changes nothing."""
    random = np.random.default_rng(7)
    hits = simulated(random, 60, 3000, np.zeros(60), 1.0)
    drawn = draw(60, 5, "p1")
    whole = drawn_percentiles(hits, drawn, Fraction(999, 10))
    monkeypatch.setattr(module, "_AT_ONCE", 1000)
    in_portions = drawn_percentiles(hits, drawn, Fraction(999, 10))
    assert whole is not None and in_portions is not None
    assert whole.tolist() == in_portions.tolist()


@pytest.mark.parametrize(("slots", "block"), [(20, 1), (20, 6), (7, 7), (150, 13)])
def test_a_window_is_drawn_in_whole_blocks(slots: int, block: int) -> None:
    """Each replicate is as long as the window; no slot is preferred; neighbours come together."""
    drawn = draw(slots, block, "p1")
    assert drawn.shape == (REPLICATES, slots)
    assert (drawn.sum(axis=1) == slots).all()
    # Each place of a replicate is any slot with the same probability; 5 standard deviations, blocks counted as one.
    most = 5 * math.sqrt(block / REPLICATES)
    assert np.abs(drawn.mean(axis=0) - 1).max() < most
    # Where a block of the circle begins, or ends, the count changes: at most twice for each block.
    changes = (drawn != np.roll(drawn, 1, axis=1)).sum(axis=1)
    assert changes.max() <= 2 * -(-slots // block)


def test_the_same_seed_gives_the_same_intervals() -> None:
    """Whatever the order of the tasks; another seed gives others, near them."""
    random = np.random.default_rng(3)
    read = simulated(random, 100, 2000, np.zeros(100), 1.0)
    send = Hits("SEND", 1, read.took_us, read.slot)
    first = intervals([read, send], (0, 100), "p1")
    assert intervals([send, read], (0, 100), "p1") == first
    other = intervals([read, send], (0, 100), "p2")
    assert other != first
    assert other.score.low_ms == pytest.approx(first.score.low_ms, rel=0.05)


def test_tasks_are_drawn_together() -> None:
    """Two tasks that are slow at the same time have a score as uncertain as each of them; else chance evens out."""
    random = np.random.default_rng(4)
    moods = 0.5 * autoregressive(random, 200, 0.5)
    read = simulated(random, 200, 4000, moods, 0.8)
    other = simulated(random, 200, 4000, 0.5 * autoregressive(random, 200, 0.5), 0.8)

    def both(second: Hits) -> Intervals:
        return intervals([read, Hits("SEND", read.weight, second.took_us, second.slot)], (0, 200), "p1")

    twin, stranger = both(read), both(other)
    assert twin.score == twin.tasks["READ"] == twin.tasks["SEND"]
    assert width(stranger.score) < 0.9 * (width(stranger.tasks["READ"]) + width(stranger.tasks["SEND"])) / 2


def width(interval: module.Interval) -> float:
    """How long an interval is, in ms."""
    assert interval.low_ms is not None and interval.high_ms is not None
    return interval.high_ms - interval.low_ms


def least_covered(times: int) -> float:
    """How often an interval of 95 % holds the truth, less four standard deviations."""
    return 0.95 * times - 4 * math.sqrt(times * 0.95 * 0.05)


@pytest.mark.parametrize(("length_s", "hits", "correlation"), [(100, 1000, 0.0), (300, 3000, 0.5)])
def test_intervals_hold_the_truth_as_often_as_they_say(length_s: int, hits: int, correlation: float) -> None:
    """Independent times, and those of a server whose moods last: the true percentiles are known.

    Of READ and of a score of two tasks in the same moods. The mood has a standard deviation of 0.5 in the logarithm, at
    the worst second of 20 it is 2.3 times as slow as usual.
    """
    random = np.random.default_rng(1)
    mood, own = (0.5, 0.8) if correlation else (0.0, 0.8)
    truth_ms = math.exp(9 + P95 * math.hypot(mood, own)) / 1000
    truth_of_score_ms = (10 * truth_ms + math.exp(9 + P95 * math.hypot(mood, 0.4)) / 1000) / 11
    covered = {"READ": 0, "score": 0}
    widths = []
    for number in range(SIMULATED):
        moods = mood * autoregressive(random, length_s, correlation)
        read = simulated(random, length_s, hits, moods, own)
        send = simulated(random, length_s, hits // 4, moods, 0.4)
        found = intervals([read, Hits("SEND", 1, send.took_us, send.slot)], (0, length_s), f"p{number}")
        for name, interval, truth in (
            ("READ", found.tasks["READ"], truth_ms),
            ("score", found.score, truth_of_score_ms),
        ):
            assert interval.low_ms is not None and interval.high_ms is not None
            covered[name] += interval.low_ms <= truth <= interval.high_ms
        point_ms = percentile(read.took_us, 95) / 1000
        low_ms, high_ms = found.tasks["READ"].low_ms, found.tasks["READ"].high_ms
        assert low_ms is not None and high_ms is not None and low_ms <= point_ms <= high_ms
        widths.append(high_ms - low_ms)
    assert min(covered.values()) >= least_covered(SIMULATED)
    if not correlation:  # not by being too long: the width that the theory of order statistics asks for, and some
        density = math.exp(-P95 * P95 / 2) / math.sqrt(2 * math.pi) / (own * truth_ms)
        asked_ms = 2 * 1.96 * math.sqrt(0.05 * 0.95 / hits) / density
        assert asked_ms * 0.9 < np.mean(widths) < asked_ms * 1.4


def test_single_records_drawn_again_would_promise_too_much() -> None:
    """Against the same moods, an interval that takes records for independent is less than half as long."""
    random = np.random.default_rng(9)
    read = simulated(random, 300, 6000, 0.5 * autoregressive(random, 300, 0.7), 0.8)
    shuffled = Hits("READ", 10, read.took_us, random.permutation(read.slot))
    blocks, records = (intervals([hits], (0, 300), "p1").score for hits in (read, shuffled))
    assert 2 * width(records) < width(blocks)


# --- when there is none ---


def evenly(task: str, hits: int, length_s: int = 100, weight: float = 1) -> Hits:
    """Hits all over a window, each a little slower than the last."""
    due_us = np.linspace(0, length_s * 1_000_000 - 1, hits).astype(np.int64)
    return hits_of(task, weight, due_us, np.random.default_rng(1).permutation(hits) + 1000, (0, length_s))


@pytest.mark.parametrize(
    ("percent", "hits", "says"),
    [
        (95, 100, None),
        (95, 99, "99 hits, at least 100 needed"),
        (50, 10, None),
        (50, 9, "9 hits, at least 10 needed"),
        (5, 99, "99 hits, at least 100 needed"),
        (Fraction(999, 10), 4999, "4999 hits, at least 5000 needed"),
        (Fraction(999, 10), 5000, None),
        (100, 5000, "the longest time has no interval"),
    ],
)
def test_few_hits_have_no_interval(percent: int | Fraction, hits: int, says: str | None) -> None:
    """Five must lie beyond the percentile; the reason says how many are needed, for the score, too."""
    found = intervals([evenly("READ", hits)], (0, 100), "p1", percent)
    assert found.tasks["READ"].why_not == says
    assert (found.tasks["READ"].low_ms is None) == (says is not None)
    assert found.score.why_not == (f"READ: {says}" if says else None)


def test_a_score_has_an_interval_when_all_its_tasks_have() -> None:
    """A task without a weight is not among them."""
    read, send = evenly("READ", 1000), evenly("SEND", 20)
    found = intervals([read, send], (0, 100), "p1")
    assert found.tasks["READ"].why_not is None
    assert found.score.why_not == "SEND: 20 hits, at least 100 needed"
    assert intervals([read, evenly("SYNC", 20, weight=0)], (0, 100), "p1").score == found.tasks["READ"]
    assert intervals([evenly("SYNC", 1000, weight=0)], (0, 100), "p1").score.why_not == "there is no score"
    assert intervals([], (0, 100), "p1").score.why_not == "there is no score"


def test_short_windows_have_no_interval() -> None:
    """Not even with many hits: seven seconds are seven slots."""
    found = intervals([evenly("READ", 1000, 7)], (0, 7.9), "p1")
    assert found.score.why_not == found.tasks["READ"].why_not == "the window is shorter than 8 s"
    longer = intervals([evenly("READ", 1000, 40)], (0, 40), "p1")
    assert longer.score.why_not is None


def test_what_hangs_together_over_the_window_has_no_interval() -> None:
    """A server that is slow for half of the window shows one event: nobody can tell how many there might have been."""
    random = np.random.default_rng(5)
    found = intervals([simulated(random, 100, 2000, np.repeat([0.0, 2.0], 50), 0.5)], (0, 100), "p1")
    assert found.score.why_not is not None
    assert found.score.why_not.startswith("times hang together over ")
    assert found.score.why_not.endswith("too long for a window of 100 s")
    assert found.block_s is None


def test_hits_in_one_moment_have_no_interval() -> None:
    """Replicates without that moment have no hit."""
    moment = hits_of("READ", 1, np.full(200, 50_000_000), np.arange(200), (0, 100))
    assert intervals([moment], (0, 100), "p1").tasks["READ"].why_not == "its hits lie in too few parts of the window"


# --- how far times hang together ---


@pytest.mark.parametrize(
    ("window_s", "slots"), [((0, 0.9), 0), ((0, 1), 1), ((60, 210.5), 150), ((0, 500), 500), ((3600, 14_400), 500)]
)
def test_a_window_has_a_slot_for_each_second(window_s: tuple[float, float], slots: int) -> None:
    """At most 500; the first and the last instant lie in the first and the last of them."""
    assert slots_in(window_s) == slots
    ends_us = np.array([window_s[0] * 1e6, window_s[1] * 1e6 - 1]).astype(np.int64)
    assert slot_of(ends_us, window_s).tolist() == [0, max(slots - 1, 0)]
    outside_us = np.array([window_s[0] * 1e6 - 5e6, window_s[1] * 1e6 + 5e6]).astype(np.int64)
    assert slot_of(outside_us, window_s).tolist() == [0, max(slots - 1, 0)]


@given(
    hits=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9)), min_size=1),
    longer_than_us=st.integers(0, 2**40),
)
def test_slow_hits_are_counted_slot_by_slot(hits: list[tuple[int, int]], longer_than_us: int) -> None:
    """Sorted by what they took, with their slots; and what is more than their share adds up to nothing."""
    took_us, slot = in_order(np.array([took for took, _ in hits]), np.array([at for _, at in hits], np.uint16))
    assert list(zip(took_us.tolist(), slot.tolist(), strict=True)) == sorted(hits)
    slow, everything = slow_and_all(Hits("READ", 1, took_us, slot), 10, longer_than_us)
    assert slow.tolist() == [sum(at == one and took > longer_than_us for took, at in hits) for one in range(10)]
    assert everything.tolist() == [sum(at == one for _, at in hits) for one in range(10)]
    assert abs(excess(slow, everything).sum()) < 1e-6


def test_covariances_reach_as_far_as_a_series_hangs_together() -> None:
    """Of 100 series each: hardly beyond the next slot for independent ones, whose variance is 1; farther and farther
    for those with a memory, and longer blocks.
    """
    random = np.random.default_rng(2)
    independent = [random.normal(size=300) for _ in range(100)]
    assert np.mean([covariances(series)[0] for series in independent]) == pytest.approx(1, abs=0.05)
    assert np.median([len(covariances(series)) for series in independent]) == 3
    lengths = [
        np.mean([block_slots(autoregressive(random, 300, correlation)) for _ in range(100)])
        for correlation in (0.0, 0.5, 0.8)
    ]
    # Politis and White: (1.5 (G / g)^2 n)^(1/3) with G / g = 2 r / (1 - r^2); 9.3 slots for 0.5, 20.7 for 0.8.
    assert lengths[0] < 4
    assert 5 < lengths[1] < 12
    assert 12 < lengths[2] < 28


def test_a_constant_series_does_not_hang_together() -> None:
    """Nor does it divide by zero."""
    assert block_slots(np.zeros(50)) == 1
    assert covariances(np.ones(50)).tolist() == [0]


def test_a_window_has_at_most_so_many_blocks() -> None:
    """Even independent times are drawn in blocks of a twelfth of the window."""
    found = intervals([evenly("READ", 1000, 240)], (0, 240), "p1")
    assert found.block_s == 240 / MOST_BLOCKS
