"""Intervals within a run: their coverage against a known truth, what they are made of, and when there is none."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hit_series import autoregressive, hits_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.coverage import MOODS, SERVICES, Cell, Mood, simulate
from loadsim.analysis.series.bins import Hits, bin_of, bins_in, excess, in_order, slow_and_all
from loadsim.analysis.statistics.comparison import one_critical_t
from loadsim.analysis.statistics.intervals import BLOCKS, WIDENING, Interval, Intervals, intervals
from loadsim.analysis.statistics.nearest_rank import percentile
from loadsim.model.terms import Window

SIMULATED = 100
WINDOW_S = 3600
P95 = NormalDist().inv_cdf(0.95)


def simulated(random: np.random.Generator, length_s: int, hits: int, moods: NDArray[np.float64], own: float) -> Hits:
    """Log-normal times around 8 ms, of Poisson arrivals; the server's mood, in each second, is in all of them."""
    due_us = random.integers(0, length_s * 1_000_000, hits)
    took_us = np.exp(9 + moods[due_us // 1_000_000] + own * random.normal(size=hits)).astype(np.int64)
    return hits_of("READ", 10, due_us, took_us, Window(0, length_s))


# --- against a known truth ---


def least_covered(times: int) -> float:
    """Return how often an interval of 95 % holds the truth, less four standard deviations."""
    return 0.95 * times - 4 * math.sqrt(times * 0.95 * 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(("mood", "tau_s"), [(MOODS[0], 0), (MOODS[1], 12), (MOODS[2], 3), (MOODS[2], 12)])
def test_intervals_hold_the_truth_as_often_as_they_say(service: str, mood: Mood, tau_s: int) -> None:
    """For light and heavy tails, and moods that last for up to a 300th of the window: of READ and of the score."""
    row = simulate(Cell(service, mood, tau_s, WINDOW_S, 5, SIMULATED))
    for name in ("READ", "score"):
        assert row[name]["shown"] >= 0.9 * SIMULATED
        assert row[name]["covered"] >= least_covered(row[name]["shown"])


@pytest.mark.parametrize("window_s", [60, 150, 300, 900])
def test_windows_in_which_slow_spells_may_be_missed_show_no_interval(window_s: int) -> None:
    """Their data cannot tell that there are no spells of 12 s: with spells of 6 s, coverage was 86 %, and less."""
    row = simulate(Cell("log-normal", MOODS[2], 6, window_s, 20, 20))
    assert (row["READ"]["shown"], row["score"]["shown"]) == (0, 0)


def test_intervals_are_no_longer_than_they_must_be() -> None:
    """For independent times: as long as the theory of order statistics asks for, with t for ten blocks, widened."""
    random = np.random.default_rng(1)
    widths = []
    for _ in range(SIMULATED):
        read = simulated(random, WINDOW_S, 9000, np.zeros(WINDOW_S), 0.8)
        found = intervals([read], Window(0, WINDOW_S)).tasks["READ"]
        if found.why_not is None:
            assert found.low_ms is not None and found.high_ms is not None
            assert found.low_ms <= percentile(read.took_us, 95) / 1000 <= found.high_ms
            widths.append(width(found))
    truth_ms = math.exp(9 + P95 * 0.8) / 1000
    density = math.exp(-P95 * P95 / 2) / math.sqrt(2 * math.pi) / (0.8 * truth_ms)
    asked_ms = 2 * WIDENING * one_critical_t(0.05, BLOCKS - 1) * math.sqrt(0.05 * 0.95 / 9000) / density
    assert asked_ms * 0.9 < np.mean(widths) < asked_ms * 1.1


def test_records_taken_for_independent_would_promise_too_much() -> None:
    """Without the order in time of the same moods, an interval is less than half as long."""
    random = np.random.default_rng(9)
    read = simulated(random, WINDOW_S, 18_000, 0.5 * autoregressive(random, WINDOW_S, 0.974), 0.8)
    shuffled = Hits("READ", 10, read.took_us, random.permutation(read.slot))
    blocks, records = (intervals([hits], Window(0, WINDOW_S)).score for hits in (read, shuffled))
    assert 2 * width(records) < width(blocks)


# --- properties ---


def width(interval: Interval) -> float:
    """How long an interval is, in ms."""
    assert interval.low_ms is not None and interval.high_ms is not None
    return interval.high_ms - interval.low_ms


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32), percent=st.sampled_from([5, 50, 95, Fraction(985, 10)]))
def test_ends_are_times_that_were_measured(seed: int, percent: int | Fraction) -> None:
    """Only ranks count: squared times have the squares as their ends, and the shortest have those of the longest."""
    random = np.random.default_rng(seed)
    took_us, due_us = random.permutation(2000) + 1, random.integers(0, WINDOW_S * 1_000_000, 2000)

    def found(times_us: NDArray[np.int64], at: int | Fraction) -> tuple[float, float] | str:
        one = intervals([hits_of("READ", 1, due_us, times_us, Window(0, WINDOW_S))], Window(0, WINDOW_S), at).score
        assert one.low_ms is not None and one.high_ms is not None
        return round(1000 * one.low_ms), round(1000 * one.high_ms)

    if intervals(
        [hits_of("READ", 1, due_us, took_us, Window(0, WINDOW_S))], Window(0, WINDOW_S), percent
    ).score.why_not:
        return
    low_us, high_us = found(took_us, percent)
    assert low_us < np.percentile(took_us, float(percent), method="inverted_cdf") < high_us
    assert found(took_us**2, percent) == (low_us**2, high_us**2)


def test_tasks_that_are_slow_together_have_an_uncertain_score() -> None:
    """Two tasks in the same moods have a score as uncertain as each of them; else chance evens out."""
    random = np.random.default_rng(4)

    def task(name: str) -> Hits:
        found = simulated(random, WINDOW_S, 18_000, 0.5 * autoregressive(random, WINDOW_S, 0.946), 0.8)
        return Hits(name, 10, found.took_us, found.slot)

    read, other = task("READ"), task("SEND")
    twin = intervals([read, Hits("SEND", 10, read.took_us, read.slot)], Window(0, WINDOW_S))
    assert twin.score.low_ms == pytest.approx(twin.tasks["READ"].low_ms)
    assert twin.score.high_ms == pytest.approx(twin.tasks["SEND"].high_ms)
    stranger = intervals([read, other], Window(0, WINDOW_S))
    assert width(stranger.score) < 0.9 * (width(stranger.tasks["READ"]) + width(stranger.tasks["SEND"])) / 2
    assert intervals([other, read], Window(0, WINDOW_S)).score == stranger.score


def test_equal_times_have_an_interval_of_that_time() -> None:
    """No block deviates."""
    same = hits_of("READ", 1, np.arange(900) * 4_000_000, np.full(900, 5000), Window(0, WINDOW_S))
    assert intervals([same], Window(0, WINDOW_S)).score == Interval(5.0, 5.0)


# --- when there is none ---


def evenly(task: str, hits: int, weight: float = 1) -> Hits:
    """Hits all over a window, in an order by chance."""
    due_us = np.linspace(0, WINDOW_S * 1_000_000 - 1, hits).astype(np.int64)
    return hits_of(task, weight, due_us, np.random.default_rng(1).permutation(hits) + 1000, Window(0, WINDOW_S))


def of(*hits: Hits, percent: int | Fraction = 95) -> Intervals:
    """Their intervals."""
    return intervals(hits, Window(0, WINDOW_S), percent)


@pytest.mark.parametrize(
    ("percent", "hits", "says"),
    [
        (95, 300, None),
        (95, 299, "299 hits, at least 300 needed"),
        (50, 30, None),
        (50, 29, "29 hits, at least 30 needed"),
        (5, 299, "299 hits, at least 300 needed"),
        (Fraction(999, 10), 14_999, "14999 hits, at least 15000 needed"),
        (Fraction(999, 10), 15_000, None),
        (100, 5000, "the longest time has no interval"),
    ],
)
def test_few_hits_have_no_interval(percent: int | Fraction, hits: int, says: str | None) -> None:
    """Fifteen must lie beyond the percentile; the reason says how many are needed, for the score, too."""
    found = of(evenly("READ", hits), percent=percent)
    assert found.tasks["READ"].why_not == says
    assert (found.tasks["READ"].low_ms is None) == (says is not None)
    assert found.score.why_not == (f"READ: {says}" if says else None)


def test_a_score_has_an_interval_when_all_its_tasks_have() -> None:
    """A task without a weight is not among them."""
    read = evenly("READ", 1000)
    found = of(read, evenly("SEND", 20))
    assert found.tasks["READ"].why_not is None
    assert found.score.why_not == "SEND: 20 hits, at least 300 needed"
    assert width(of(read, evenly("SYNC", 20, weight=0)).score) == pytest.approx(width(found.tasks["READ"]))
    assert of(evenly("SYNC", 1000, weight=0)).score.why_not == "there is no score"
    assert of().score.why_not == "there is no score"


def test_short_windows_have_no_interval() -> None:
    """Not even with many hits; a window of an hour has one, for spells of up to 12 s."""
    hits = evenly("READ", 1000)
    found = intervals([hits], Window(100, 3699.9))
    assert found.score.why_not == found.tasks["READ"].why_not == "the window is shorter than 1 h"
    assert found.spell_s is None
    longer = intervals([hits], Window(100, 3700))
    assert (longer.score.why_not, longer.spell_s) == (None, 12)
    assert intervals([hits], Window(0, 14_400)).spell_s == 48


@pytest.mark.parametrize("moods", [np.repeat([0.0, 2.0], WINDOW_S // 2), np.linspace(0, 3, WINDOW_S)])
def test_what_is_correlated_over_the_window_has_no_interval(moods: NDArray[np.float64]) -> None:
    """A server that is slow for half of the window shows one event: nobody can tell how many there might have been."""
    found = of(simulated(np.random.default_rng(5), WINDOW_S, 18_000, moods, 0.5))
    assert found.tasks["READ"].why_not == "its times are correlated over more than a tenth of the window"
    assert found.score.why_not == f"READ: {found.tasks['READ'].why_not}"


def test_hits_in_a_part_of_the_window_have_no_interval() -> None:
    """Of the tenth without any, nothing is known."""
    part = hits_of("READ", 1, np.arange(800) * 4_000_000, np.arange(800), Window(0, WINDOW_S))
    assert of(part).tasks["READ"].why_not == "a tenth of the window has none of its 800 hits"


def test_an_end_beyond_all_hits_is_no_end() -> None:
    """All the slow ones at one moment of the window: there might have been many more such moments."""
    due_us = np.concatenate([np.linspace(0, 3_599_000_000, 285).astype(np.int64), np.full(15, 200_000_000)])
    took_us = np.concatenate([np.full(285, 1000), np.arange(2000, 2015)])
    moment = hits_of("READ", 1, due_us, took_us, Window(0, WINDOW_S))
    assert of(moment).tasks["READ"].why_not == "an end of it lies beyond all of its hits"


# --- slots ---


@pytest.mark.parametrize(
    ("window_s", "slots"),
    [
        (Window(0, 0.9), 0),
        (Window(0, 1), 1),
        (Window(60, 210.5), 150),
        (Window(0, 500), 500),
        (Window(3600, 14_400), 500),
    ],
)
def test_a_window_has_a_slot_for_each_second(window_s: Window, slots: int) -> None:
    """At most 500; the first and the last instant lie in the first and the last of them."""
    assert bins_in(window_s) == slots
    ends_us = np.array([window_s[0] * 1e6, window_s[1] * 1e6 - 1]).astype(np.int64)
    assert bin_of(ends_us, window_s).tolist() == [0, max(slots - 1, 0)]
    outside_us = np.array([window_s[0] * 1e6 - 5e6, window_s[1] * 1e6 + 5e6]).astype(np.int64)
    assert bin_of(outside_us, window_s).tolist() == [0, max(slots - 1, 0)]


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
