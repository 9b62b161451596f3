"""The population: interleaved profiles, lists of consecutive users, and numbers as the inverse of addresses."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.errors import ConfigError
from loadsim.scenario.accounts import AccountPattern
from loadsim.scenario.distribution import Distribution
from loadsim.scenario.population import DistributionLists, Population, distribution_lists, group_index, list_edges
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.sections import ListsSection

PUBLISHED = Distribution(4, 10, 50)
"""Compaq 1997, Table 1: minimum, average and maximum size of a distribution list."""


def scenario(*overrides: str, users: tuple[int, int, int] = (10, 20, 10)) -> Scenario:
    """Light, Medium and Heavy users of LoadSim 5.0, whose lists cover 100% of the users."""
    groups = ", ".join(
        f"{{profile: loadsim-5.0/{name}, users: {count}}}"
        for name, count in zip(("light", "medium", "heavy"), users, strict=True)
        if count
    )
    return load_scenario("quickstart", [f"topology=[{groups}]", "run={day_length: 8h}", *overrides])


def lists_of(rule: ListsSection, population: int, active: int) -> list[range]:
    return [range(low + 1, high + 1) for low, high in pairwise(list_edges(rule, population, active))]


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.data())
@settings(deadline=None, max_examples=150)
def test_groups_are_spread_evenly(sizes: list[int], data: st.DataObject) -> None:
    """Every group has exactly its users; in any run of consecutive users the k-th group is within k of its share."""
    users = sum(sizes)
    groups = [group_index(user, sizes) for user in range(1, users + 1)]
    assert Counter(groups) == dict(enumerate(sizes))
    first = data.draw(st.integers(0, users - 1))
    end = data.draw(st.integers(first + 1, users))
    found = Counter(groups[first:end])
    for index, size in enumerate(sizes):
        assert abs(found[index] - (end - first) * size / users) < index + 1


@pytest.mark.parametrize("user", [0, -1, 7])
def test_a_user_outside_the_groups_is_rejected(user: int) -> None:
    with pytest.raises(ValueError, match=f"user {user} of 6"):
        group_index(user, [1, 2, 3])


@given(
    st.integers(1, 12),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(1, 300),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.3, 0.95, 1.0]),
)
@settings(deadline=None, max_examples=200)
def test_lists_are_consecutive_and_cover_their_share(
    least: int, more: int, most: int, population: int, seed: int, cover: float
) -> None:
    """One list begins where the last ended, from user 1 to the covered share of the population, none empty."""
    rule = ListsSection(None, cover, Distribution(least, least + more, least + more + most), seed=seed)
    lists = lists_of(rule, population, population)
    assert [user for each in lists for user in each] == list(range(1, round(population * cover) + 1))
    assert all(len(each) >= 1 for each in lists)
    assert all(len(each) <= rule.size.max for each in lists)


@given(st.integers(1, 500), st.integers(0, 50))
@settings(deadline=None, max_examples=200)
def test_no_list_is_smaller_than_the_published_minimum(population: int, seed: int) -> None:
    """Sizes from 4 to 50 down to the last list, which takes what is left; only fewer than 4 users are a smaller one."""
    sizes = [len(each) for each in lists_of(ListsSection(None, 1.0, PUBLISHED, seed=seed), population, population)]
    assert sum(sizes) == population
    assert all(4 <= size <= 50 for size in sizes) if population >= 4 else sizes == [population]


@given(st.integers(4, 400), st.integers(0, 20), st.integers(1, 400))
@settings(deadline=None, max_examples=150)
def test_lists_stay_the_same_when_fewer_users_are_active(population: int, seed: int, active: int) -> None:
    """Of a stated population's lists those remain, unchanged, that lie wholly inside the active users."""
    rule = ListsSection(None, 1.0, PUBLISHED, seed=seed)
    everybody = lists_of(rule, population, population)
    assert lists_of(rule, population, min(active, population)) == [each for each in everybody if each[-1] <= active]


