"""The arithmetic of comparing runs: against published tables, exact permutations, and thousands of simulated runs."""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loadsim.statistics.comparison import (
    ALPHA,
    MOST_REPEATS,
    POWER,
    Sampled,
    compare,
    critical_t,
    deviations_needed,
    holm,
    larger_share_p,
    level,
    repeats_needed,
    two_sided_p,
    welch,
)

PAIRS = 2_000
TASKS = 10
WEIGHTS = np.array([10.0] + [1.0] * (TASKS - 1))
"""READ and nine others, as in the score."""

Floats = NDArray[np.float64]


def within_three_sigma(share: float) -> float:
    """By how much the share found among `PAIRS` may differ from a probability."""
    return 3 * math.sqrt(share * (1 - share) / PAIRS)


@pytest.mark.parametrize(
    ("freedom", "five_percent", "one_percent"),
    [
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (3, 3.182, 5.841),
        (4, 2.776, 4.604),
        (5, 2.571, 4.032),
        (6, 2.447, 3.707),
        (7, 2.365, 3.499),
        (8, 2.306, 3.355),
        (9, 2.262, 3.250),
        (10, 2.228, 3.169),
        (15, 2.131, 2.947),
        (20, 2.086, 2.845),
        (30, 2.042, 2.750),
        (60, 2.000, 2.660),
        (120, 1.980, 2.617),
    ],
)
def test_critical_values_are_those_of_the_published_tables(
    freedom: int, five_percent: float, one_percent: float
) -> None:
    """Two-sided, three decimals, as every table of t has them."""
    whole = np.array([freedom])
    assert critical_t(0.05, whole) == pytest.approx([five_percent], abs=0.0005)
    assert critical_t(0.01, whole) == pytest.approx([one_percent], abs=0.0005)


