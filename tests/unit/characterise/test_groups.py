"""The number of groups follows the rule: one for one kind of user, several for kinds that are far apart."""

import random
from bisect import bisect_right

import pytest

from loadsim.characterise.groups import boundaries


def poisson(numbers: random.Random, mean: float) -> int:
    count, left = 0, numbers.expovariate(1.0)
    while left < mean:
        count, left = count + 1, left + numbers.expovariate(1.0)
    return count


def drawn(seed: int, *kinds: tuple[int, float, float]) -> list[int]:
    """Counts of users: for each kind, their number, mean, and the standard deviation of the mean's logarithm."""
    numbers = random.Random(seed)
    return [
        poisson(numbers, mean * numbers.lognormvariate(0, spread))
        for users, mean, spread in kinds
        for _ in range(users)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8])
def test_one_kind_is_one_group(seed: int, spread: float) -> None:
    assert boundaries(drawn(seed, (300, 60, spread)), days=1) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("days", [1.0, 20.0])
def test_three_kinds_are_three_groups(seed: int, days: float) -> None:
    counts = drawn(seed, (200, 20, 0.15), (300, 80, 0.15), (100, 320, 0.15))
    edges = boundaries(counts, days)
    assert len(edges) == 2
    found = [bisect_right(edges, count) for count in counts]
    true = [0] * 200 + [1] * 300 + [2] * 100
    wrong = sum(group != kind for group, kind in zip(found, true, strict=True))
    assert wrong <= 12  # 2 %: the kinds overlap a little


def test_too_few_users_or_too_near_rates_have_no_profile_of_their_own() -> None:
    assert boundaries(drawn(1, (300, 60, 0.1), (6, 2000, 0.1)), days=1) == []
    assert boundaries(drawn(1, (300, 60, 0.02), (300, 100, 0.02)), days=1) == []


@pytest.mark.parametrize("counts", [[5], [0, 0, 0], [7] * 500, list(range(8))])
def test_little_or_equal_counts_are_one_group(counts: list[int]) -> None:
    assert boundaries(counts, days=2.5) == []
