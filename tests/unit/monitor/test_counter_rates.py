"""Rates of counters: exact between two samples, and none where they cannot be known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.monitor.counter_rates import RisingCounters

STEPS = st.lists(
    st.tuples(st.integers(0, 10**12), st.booleans(), st.floats(0.001, 100, allow_nan=False)), min_size=1, max_size=20
)
"""Events, if the server then starts again, and seconds until the next sample."""


@given(STEPS)
def test_no_rate_spans_a_restart(steps: list[tuple[int, bool, float]]) -> None:
    """With the start as era, the rates are those of the events without a restart between two samples."""
    counters, total, at_s, start = RisingCounters(), 0, 0.0, 0
    assert counters.rates({"a": total}, at_s, start) == {}
    for events, restarts, wait_s in steps:
        total, start = (events, start + 1) if restarts else (total + events, start)
        at_s += wait_s
        rates = counters.rates({"a": total}, at_s, start)
        assert rates == ({} if restarts else {"a": pytest.approx(events / wait_s)})


def test_one_decreased_counter_means_that_all_were_reset() -> None:
    """The other one has grown beyond its old value since then. The sample after it has rates again."""
    counters = RisingCounters()
    counters.rates({"a": 5, "b": 5}, 1)
    assert counters.rates({"a": 4, "b": 900}, 2) == {}
    assert counters.rates({"a": 6, "b": 902}, 4) == {"a": 1, "b": 1}


def test_a_missing_counter_is_a_reset_and_a_new_one_has_no_rate() -> None:
    """Neither is 0."""
    counters = RisingCounters()
    counters.rates({"a": 5}, 1)
    assert counters.rates({"a": 5, "b": 7}, 2) == {"a": 0}
    assert counters.rates({"a": 5}, 3) == {}


def test_samples_of_one_instant_have_no_rate() -> None:
    counters = RisingCounters()
    counters.rates({"a": 5}, 1)
    assert counters.rates({"a": 6}, 1) == {}