def within(freedom: float, statistic: float) -> float:
    """Return the probability of Student's t within -statistic to statistic, by summing up its density."""
    places = np.linspace(0.0, statistic, 4_001)
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    density = scale * (1 + places**2 / freedom) ** (-(freedom + 1) / 2)
    weights = np.ones(4_001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return 2 * float(weights @ density) * (statistic / 4_000) / 3


@settings(max_examples=30)
@given(freedom=st.integers(1, 200), statistic=st.floats(-40, 40))
def test_p_is_the_integral_of_the_density(freedom: int, statistic: float) -> None:
    """Simpson's rule on the density of Student's t gives the same probability."""
    found = two_sided_p(np.array([statistic]), np.array([freedom]))
    assert float(found[0]) == pytest.approx(1 - within(freedom, abs(statistic)), abs=1e-7)


@settings(max_examples=30)
@given(freedom=st.integers(1, 100), alpha=st.floats(1e-6, 0.9))
def test_critical_value_and_p_are_inverse(freedom: int, alpha: float) -> None:
    """The critical value is exceeded with just the probability that was asked for."""
    whole = np.array([freedom])
    assert two_sided_p(critical_t(alpha, whole), whole) == pytest.approx([alpha], rel=1e-6)


def test_welchs_test_agrees_with_a_published_example() -> None:
    """Two samples of 15: t -2.46, 25.0 degrees of freedom (24 rounded down), p 0.021 (Wikipedia's first example)."""
    first = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    second = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    found = welch(np.array([second]), np.array([first]))
    assert float(found.difference[0] / found.error[0]) == pytest.approx(-2.46, abs=0.005)
    assert int(found.freedom[0]) in (24, 25)
    assert float(found.p_values()[0]) == pytest.approx(0.021, abs=0.001)


def test_holms_method_agrees_with_manual_calculation() -> None:
    """0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1, none below the one before it, none above 1; each row by itself."""
    rows = np.array([[0.01, 0.04, 0.03, 0.005], [0.9, 0.8, 0.7, 0.6]])
    assert holm(rows) == pytest.approx(np.array([[0.03, 0.06, 0.06, 0.02], [1, 1, 1, 1]]))


def test_p_agrees_with_exact_permutations() -> None:
    """With six runs each, p is near the share of all 924 ways to deal the runs out that lie as far apart."""
    draw = np.random.default_rng(6)
    chosen = np.array(list(combinations(range(12), 6)))
    for shift in np.repeat([0.0, 0.05, 0.1, 0.15], 5):
        base, new = draw.normal(0, 0.1, 6), draw.normal(shift, 0.1, 6)
        runs = np.concatenate([new, base])
        dealt = runs[chosen].sum(axis=1)
        apart = np.abs(dealt - (runs.sum() - dealt))
        exact = float(np.mean(apart >= apart[0] - 1e-12))
        found = float(welch(base[np.newaxis], new[np.newaxis]).p_values()[0])
        assert found == pytest.approx(exact, abs=0.04)


TIMES_MS = st.lists(st.floats(1, 10_000), min_size=2, max_size=6)


@settings(max_examples=30)
@given(base=TIMES_MS, new=TIMES_MS, factor=st.floats(0.5, 2))
def test_exchanging_sides_or_units_keeps_p(base: list[float], new: list[float], factor: float) -> None:
    """Exchanged sets give the reciprocal ratio and the same p; times in another unit give the same ratio."""
    (one,) = compare([Sampled("READ", base, new)])
    (other,) = compare([Sampled("READ", new, base)])
    assert other.ratio == pytest.approx(1 / one.ratio)
    assert other.p == pytest.approx(one.p)
    assert (other.low, other.high) == (pytest.approx(1 / one.high), pytest.approx(1 / one.low))
    (scaled,) = compare([Sampled("READ", [each * factor for each in base], [each * factor for each in new])])
    assert scaled.ratio == pytest.approx(one.ratio)
    assert scaled.difference_ms == pytest.approx(one.difference_ms * factor, abs=1e-6)


def test_means_are_geometric() -> None:
    """So that their ratio is the ratio: 10 and 40 are 20, 40 and 90 are 60, three times as long."""
    (found,) = compare([Sampled("READ", [10, 40], [40, 90])])
    assert (found.base_ms, found.new_ms, found.difference_ms) == pytest.approx((20, 60, 40))
    assert found.ratio == pytest.approx(3)


@pytest.mark.parametrize(("base", "new"), [([10], [20]), ([10, 10, 10], [20]), ([10], [20, 20.1, 19.9])])
def test_a_single_run_has_no_p(base: list[float], new: list[float]) -> None:
    """On either side: means and ratio, and neither p nor interval."""
    sample = Sampled("Score", base, new)
    (found,) = compare([sample])
    assert found.ratio == pytest.approx(2, rel=0.01)
    assert (found.low, found.high, found.p, found.detectable, found.change) == (None, None, None, None, None)
    assert repeats_needed(sample, 0.05) is None


def test_runs_without_variation_differ_if_their_means_do() -> None:
    """Equal times are no difference; times that differ by far more than their rounding are one."""
    same, slower = compare([Sampled("READ", [10, 10, 10], [10, 10, 10]), Sampled("SEND", [10] * 3, [11] * 3)])
    assert (same.p, same.change, same.ratio) == (1.0, None, 1.0)
    assert slower.change == "slower"


def test_runs_with_large_variation_show_no_difference() -> None:
    """Two of each that vary by a factor of a million could not even show a hundredfold; no figure overflows."""
    samples = [
        Sampled(str(at), [first, 10_000], [0.001, 100_000]) for at, first in enumerate([0.001, 1, 30, 1_000] * 4)
    ]
    for found in compare(samples):
        assert found.detectable is None and found.low is not None and found.high is not None
        assert 0 < found.low < 1 < found.high < math.inf


def repeats(
    seed: int,
    runs: tuple[int, int],
    deviations: tuple[float, float],
    shared: float = 0.0,
    slower: Sequence[float] = (1.0,) * TASKS,
) -> tuple[Floats, Floats]:
    """The logarithms of times (ms) of both sets, each of shape (pairs, tasks, runs).

    Each task's time varies between runs by a lognormal factor, of whose variance `shared` is the run's own and falls on
    all of its tasks alike. Those of the second set take `slower` times as long.
    """
    draw = np.random.default_rng(seed)
    usual = np.log(np.linspace(5, 80, TASKS))[:, np.newaxis]
    sides = []
    for count, deviation, factor in zip(runs, deviations, (np.ones(TASKS), np.array(slower)), strict=True):
        own = draw.standard_normal((PAIRS, TASKS, count)) * math.sqrt(1 - shared)
        of_run = draw.standard_normal((PAIRS, 1, count)) * math.sqrt(shared)
        sides.append(usual + np.log(factor)[:, np.newaxis] + deviation * (own + of_run))
    return sides[0], sides[1]


def scores(logarithms: Floats) -> Floats:
    return np.asarray(np.log(np.einsum("t,ptr->pr", WEIGHTS, np.exp(logarithms)) / WEIGHTS.sum()))


RUNS = [(2, 2), (3, 3), (5, 5), (10, 10), (2, 3), (2, 10), (3, 10)]


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("deviations", [(0.1, 0.1), (0.03, 0.3), (0.3, 0.03)])
@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_false_alarms_are_at_most_as_frequent_as_stated(
    runs: tuple[int, int], deviations: tuple[float, float], shared: float
) -> None:
    """Of 2,000 pairs of sets of one and the same server, at most 5 % have a task that is called different.

    However many runs, however differently the sets vary, whether or not tasks suffer together; so with the score.
    """
    base, new = repeats(1, runs, deviations, shared)
    alarms = np.mean(np.any(holm(welch(base, new).p_values()) <= ALPHA, axis=-1))
    assert alarms <= ALPHA + within_three_sigma(ALPHA)
    if deviations[0] == deviations[1]:  # where tasks vary more, so does their sum, and is larger
        of_score = welch(scores(base), scores(new)).p_values() <= ALPHA
        assert np.mean(of_score) <= ALPHA + within_three_sigma(ALPHA)


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("deviation", [0.02, 0.1])
def test_at_the_limit_few_comparisons_pass_or_fail(runs: tuple[int, int], deviation: float) -> None:
    """A server whose score is worse by just what is allowed is passed in 2.5 % of 2,000 comparisons at most."""
    base, new = repeats(2, runs, (deviation, deviation), 0.5, slower=[1.05] * TASKS)
    low, high = welch(scores(base), scores(new)).interval(ALPHA)
    assert np.mean(high < 1.05) <= ALPHA / 2 + within_three_sigma(ALPHA / 2)
    assert np.mean(low > 1.05) <= ALPHA / 2 + within_three_sigma(ALPHA / 2)


@pytest.mark.parametrize("runs", [(3, 3), (5, 5), (10, 10), (4, 7)])
def test_a_slower_read_is_found_as_often_as_stated(runs: tuple[int, int]) -> None:
    """Where 1.10 is said to be detectable, a READ that takes 10 % longer is found in 80 % of 2,000 comparisons."""
    deviation = math.log(1.10) / deviations_needed(*runs, ALPHA / TASKS)
    base, new = repeats(3, runs, (deviation, deviation), slower=[1.10, *[1.0] * (TASKS - 1)])
    test = welch(base, new)
    found = (holm(test.p_values())[:, 0] <= ALPHA) & (test.difference[:, 0] > 0)
    assert np.mean(found) == pytest.approx(POWER, abs=within_three_sigma(POWER))


def test_the_detectable_ratio_is_right_in_the_median() -> None:
    """The ratio is told from the few runs there are: half of 2,000 comparisons tell more than the true one, half less.

    The median of a variance's estimate lies a little below the variance (4 % with eight degrees of freedom).
    """
    runs, deviation = (5, 5), 0.05
    true = math.exp(deviation * deviations_needed(*runs, ALPHA / TASKS))
    base, new = np.exp(repeats(4, runs, (deviation, deviation)))
    told = [
        compare([Sampled(str(task), base[pair, task], new[pair, task]) for task in range(TASKS)])[0].detectable
        for pair in range(200)
    ]
    assert np.median(np.array(told, dtype=float)) == pytest.approx(true, rel=0.03)


def test_the_comparison_uses_the_simulated_test() -> None:
    """`compare` gives each task's corrected p and interval as the simulations' arrays have them."""
    base, new = repeats(5, (4, 3), (0.1, 0.2), slower=[1.3] * TASKS)
    test = welch(base, new)
    low, high = test.interval(ALPHA)
    corrected = holm(test.p_values())
    for pair in range(20):
        samples = [Sampled(str(at), np.exp(base[pair, at]), np.exp(new[pair, at])) for at in range(TASKS)]
        for at, one in enumerate(compare(samples)):
            expected = corrected[pair, at], low[pair, at], high[pair, at]
            assert (one.p, one.low, one.high) == pytest.approx(expected)


def exactly(mean_ms: float, deviation: float, count: int) -> list[float]:
    """Times of which the geometric mean is just that, and the logarithms' standard deviation, too."""
    steps = np.arange(count) - (count - 1) / 2
    return [float(each) for each in mean_ms * np.exp(deviation * steps / steps.std(ddof=1))]


def repeats_that_decided(runs: int, pairs: int) -> list[bool]:
    """True for each undecided comparison that decides with as many more runs as are advised.

    The servers' ratio lies about the limit, with a standard deviation of twice that between runs.
    """
    draw = np.random.default_rng(6)
    deviation, limit = 0.04, 1.05
    count = (pairs, runs + MOST_REPEATS)
    base = math.log(100) + deviation * draw.standard_normal(count)
    ratios = math.log(limit) + 2 * deviation * draw.standard_normal((pairs, 1))
    new = math.log(100) + ratios + deviation * draw.standard_normal(count)

    def undecided(count: int, pairs: Any = slice(None)) -> NDArray[np.bool_]:
        low, high = welch(base[pairs, :count], new[pairs, :count]).interval(ALPHA)
        return np.asarray((low <= limit) & (high >= limit))

    decided = []
    for pair in np.flatnonzero(undecided(runs)):
        more = repeats_needed(Sampled("Score", np.exp(base[pair, :runs]), np.exp(new[pair, :runs])), limit - 1)
        if more is not None:
            decided.append(not undecided(runs + more, [pair])[0])
    return decided


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "pairs"), [(3, 250), (5, 400)])
def test_advised_repeats_decide_as_often_as_stated(runs: int, pairs: int) -> None:
    """Of 100 undecided comparisons or more, 80 % decide with as many more, give or take two standard errors of 4 %."""
    decided = repeats_that_decided(runs, pairs)
    assert len(decided) > 100
    assert np.mean(decided) == pytest.approx(POWER, abs=0.08)


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize(("runs", "pairs"), [(2, 2000), (3, 2000), (5, 4000)])
def test_many_advised_repeats_decide_as_often_as_stated(runs: int, pairs: int) -> None:
    """Of 1,000 undecided comparisons or more, give or take three standard errors of 1.3 %."""
    decided = repeats_that_decided(runs, pairs)
    assert len(decided) > 1000
    assert np.mean(decided) == pytest.approx(POWER, abs=0.04)


