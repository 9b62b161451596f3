"""The utilisation law on simulated servers whose demands are known, and the refusals of its estimates."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queue_server import server

from loadsim.findings.catalogue import Code
from loadsim.model.terms import Window
from loadsim.size.utilisation import Estimate, NotKnown, block_means, block_rates, levels, ratio, users_at
from loadsim.statistics.intervals import BLOCKS

WINDOW = Window(60.0, 660.0)
SEEDS = 100


@pytest.mark.slow
@pytest.mark.parametrize(("users", "utilisation"), [(40, 0.08), (100, 0.2), (300, 0.6)])
def test_intervals_contain_the_true_number_of_users(users: int, utilisation: float) -> None:
    """A task takes 20 ms, a user does 0.1 per second: 500 users fill the server. In at least 90 of 100 runs."""
    covered, values = 0, []
    for seed in range(SEEDS):
        samples, _ = server(seed, users, 0.1, 0.02)
        try:
            found = users_at(users, ratio(block_means(samples, WINDOW), 1.0))
        except NotKnown:
            continue
        values.append(found.value)
        covered += found.low <= 500 <= found.high
    assert len(values) >= 95
    assert covered >= 0.9 * len(values)
    assert sum(values) / len(values) == pytest.approx(500, rel=0.03)
    assert users * 0.1 * 0.02 == pytest.approx(utilisation)


@pytest.mark.slow
def test_the_demand_of_a_task_is_found() -> None:
    """20 ms of processor for each task, in at least 90 of 100 runs; a task may end a second after its work began."""
    covered = 0
    for seed in range(SEEDS):
        samples, ends = server(seed, 200, 0.1, 0.02)
        found = ratio(block_means(samples, WINDOW), block_rates(np.array(ends), WINDOW))
        covered += found.low <= 0.02 <= found.high
    assert covered >= 90


@given(
    users=st.integers(1, 100_000),
    demand=st.floats(1e-4, 0.1),
    rates=st.lists(st.floats(0.5, 2.0), min_size=BLOCKS, max_size=BLOCKS),
    factor=st.floats(1.1, 1000.0),
)
def test_the_law_is_linear(users: int, demand: float, rates: list[float], factor: float) -> None:
    """With a known demand, as many users as were predicted fill the resource, however the load varied meanwhile."""
    used = np.array(rates) * demand
    capacity = float(used.mean()) * factor
    value = float(used.mean()) / capacity
    found = users_at_or_none(users, Estimate(value, value, value))
    if value < 0.05:
        assert found is None
        return
    assert found is not None
    assert found.value * demand * float(np.mean(rates)) / users == pytest.approx(capacity)


def users_at_or_none(users: int, utilisation: Estimate) -> Estimate | None:
    try:
        return users_at(users, utilisation)
    except NotKnown:
        return None


@given(st.lists(st.floats(0.01, 10.0), min_size=BLOCKS, max_size=BLOCKS), st.floats(0.01, 10.0))
def test_a_constant_ratio_has_an_interval_of_no_width(wholes: list[float], share: float) -> None:
    """Use in proportion to the tasks is known exactly, even if the tasks vary."""
    found = ratio_or_none(np.array(wholes) * share, np.array(wholes))
    if found is not None:
        assert (found.low, found.value, found.high) == pytest.approx((share, share, share), rel=1e-6)


def ratio_or_none(parts: np.ndarray, wholes: np.ndarray) -> Estimate | None:  # type: ignore[type-arg]
    try:
        return ratio(parts, wholes)
    except NotKnown:
        return None


def test_samples_are_weighted_by_time() -> None:
    """Read after 3 s and after 1 s in turn, 0.8 and 0.0 have the mean 0.6, not 0.4."""
    samples, at_s = [], 0.0
    while at_s < 700:
        samples += [(at_s + 3, 0.8), (at_s + 4, 0.0)]
        at_s += 4
    assert block_means(samples, WINDOW).mean() == pytest.approx(0.6, abs=0.01)
    assert ratio(block_means(samples, WINDOW), 1.0).value == pytest.approx(0.6, abs=0.01)


def test_samples_are_not_interpolated_over_a_gap() -> None:
    samples = [(float(second), 0.5) for second in range(700) if not 200 <= second < 240]
    with pytest.raises(NotKnown, match=r"^no samples for 41 s "):
        block_means(samples, WINDOW)


def test_few_samples_are_refused() -> None:
    with pytest.raises(NotKnown, match=r"^8 samples in the window, at least 3 "):
        block_means([(float(second), 0.5) for second in range(1, 20)], Window(2.0, 10.0))


def test_samples_of_one_instant_are_refused() -> None:
    """They stand for no time, though no gap is too long."""
    others = [(3.0 + at / 4, 0.5) for at in range(36)]
    with pytest.raises(NotKnown):
        block_means([*[(2.0, 0.5)] * 4, *others], Window(2.0, 12.0))


@given(used=st.floats(2, 6), left=st.floats(5, 16))
def test_equal_levels_are_their_interval(used: float, left: float) -> None:
    """In spite of rounding: a prediction outside of its interval would make capacity.json unreadable."""
    found = users_at(100, levels(np.full(BLOCKS, used), np.full(BLOCKS, used + left)))
    assert found.low <= found.value <= found.high


def test_a_rising_figure_is_refused() -> None:
    """A server that warms up, or fills: its mean says nothing about later."""
    with pytest.raises(NotKnown, match="drifts"):
        ratio(np.linspace(0.2, 0.5, BLOCKS), 1.0)
    found = levels(np.linspace(0.2, 0.5, BLOCKS), 1.0)
    assert (found.low, found.value, found.high) == pytest.approx((0.2, 0.35, 0.5))


def test_a_hardly_used_resource_is_refused() -> None:
    with pytest.raises(NotKnown, match=r"^4\.9 % used: at least 5 % needed"):
        users_at(100, Estimate(0.049, 0.048, 0.050))
    assert users_at(100, Estimate(0.05, 0.049, 0.051)).value == pytest.approx(2000)


@pytest.mark.parametrize(("low", "high"), [(0.09, 1111.1), (-0.1, math.inf)])
def test_a_wide_interval_is_refused(low: float, high: float) -> None:
    with pytest.raises(NotKnown) as refused:
        users_at(100, Estimate(0.19, low, 0.291))
    found = refused.value.of("processor")
    assert (found.code, found.values["high"]) == (Code.WIDE_INTERVAL, pytest.approx(high, rel=1e-3))


def test_estimates_without_activity_are_refused() -> None:
    for estimate in (ratio, levels):
        with pytest.raises(NotKnown, match="nothing to divide by"):
            estimate(np.ones(BLOCKS), 0.0)


def test_events_are_counted_in_their_block() -> None:
    """Two in the first block, one in the last; those at the end and before the begin are outside."""
    instants = np.array([0, 59_999_999, 60_000_000, 119_999_999, 659_999_999, 660_000_000])
    rates = block_rates(instants, WINDOW)
    assert rates.tolist() == pytest.approx([2 / 60, *[0.0] * 8, 1 / 60])
    assert not math.isnan(float(block_rates(np.zeros(0, np.int64), WINDOW).mean()))
