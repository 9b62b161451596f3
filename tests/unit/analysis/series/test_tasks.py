"""Percentiles of numbers by group: exact for any numbers, in any number of parts."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.analysis.series.tasks import Grouped

PERCENTS = (1, 5, 50, 95, 100)

NUMBERS = st.lists(
    st.tuples(
        st.integers(-1, 3),
        st.one_of(st.integers(-5, 5), st.integers(-(2**40), 2**40), st.sampled_from([511, 512, 2**18, 2**27 - 1])),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(numbers=NUMBERS, size=st.integers(1, 70), infinite=st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_percentiles_are_nearest_ranks(numbers: list[tuple[int, int]], size: int, infinite: list[int]) -> None:
    """The definition, counted out in whole numbers; nothing of a group without numbers."""
    groups, values = np.array(numbers, np.int64).reshape(-1, 2).T
    grouped = Grouped()
    for begin in range(0, len(values) + 1, size):  # the last part may be empty
        grouped.add(groups[begin : begin + size], values[begin : begin + size])
    found = grouped.percentiles(5, PERCENTS, np.array(infinite))
    for group in range(5):
        own = sorted(value for of_group, value in numbers if of_group == group) + [math.inf] * infinite[group]
        for percent, one in zip(PERCENTS, found, strict=True):
            if own:
                needed = percent * len(own)
                assert one[group] == next(value for value in own if sum(each <= value for each in own) * 100 >= needed)
            else:
                assert math.isnan(one[group])


def test_percentiles_of_100000_times_are_numpys() -> None:
    """Of a spread as times have it."""
    random = np.random.default_rng(3)
    values = (10_000 * random.lognormal(0, 2, 100_000)).astype(np.uint32)
    groups = random.integers(0, 7, len(values))
    grouped = Grouped()
    for at in range(0, len(values), 10_000):
        grouped.add(groups[at : at + 10_000], values[at : at + 10_000])
    expected = [np.percentile(values[groups == group], (50, 95, 100), method="inverted_cdf") for group in range(7)]
    assert np.transpose(grouped.percentiles(7, (50, 95, 100))).tolist() == np.array(expected).tolist()