def test_no_repeats_are_advised_at_the_limit_itself() -> None:
    for ratio in (1.05, 1.0501):
        assert repeats_needed(Sampled("Score", exactly(100, 0.1, 4), exactly(100 * ratio, 0.1, 4)), 0.05) is None


def looked_at(shown: Callable[[Floats, Floats], NDArray[np.bool_]], slower: float = 1.0) -> float:
    """The share of pairs of which anything is shown when one looks after 3, 4, ... 10 runs of each."""
    base, new = repeats(8, (10, 10), (0.05, 0.05), 0.5, slower=[slower] * TASKS)
    found = np.zeros(PAIRS, np.bool_)
    for runs in range(3, 11):
        found |= shown(base[:, :, :runs], new[:, :, :runs])
    return float(found.mean())


def test_corrected_looks_keep_errors_rare() -> None:
    """Eight looks that were said beforehand: the score, any of ten tasks, and a wrong pass or failure at the limit."""
    looks = 8

    def some_task(base: Floats, new: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.any(holm(welch(base, new).p_values()) * looks <= ALPHA, axis=-1))

    def decided(base: Floats, new: Floats) -> NDArray[np.bool_]:
        low, high = welch(scores(base), scores(new)).interval(1 - level(looks))
        return np.asarray((high < 1.05) | (low > 1.05))

    most = ALPHA + within_three_sigma(ALPHA)
    assert looked_at(lambda base, new: welch(scores(base), scores(new)).p_values() * looks <= ALPHA) <= most
    assert looked_at(some_task) <= most
    assert looked_at(decided, slower=1.05) <= most


