"""Percentiles that are found by counting: exact, by group, whatever the numbers are and in however many parts."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loadsim.analysis.exact_percentiles import Pass, selected
from loadsim.errors import LogError

PERCENTS = (0, 5, Fraction(50), 95, Fraction(999, 10), 100)

NUMBERS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.one_of(st.integers(-5, 5), st.integers(-(2**40), 2**40), st.sampled_from([511, 512, 2**18, 2**27 - 1])),
    ),
    max_size=60,
)


def in_parts(groups: NDArray[Any], values: NDArray[Any], size: int) -> Pass:
    """The numbers in parts of this size, some of which may be empty."""
    for begin in range(0, len(values) + 1, size):
        yield groups[begin : begin + size], values[begin : begin + size]


@settings(deadline=None)
@given(numbers=NUMBERS, size=st.integers(1, 70), narrow=st.booleans())
def test_each_is_the_smallest_that_so_many_do_not_exceed(
    numbers: list[tuple[int, int]], size: int, narrow: bool
) -> None:
    """The definition, counted out in whole numbers; nothing of a group without numbers; groups in a byte, too."""
    groups, values = np.array(numbers, np.int64).reshape(-1, 2).T
    groups = groups.astype(np.uint8) if narrow else groups
    wanted = [(group, percent) for group in range(5) for percent in PERCENTS]
    found = selected(lambda: in_parts(groups, values, size), 5, wanted)
    for (group, percent), one in zip(wanted, found.tolist(), strict=True):
        own = sorted(value for of_group, value in numbers if of_group == group)
        if own:
            expected = next(value for value in own if sum(each <= value for each in own) * 100 >= percent * len(own))
            assert one == expected, (group, percent)
        else:
            assert math.isnan(one)


def test_it_is_numpys_for_a_million_times() -> None:
    """Of a spread as times have it, in parts that come in another order each time."""
    random = np.random.default_rng(3)
    values = (10_000 * random.lognormal(0, 2, 1_000_000)).astype(np.uint32)
    groups = random.integers(0, 7, len(values))
    orders = iter([range(0, 1_000_000, 100_000), *[range(900_000, -1, -100_000)] * 9])

    def passes() -> Pass:
        return ((groups[at : at + 100_000], values[at : at + 100_000]) for at in next(orders))

    found = selected(passes, 7, [(group, percent) for group in range(7) for percent in (50, 95, 100)])
    expected = [np.percentile(values[groups == group], (50, 95, 100), method="inverted_cdf") for group in range(7)]
    assert found.tolist() == np.concatenate(expected).tolist()


def test_no_numbers_have_no_percentiles() -> None:
    """Nor do no groups."""
    assert np.isnan(selected(list, 2, [(0, 50), (1, 95)])).all()
    assert selected(list, 0, []).tolist() == []


def test_what_no_run_can_have_taken_is_refused() -> None:
    """Numbers that do not fit into one with their group are told, not computed wrongly."""
    parts = [(np.array([0, 1]), np.array([-(2**62), 2**62]))]
    with pytest.raises(LogError, match="times: expected some that a run can have, found -4611686018427387904 us and"):
        selected(lambda: parts, 2, [(0, 50)])
