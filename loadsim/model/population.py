"""Who there is: each user's group, and the distribution lists, as functions of the user's number.

Users are numbered from 1. Nothing here is a table of users, so a million of them need no memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache

from loadsim.errors import ConfigError
from loadsim.model.draws import draw
from loadsim.model.scenario import Group, Lists, Scenario

CORRESPONDENTS = 65_536
"""How many addresses are kept at hand."""

_GOLDEN = 0.6180339887498949
"""The golden ratio's fraction: its multiples, without their whole parts, fill [0, 1) evenly however many they are."""


def group_index(user: int, sizes: Sequence[int]) -> int:
    """Which group user `user` (from 1) belongs to, when groups of these sizes are spread evenly over the numbers.

    The first group's members are laid out by Bresenham's rule over all numbers, the next group's over what
    remains, and so on. Any run of consecutive users holds the first group in proportion to within one user, the
    second to within two, and so on: a layer's own rounding is less than one, and it shares out that of those before.
    """
    place, left = user - 1, sum(sizes)
    if not 0 <= place < left:
        raise ValueError(f"user {user} of {left}")
    for index, size in enumerate(sizes[:-1]):
        before, after = place * size // left, (place + 1) * size // left
        if after > before:
            return index
        place -= after
        left -= size
    return len(sizes) - 1


def list_edges(rule: Lists, population: int, active: int) -> list[int]:
    """Where the lists end: list k (from 0) has the users edges[k] + 1 ... edges[k + 1].

    The sizes step through their distribution evenly, from a start that the lists' own seed gives: so even a few
    lists are of the average size. What is left at the end and too small for a list joins the last one, or is
    filled up from it where that would grow too big: no list is smaller than the minimum, and "cover 100%" covers
    everybody, whenever lists of the stated sizes can. Lists that go beyond the active users are left out.
    """
    end = population if rule.cover is None else round(population * rule.cover)
    first = draw(rule.seed, 0, "list.size", 0)
    edges = [0]
    while edges[-1] < end and (rule.count is None or len(edges) <= rule.count):
        size = rule.size.at((first + (len(edges) - 1) * _GOLDEN) % 1.0)
        left = end - edges[-1] - size
        if 0 < left < rule.size.min:
            size += left if size + left <= rule.size.max else left - rule.size.min
        edge = min(edges[-1] + size, end)
        if edge > active:
            break
        edges.append(edge)
    return edges


class DistributionLists:
    """The lists of a scenario: runs of consecutive user numbers over a stated population.

    Their sizes come from a seed of their own, so they are the same however many of the population's users are
    active; only lists that lie wholly inside the active users exist for a run.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Raises `ConfigError` when an account has the address of a list."""
        self._domain = scenario.domain
        self._edges = list_edges(scenario.lists, scenario.lists.population or scenario.users, scenario.users)
        for index in range(len(self)):
            if scenario.accounts.number(self.address(index), scenario.domain) is not None:
                raise ConfigError(
                    f"{scenario.name}: accounts: expected addresses that no list has, found {self.address(index)}"
                )

    def __len__(self) -> int:
        return len(self._edges) - 1

    def members(self, index: int) -> range:
        """The user numbers on list `index` (from 0)."""
        return range(self._edges[index] + 1, self._edges[index + 1] + 1)

    def of(self, user: int) -> int | None:
        """The list that a user is on, or None."""
        index = bisect_right(self._edges, user - 1) - 1
        return index if index < len(self) else None

    def address(self, index: int) -> str:
        """The address of list `index` (from 0)."""
        return f"list-{index + 1:05d}@{self._domain}"


class Population:
    """The users and lists of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        """Raises `ConfigError` when an account has the address of a list."""
        self.scenario = scenario
        self.lists = DistributionLists(scenario)
        self._sizes = [group.users for group in scenario.topology]
        self._users = scenario.users
        # Addresses are functions of numbers, and the other way round; a user's correspondents come again and again.
        self.address = lru_cache(CORRESPONDENTS)(self._address)
        self.number = lru_cache(CORRESPONDENTS)(self._number)

    def __len__(self) -> int:
        return self._users

    def group(self, user: int) -> Group:
        """The group (profile and protocol) of a user."""
        return self.scenario.topology[group_index(user, self._sizes)]

    def _address(self, user: int) -> str:
        """The mail address of a user."""
        return self.scenario.account(user).address

    def _number(self, address: str) -> int | None:
        """Which active user has this address; None when it is a list's or a stranger's."""
        user = self.scenario.accounts.number(address, self.scenario.domain)
        return user if user is not None and 1 <= user <= len(self) else None


def distribution_lists(scenario: Scenario) -> Mapping[str, tuple[str, ...]]:
    """Every list that a run addresses: its address, and its members' addresses."""
    lists = DistributionLists(scenario)
    return {
        lists.address(index): tuple(scenario.account(user).address for user in lists.members(index))
        for index in range(len(lists))
    }
