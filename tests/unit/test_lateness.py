"""The 95th percentiles of how late tasks began: numpy's, although only the largest numbers are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.analysis import lateness
from loadsim.analysis.lateness import Largest

NUMBERS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1.0])


@settings(deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(st.integers(0, 3), NUMBERS), max_size=60), max_size=6),
    more=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    spare=st.integers(0, 20),
)
def test_the_largest_numbers_tell_the_percentile(
    parts: list[list[tuple[int, float]]], more: list[int], spare: int
) -> None:
    """Nearest rank by numpy, group by group, whether a group came to as many numbers as it may have or to fewer."""
    every = [one for part in parts for one in part]
    numbers = [np.array([number for group, number in every if group == wanted], np.float32) for wanted in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lateness, "_SPARE", spare)
        largest = Largest(np.array([len(of_group) + left for of_group, left in zip(numbers, more, strict=True)]))
        for part in parts:
            groups, of_part = zip(*part, strict=True) if part else ((), ())
            largest.add(np.array(groups, np.int64), np.array(of_part, np.float32))
        found = largest.percentiles()
    for of_group, percentile in zip(numbers, found.tolist(), strict=True):
        if len(of_group):
            assert percentile == np.percentile(of_group, 95, method="inverted_cdf")
        else:
            assert np.isnan(percentile)


def test_what_is_not_needed_is_let_go() -> None:
    """Of a million numbers that come in parts, hardly more than a tenth are in memory at any time."""
    numbers = np.random.default_rng(1).random(1_000_000, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lateness, "_SPARE", 20_000)
        largest = Largest(np.array([len(numbers)]))
        for part in np.split(numbers, 1000):
            largest.add(np.zeros(len(part), np.int64), part)
            assert len(largest._kept) + largest._added_count <= 2 * 50_001 + 20_000 + len(part)
        assert largest.percentiles().tolist() == [np.percentile(numbers, 95, method="inverted_cdf")]
