"""A scenario's population: users' groups and distribution lists, as functions of the user's number.

Users are numbered from 1. There is no table of users, so even a million take up no memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from loadsim.errors import ConfigError
from loadsim.model.draws import draw
from loadsim.model.terms import CALDAV, OVER_HTTP
from loadsim.scenario.document import EMBEDDED

if TYPE_CHECKING:
    from loadsim.scenario.groups import Group
    from loadsim.scenario.scenario import Scenario
    from loadsim.scenario.sections import ListsSection

CORRESPONDENTS = 65_536
"""The size of the cache of addresses."""

_GOLDEN = 0.6180339887498949
"""The golden ratio's fractional part. The fractional parts of its multiples fill [0, 1) evenly, however many there are.
"""


def group_index(user: int, sizes: Sequence[int]) -> int:
    """Return the group of user `user` (from 1), if groups of these sizes are spread evenly over the users.

    Bresenham's rule spreads the first group over all numbers, the next over the remaining numbers, and so on. Among any
    consecutive users, the first group has its proportion to within one user, the second to within two, and so on: each
    group's rounding, of less than one user, adds to the previous groups'.
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


def list_edges(rule: ListsSection, population: int, active: int) -> list[int]:
    """Return the edges of the lists: list k (from 0) has the users edges[k] + 1 ... edges[k + 1].

    The sizes step evenly through their distribution, starting where the lists' seed determines, so even a few lists
    have about the average size. If too few users remain for a list, they join the last one; if that would exceed the
    maximum, the last list gives up users to one of minimum size. So no list is smaller than the minimum, and "cover
    100%" covers all users if lists of these sizes can. Lists beyond the active users are left out.
    """
    end = population if rule.cover is None else round(population * rule.cover)
    assert rule.size is not None, "a scenario that is read has it from its profiles"
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
    """A scenario's lists: ranges of consecutive users from a stated population.

    Their sizes come from a separate seed, so they do not depend on the number of active users. A run has only those
    lists whose members are all active.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Raises `ConfigError` if an account has the same address as a list."""
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
        """Return the users on list `index` (from 0)."""
        return range(self._edges[index] + 1, self._edges[index + 1] + 1)

    def address(self, index: int) -> str:
        """Return the address of list `index` (from 0). It names the members: a server with other lists rejects it."""
        members = self.members(index)
        return f"list-{members[0]}-{members[-1]}@{self._domain}"


class Population:
    """The users and lists of one scenario; the constructor raises as `DistributionLists` does."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.lists = DistributionLists(scenario)
        self._sizes = [group.users for group in scenario.topology]
        self._users = scenario.users
        # Cached, since users' correspondents recur.
        self.address = lru_cache(CORRESPONDENTS)(lambda user: scenario.account(user).address)
        self.number = lru_cache(CORRESPONDENTS)(self._number)

    def __len__(self) -> int:
        return self._users

    def group(self, user: int) -> Group:
        return self.scenario.topology[group_index(user, self._sizes)]

    def _number(self, address: str) -> int | None:
        """Return the active user with this address; None for addresses of lists and others."""
        user = self.scenario.accounts.number(address, self.scenario.domain)
        return user if user is not None and 1 <= user <= len(self) else None


def further_connections(scenario: Scenario, users: Iterable[int] | None = None) -> int:
    """Return the most mailbox connections that these users (None: all) have beyond one each.

    Over MAPI and JMAP, waiting for events takes a separate connection.
    """
    further = [group.connections - 1 + (group.protocol in OVER_HTTP) for group in scenario.topology]
    return _of_users(scenario, further, users)


def connections_apart(scenario: Scenario, users: Iterable[int] | None = None) -> int:
    """Return the most connections that these users (None: all) have to the address book, news and calendar servers."""
    server = scenario.server
    if server == EMBEDDED:
        return 0
    to_all = (server.ldap is not None) + (server.nntp is not None)
    return _of_users(scenario, [to_all + (group.calendar == CALDAV) for group in scenario.topology], users)


def _of_users(scenario: Scenario, per_user: Sequence[int], users: Iterable[int] | None) -> int:
    """Return the sum over these users (None: all) of their groups' values."""
    if not any(per_user):
        return 0
    sizes = [group.users for group in scenario.topology]
    if users is None:
        return sum(size * each for size, each in zip(sizes, per_user, strict=True))
    return sum(per_user[group_index(user, sizes)] for user in users)


def distribution_lists(scenario: Scenario) -> Mapping[str, tuple[str, ...]]:
    """Map the address of each list in a run to its members' addresses."""
    lists = DistributionLists(scenario)
    return {
        lists.address(index): tuple(scenario.account(user).address for user in lists.members(index))
        for index in range(len(lists))
    }


def resized(scenario: Scenario, users: int, most: int, sections: Sequence[str] = ("lists", "mailbox")) -> list[str]:
    """Return the settings for a different number of users, in groups with the scenario's proportions.

    Outside senders are scaled likewise.

    Lists and mailboxes are those for the `most` users, so a server needs one set of lists, and mailboxes are filled
    once. If the scenario states a population, it is kept.
    """
    sizes, total = [group.users for group in scenario.topology], scenario.users
    senders = [max(1, round(group.users * users / total)) for group in scenario.outside]
    stated = {"lists": scenario.lists.population, "mailbox": scenario.mailbox.population}
    return [
        *(f"topology.{at}.users={size}" for at, size in enumerate((*shared(users, sizes), *senders))),
        *(f"{section}.population={most}" for section in sections if stated[section] is None),
    ]


def shared(users: int, sizes: Sequence[int]) -> list[int]:
    """Divide users among groups in proportion to the groups' sizes, with at least one each, by largest remainder."""
    spare, total = users - len(sizes), sum(sizes)
    wanted = [max(0.0, users * size / total - 1) for size in sizes]
    scale = spare / sum(wanted) if sum(wanted) else 0.0
    shares = [scale * users for users in wanted]
    whole = [int(share) for share in shares]
    by_remainder = sorted(range(len(sizes)), key=lambda at: (whole[at] - shares[at], at))
    for at in by_remainder[: spare - sum(whole)]:
        whole[at] += 1
    return [1 + users for users in whole]
