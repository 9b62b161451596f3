"""Intervals within a run: their coverage against a known truth, what they are made of, and when there is none."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hit_series import autoregressive, hits_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.coverage import MOODS, SERVICES, Cell, Mood, simulate
from loadsim.model.figures import Bounds, NoInterval
from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits, bin_of, bins_in, excess, slow_and_all, timed, times_in
from loadsim.statistics.comparison import one_critical_t
from loadsim.statistics.intervals import BLOCKS, WIDENING, Intervals, intervals

SIMULATED = 100
WINDOW_S = 3600
P95 = NormalDist().inv_cdf(0.95)


def simulated(random: np.random.Generator, length_s: int, hits: int, moods: NDArray[np.float64], own: float) -> Hits:
    """Log-normal times around 8 ms, of Poisson arrivals; the server's mood, in each second, is in all of them."""
    due_us = random.integers(0, length_s * 1_000_000, hits)
    took_us = np.exp(9 + moods[due_us // 1_000_000] + own * random.normal(size=hits)).astype(np.int64)
    return hits_of("READ", 10, due_us, took_us, Window(0, length_s))


def least_covered(times: int) -> float:
    """Return how often an interval of 95 % holds the truth, less four standard deviations."""
    return 0.95 * times - 4 * math.sqrt(times * 0.95 * 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(("mood", "tau_s"), [(MOODS[0], 0), (MOODS[1], 12), (MOODS[2], 3), (MOODS[2], 12)])
def test_intervals_cover_the_true_value_as_often_as_stated(service: str, mood: Mood, tau_s: int) -> None:
    """For light and heavy tails, and moods that last for up to a 300th of the window: of READ and of the score."""
    row = simulate(Cell(service, mood, tau_s, WINDOW_S, 5, SIMULATED))
    for name in ("READ", "score"):
        assert row[name]["shown"] >= 0.9 * SIMULATED
        assert row[name]["covered"] >= least_covered(row[name]["shown"])


@pytest.mark.parametrize("window_s", [60, 150, 300, 900])
def test_windows_too_short_for_slow_spells_have_no_interval(window_s: int) -> None:
    """Their data cannot tell that there are no spells of 12 s: with spells of 6 s, coverage was 86 %, and less."""
    row = simulate(Cell("log-normal", MOODS[2], 6, window_s, 20, 20))
    assert (row["READ"]["shown"], row["score"]["shown"]) == (0, 0)


def test_intervals_are_no_wider_than_needed() -> None:
    """For independent times: as long as the theory of order statistics asks for, with t for ten blocks, widened."""
    random = np.random.default_rng(1)
    widths = []
    for _ in range(SIMULATED):
        read = simulated(random, WINDOW_S, 9000, np.zeros(WINDOW_S), 0.8)
        found = intervals([read], Window(0, WINDOW_S)).tasks["READ"]
        if not isinstance(found, NoInterval):
            assert found[0] <= read.percentile_us(95) / 1000 <= found[1]
            widths.append(width(found))
    truth_ms = math.exp(9 + P95 * 0.8) / 1000
    density = math.exp(-P95 * P95 / 2) / math.sqrt(2 * math.pi) / (0.8 * truth_ms)
    asked_ms = 2 * WIDENING * one_critical_t(0.05, BLOCKS - 1) * math.sqrt(0.05 * 0.95 / 9000) / density
    assert asked_ms * 0.9 < np.mean(widths) < asked_ms * 1.1


def test_intervals_of_independent_records_would_be_too_narrow() -> None:
    """Without the order in time of the same moods, an interval is less than half as long."""
    random = np.random.default_rng(9)
    read = simulated(random, WINDOW_S, 18_000, 0.5 * autoregressive(random, WINDOW_S, 0.974), 0.8)
    shuffled = Hits("READ", 10, np.sort(timed(times_in(read.timed), random.permutation(read.timed % 512))))
    blocks, records = (intervals([hits], Window(0, WINDOW_S)).score for hits in (read, shuffled))
    assert 2 * width(records) < width(blocks)


def width(interval: Bounds | NoInterval | None) -> float:
    assert isinstance(interval, tuple)
    return interval[1] - interval[0]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32))
def test_ends_are_measured_times(seed: int) -> None:
    """Only ranks count: squared times have the squares as their ends."""
    random = np.random.default_rng(seed)
    took_us, due_us = random.permutation(2000) + 1, random.integers(0, WINDOW_S * 1_000_000, 2000)

    def ends_us(times_us: NDArray[np.int64]) -> list[int]:
        hits = hits_of("READ", 1, due_us, times_us, Window(0, WINDOW_S))
        return [round(1000 * end_ms) for end_ms in intervals([hits], Window(0, WINDOW_S)).score or ()]

    if ends := ends_us(took_us):
        assert ends[0] < np.percentile(took_us, 95, method="inverted_cdf") < ends[1]
    assert ends_us(took_us**2) == [end**2 for end in ends]


def test_correlated_tasks_widen_the_scores_interval() -> None:
    """Two tasks in the same moods have a score as uncertain as each of them; else chance evens out."""
    random = np.random.default_rng(4)

    def task(name: str) -> Hits:
        found = simulated(random, WINDOW_S, 18_000, 0.5 * autoregressive(random, WINDOW_S, 0.946), 0.8)
        return Hits(name, 10, found.timed)

    read, other = task("READ"), task("SEND")
    twin = intervals([read, Hits("SEND", 10, read.timed)], Window(0, WINDOW_S))
    assert twin.score == pytest.approx(twin.tasks["READ"])
    stranger = intervals([read, other], Window(0, WINDOW_S))
    assert width(stranger.score) < 0.9 * (width(stranger.tasks["READ"]) + width(stranger.tasks["SEND"])) / 2
    assert intervals([other, read], Window(0, WINDOW_S)).score == stranger.score


def test_equal_times_have_an_interval_of_that_time() -> None:
    same = hits_of("READ", 1, np.arange(900) * 4_000_000, np.full(900, 5000), Window(0, WINDOW_S))
    assert intervals([same], Window(0, WINDOW_S)).score == (5.0, 5.0)


def evenly(task: str, hits: int, weight: float = 1) -> Hits:
    """Hits all over a window, in an order by chance."""
    due_us = np.linspace(0, WINDOW_S * 1_000_000 - 1, hits).astype(np.int64)
    return hits_of(task, weight, due_us, np.random.default_rng(1).permutation(hits) + 1000, Window(0, WINDOW_S))


def of(*hits: Hits) -> Intervals:
    return intervals(hits, Window(0, WINDOW_S))


def test_a_score_has_an_interval_if_all_its_tasks_have() -> None:
    """It takes 300 hits. A task without a weight is not among the tasks of the score."""
    read = evenly("READ", 300)
    found = of(read, evenly("SEND", 299))
    assert isinstance(found.tasks["READ"], tuple)
    assert (found.tasks["SEND"], found.score) == (NoInterval.FEW_HITS, None)
    assert width(of(read, evenly("SYNC", 20, weight=0)).score) == pytest.approx(width(found.tasks["READ"]))
    assert of(evenly("SYNC", 1000, weight=0)).score is None
    assert of().score is None


def test_short_windows_have_no_interval() -> None:
    """Not even with many hits; a window of an hour has one, for spells of up to 12 s."""
    hits = evenly("READ", 1000)
    assert intervals([hits], Window(100, 3699.9)) == Intervals(None, {"READ": NoInterval.SHORT_WINDOW})
    assert intervals([hits], Window(100, 3700)).score is not None


@pytest.mark.parametrize("moods", [np.repeat([0.0, 2.0], WINDOW_S // 2), np.linspace(0, 3, WINDOW_S)])
def test_times_correlated_over_the_window_have_no_interval(moods: NDArray[np.float64]) -> None:
    """A server that is slow for half of the window shows one event, which tells nothing of their frequency."""
    found = of(simulated(np.random.default_rng(5), WINDOW_S, 18_000, moods, 0.5))
    assert (found.tasks["READ"], found.score) == (NoInterval.CORRELATED, None)


def test_hits_in_part_of_the_window_have_no_interval() -> None:
    part = hits_of("READ", 1, np.arange(800) * 4_000_000, np.arange(800), Window(0, WINDOW_S))
    assert of(part).tasks["READ"] is NoInterval.EMPTY_BLOCK


def test_an_interval_needs_hits_beyond_its_end() -> None:
    """All the slow ones at one moment of the window: there might have been many more such moments."""
    due_us = np.concatenate([np.linspace(0, 3_599_000_000, 285).astype(np.int64), np.full(15, 200_000_000)])
    took_us = np.concatenate([np.full(285, 1000), np.arange(2000, 2015)])
    moment = hits_of("READ", 1, due_us, took_us, Window(0, WINDOW_S))
    assert of(moment).tasks["READ"] is NoInterval.BEYOND_HITS


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
def test_a_window_has_one_bin_per_second(window_s: Window, slots: int) -> None:
    """At most 500; the first and the last instant lie in the first and the last of them."""
    assert bins_in(window_s) == slots
    ends_us = np.array([window_s[0] * 1e6, window_s[1] * 1e6 - 1]).astype(np.int64)
    assert bin_of(ends_us, window_s).tolist() == [0, max(slots - 1, 0)]
    outside_us = np.array([window_s[0] * 1e6 - 5e6, window_s[1] * 1e6 + 5e6]).astype(np.int64)
    assert bin_of(outside_us, window_s).tolist() == [0, max(slots - 1, 0)]


@given(
    hits=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9)), min_size=1), longer_than_us=st.integers(0, 2**40)
)
def test_slow_hits_are_counted_by_bin(hits: list[tuple[int, int]], longer_than_us: int) -> None:
    """Sorted by what they took, with their slots; and what is more than their share adds up to nothing."""
    both = np.sort(timed(np.array([took for took, _ in hits]), np.array([at for _, at in hits], np.uint16)))
    assert times_in(both).tolist() == sorted(took for took, _ in hits)
    slow, everything = slow_and_all(Hits("READ", 1, both), 10, longer_than_us)
    assert slow.tolist() == [sum(at == one and took > longer_than_us for took, at in hits) for one in range(10)]
    assert everything.tolist() == [sum(at == one for _, at in hits) for one in range(10)]
    assert abs(excess(slow, everything).sum()) < 1e-6