def test_list_sizes_follow_their_distribution() -> None:
    """Of 5,000 sizes the share of each lies within 0.5% of a geometric distribution's: equal ratios, to the maximum."""
    sizes = Counter(len(each) for each in lists_of(ListsSection(5_000, None, PUBLISHED), 10**6, 10**6))
    # The mean of 10 fixes the ratio r of successive chances: sum of k r**k / sum of r**k over k = 0..46 is 6.
    low, high = 0.5, 0.999
    for _ in range(60):
        ratio = (low + high) / 2
        powers = [ratio**k for k in range(47)]
        mean = sum(k * power for k, power in enumerate(powers)) / sum(powers)
        low, high = (ratio, high) if mean < 6 else (low, ratio)
    for k, power in enumerate(powers):
        assert sizes[4 + k] / 5_000 == pytest.approx(power / sum(powers), abs=0.005)


def test_a_scenario_has_its_lists() -> None:
    """Addresses and members as a server's tables get them; each user is on one list."""
    plan = scenario(users=(10, 20, 10))
    lists, exported = DistributionLists(plan), distribution_lists(plan)
    assert next(iter(exported)) == f"list-1-{lists.members(0)[-1]}@loadsim.test"
    assert [address for members in exported.values() for address in members] == [
        f"user{user:05d}@loadsim.test" for user in range(1, 41)
    ]
    assert [user for index in range(len(lists)) for user in lists.members(index)] == [*range(1, 41)]


@given(st.lists(st.tuples(st.integers(2, 60), st.integers(2, 60), st.integers(0, 3)), min_size=2, max_size=2))
@settings(deadline=None, max_examples=100)
def test_a_list_of_one_address_has_the_same_members(plans: list[tuple[int, int, int]]) -> None:
    """In scenarios of any number of users, population and seed: a server has all members of a list, or not the list."""
    first, second = (
        distribution_lists(
            scenario(
                f"lists={{size: {{min: 2, average: 4, max: 9}}, population: {max(more, users)}, seed: {seed}}}",
                users=(users, 0, 0),
            )
        )
        for users, more, seed in plans
    )
    assert all(first[address] == second[address] for address in first.keys() & second.keys())


def test_an_account_may_not_have_the_address_of_a_list() -> None:
    """Mail to the one would reach the other: refused in one line."""
    clash = scenario('accounts={user: "list-1-{index}", password: x}')
    with pytest.raises(
        ConfigError, match=r"accounts: expected addresses that no list has, found list-1-\d+@"
    ) as caught:
        DistributionLists(clash)
    assert "\n" not in str(caught.value)


@given(
    st.from_regex(r"[a-z][a-z0-9.+-]{0,5}", fullmatch=True).filter(lambda text: ".." not in text),
    st.sampled_from(["{index}", "{index:5}", "{index:05d}", "{index:03}"]),
    st.sampled_from(["", "x", "1", "0", "-a", "@loadsim.test"]),
    st.integers(1, 10**7),
    st.integers(1, 10**7),
)
@settings(deadline=None, max_examples=200)
def test_the_number_of_an_address_is_its_users(prefix: str, field: str, suffix: str, user: int, other: int) -> None:
    """With any pattern, an address leads back to its user, in capitals too, and never to another."""
    pattern = AccountPattern(f"{prefix}{field}{suffix}", "secret")
    address = pattern.account(user, "loadsim.test").address
    assert pattern.number(address, "loadsim.test") == user
    assert pattern.number(address.upper(), "loadsim.test") == user
    if user != other:
        assert pattern.number(pattern.account(other, "loadsim.test").address, "loadsim.test") == other


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=40, max_size=40, unique=True))
@settings(deadline=None, max_examples=10)
def test_the_number_of_an_address_in_a_table_is_its_users(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    path: Path = tmp_path_factory.mktemp("accounts") / "accounts.csv"
    rows = [f"{name},pw,{name if at % 2 else 'mail.' + name}@loadsim.test" for at, name in enumerate(names)]
    path.write_text("\n".join(["user,password,address", *rows]) + "\n")
    population = Population(scenario(f"accounts={{csv: {path}}}"))
    for user in range(1, 41):
        assert population.number(population.address(user)) == user
