"""The spread between runs: the interval by hand, its coverage, and several runs in one answer."""

import math

import numpy as np
import pytest

from loadsim.statistics.repeats import spread


def test_the_spread_of_three_runs_agrees_with_manual_calculation() -> None:
    """Geometric mean 20, deviation 0.6931 of the logarithms, and 4.3027 * 0.6931 / sqrt(3) = 1.7219 to either side."""
    found = spread([10, 20, 40])
    assert found.mean == pytest.approx(20)
    assert found.low == pytest.approx(20 / 5.5950, abs=1e-3)
    assert found.high == pytest.approx(20 * 5.5950, abs=1e-2)


def test_no_interval_reaches_below_zero() -> None:
    """Two runs that differ by a factor of 100, and one that took no time."""
    for figures in ([1, 100], [0, 5000]):
        found = spread(figures)
        assert found.low is not None and found.high is not None
        assert 0 < found.low < found.mean < found.high < math.inf


def test_one_run_has_no_spread() -> None:
    """A figure, and nothing that it could be held against."""
    found = spread([7.5])
    assert (found.mean, found.low, found.high) == (7.5, None, None)


def test_intervals_of_repeats_cover_the_mean_as_often_as_stated() -> None:
    """2,000 times four runs, log-normal: 95 % of them, but for four standard deviations."""
    runs = 50 * np.exp(np.random.default_rng(21).normal(0, 0.1, (2000, 4)))
    found = [spread(figures.tolist()) for figures in runs]
    covered = sum(one.low is not None and one.high is not None and one.low <= 50 <= one.high for one in found)
    assert abs(covered - 1900) < 4 * math.sqrt(2000 * 0.95 * 0.05)
