"""Addressed randomness: what its address says, and the same on every machine."""

import math
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.model.draws import draw, exponential, gap_s, pick, weighted

UNIFORM = st.integers(0, 2**53 - 1).map(lambda bits: bits / 2**53)
"""The values that `draw` can return."""


@given(st.integers(0), st.integers(0), st.text(max_size=20), st.integers(0) | st.text(max_size=20))
@settings(deadline=None, max_examples=50)
def test_a_draw_is_the_hash_of_any_address(seed: int, user: int, stream: str, index: int | str) -> None:
    digest = blake2b("/".join([str(seed), str(user), stream, str(index)]).encode(), digest_size=8).digest()
    number = draw(seed, user, stream, index)
    assert number == (int.from_bytes(digest, "big") // 2**11) / 2**53
    assert 0 <= number < 1


@given(UNIFORM, st.integers(1, 10**7))
@settings(deadline=None, max_examples=200)
def test_pick_scales_the_draw_to_the_count(u: float, count: int) -> None:
    assert 0 <= pick(u, count) < count
    assert pick(u, count) <= u * count < pick(u, count) + 1


def test_pick_takes_the_largest_number() -> None:
    for count in (*range(1, 1000), 10**6, 10**6 + 1, 2**31 - 1, 2**40 + 1):
        assert pick(1 - 2**-53, count) == count - 1


@given(UNIFORM, st.lists(st.integers(0, 100), min_size=1, max_size=8).filter(any))
@settings(deadline=None, max_examples=200)
def test_weighted_selects_the_row_of_the_cumulative_weight(u: float, weights: list[int]) -> None:
    """The chances before the row lie at or below the number, those up to it above; a row of weight 0 never comes."""
    cumulative = [float(sum(weights[: at + 1])) for at in range(len(weights))]
    row = weighted(u, cumulative)
    assert weights[row] > 0
    assert sum(weights[:row]) <= u * sum(weights) < sum(weights[: row + 1])


def test_exponential_gaps_are_logarithms_of_draws() -> None:
    """Within two units of the last place of the C library's -ln(1 - u), over the whole range."""
    numbers = [draw(1, 1, "x", index) for index in range(2_000)]
    numbers += [2.0**-power for power in range(1, 54)] + [1 - 2.0**-power for power in range(1, 54)]
    for u in numbers:
        assert exponential(u) == pytest.approx(-math.log1p(-u), rel=4 * 2.0**-53, abs=0)
    assert exponential(0.0) == 0.0


def test_the_rate_only_scales_the_gaps() -> None:
    """Twice the rate: the same gaps, halved; none is zero, so that due times rise."""
    slow = [gap_s(1.0, 3, 4, "browse", index) for index in range(1_000)]
    fast = [gap_s(2.0, 3, 4, "browse", index) for index in range(1_000)]
    assert [gap / 2 for gap in slow] == fast
    assert min(fast) > 0
