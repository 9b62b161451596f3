"""The partition of users among engines and machines, by a rule short enough for a log's header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

CIRCLE = 2**32
"""The number of places on the circle of users, counted from 0."""

BLOCK = 1 << 20
"""The number of users that are examined together."""

GOLDEN_STEP = 2_654_435_769
"""`CIRCLE` divided by the golden ratio: multiples of this step spread evenly, for any number of users."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The users of one engine or machine, out of `users` users numbered from 1.

    User n has the place n * `step` modulo `CIRCLE`; the assignment is the users with places in [`begin`, `end`). With a
    step of 1, its users are consecutive.
    """

    users: int
    step: int
    begin: int
    end: int

    def with_senders(self, senders: int) -> Assignment:
        """Return the assignment with the outside senders in the same places, of so many who follow all users."""
        return replace(self, users=self.users + senders)

    def __len__(self) -> int:
        return sum(map(len, self._blocks()))

    def __contains__(self, user: object) -> bool:
        if not isinstance(user, int) or not 1 <= user <= self.users:
            return False
        return self.begin <= user * self.step % CIRCLE < self.end

    def __iter__(self) -> Iterator[int]:
        """Yield the users in ascending order."""
        return (user for block in self._blocks() for user in block.tolist())

    def _blocks(self) -> Iterator[NDArray[np.uint64]]:
        """Yield the users in ascending order, in blocks, since millions would take seconds one by one."""
        for first in range(1, self.users + 1, BLOCK):
            users = np.arange(first, min(first + BLOCK, self.users + 1), dtype=np.uint64)
            places = self._places(users)
            yield users[(self.begin <= places) & (places < self.end)]

    def _places(self, users: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return users * np.uint64(self.step) % np.uint64(CIRCLE)  # overflow drops multiples of the circle

    def cut(self, weights: Sequence[int]) -> list[Assignment]:
        """Divide the users into one assignment per (positive) weight, as nearly in proportion as possible.

        Each result is an arc of the circle, with a proportional share of each profile and list.
        """
        blocks = [self._places(block) for block in self._blocks()]
        places = [*np.sort(np.concatenate(blocks)).tolist(), self.end] if blocks else [self.end]
        users, whole = len(places) - 1, sum(weights)
        inner = (places[users * before // whole] for before in accumulate(weights[:-1]))
        edges = [self.begin, *inner, self.end]
        return [Assignment(self.users, self.step, begin, end) for begin, end in pairwise(edges)]


def all_users(users: int) -> Assignment:
    """Return the assignment of all users, to be divided by `Assignment.cut`.

    Engines do not get consecutive users: the first users are on the lists, and receive more mail. Nor do they get every
    n-th user: profiles repeat periodically, so a stride might pick only one of them. Golden-ratio steps have no period
    in common with anything.
    """
    return Assignment(users, GOLDEN_STEP, 0, CIRCLE)


def divide(users: int, engines: int) -> list[Assignment]:
    """Return an assignment for each engine, with equal numbers of users."""
    return all_users(users).cut([1] * engines)