@settings(max_examples=30)
@given(base=TIMES_MS, new=TIMES_MS, looks=st.integers(1, 20))
@example(base=[1.0, 1.0], new=[1.0, 258.0], looks=20)  # an interval beyond the largest number
def test_looks_correct_p_interval_and_change_alike(base: list[float], new: list[float], looks: int) -> None:
    """p is as many times as large, the interval is wider, and a difference is one where the interval leaves out 1."""
    (one,), (corrected,) = compare([Sampled("READ", base, new)]), compare([Sampled("READ", base, new)], looks)
    assert one.p is not None and corrected.low is not None and corrected.high is not None
    assert corrected.p == pytest.approx(min(1.0, looks * one.p))
    assert corrected.low <= (one.low or 0) <= (one.high or 0) <= corrected.high
    if corrected.p is not None and abs(corrected.p - ALPHA) > 1e-6:
        assert (corrected.change is None) == (corrected.low <= 1 <= corrected.high)


@pytest.mark.parametrize(
    ("found", "runs", "p"),
    [
        ((0, 3), (3, 3), 1 / 2**6),
        ((3, 0), (3, 3), 1.0),
        ((0, 5), (5, 5), 1 / 2**10),
        ((0, 2), (2, 2), 1 / 2**4),
        ((0, 7), (7, 7), 0.00006),
        ((1, 3), (3, 3), 7 / 2**6),
    ],
)
def test_share_tests_agree_with_manual_calculation(found: tuple[int, int], runs: tuple[int, int], p: float) -> None:
    """As large a share of new is likeliest if half of all runs miss: then all outcomes are equal."""
    assert larger_share_p(found, runs) == pytest.approx(p, rel=0.02)


def test_an_infinite_figure_leaves_others_as_they_are() -> None:
    """Other figures keep their intervals; p is corrected for all."""
    finite = Sampled("a", [100, 101, 102], [120, 121, 122])
    (alone,) = compare([finite])
    with_infinite, infinite = compare([finite, Sampled("b", [100, 101, 102], [100, math.inf, math.inf])])
    assert (with_infinite.low, with_infinite.high) == (alone.low, alone.high)
    assert with_infinite.p == pytest.approx(2 * (alone.p or 0))
    assert (infinite.new_ms, infinite.ratio, infinite.low, infinite.p) == (math.inf, math.inf, None, None)


@pytest.mark.parametrize("score_ms", [2.95, 16.15, 3.85, 0.001, 123456.789])
def test_the_mean_of_a_single_run_is_its_own_figure(score_ms: float) -> None:
    """So that a comparison shows 3.0 where the answer of the run does; the error of logarithms would make it 2.9."""
    (found,) = compare([Sampled("score", [score_ms], [score_ms])])
    assert (found.base_ms, found.new_ms, found.ratio) == (score_ms, score_ms, 1.0)
