"""Which of a run's users an engine has: by a rule that is short enough to stand in its log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

CIRCLE = 2**32
"""Every user has a place on a circle of so many, from 0 on."""

GOLDEN_STEP = 2_654_435_769
"""The circle by the golden ratio. So many places further on each time, any number of users are evenly spread."""


@dataclass(frozen=True, slots=True)
class Hand:
    """What one engine was dealt of so many `users`, who are numbered from 1.

    User n has the place n * `step` modulo `CIRCLE`; the hand is who has a place from `begin` on and before `end`. With
    a step of 1, its users are consecutive.
    """

    users: int
    step: int
    begin: int
    end: int

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, user: object) -> bool:
        if not isinstance(user, int) or not 1 <= user <= self.users:
            return False
        return self.begin <= user * self.step % CIRCLE < self.end

    def __iter__(self) -> Iterator[int]:
        """The users, in the order of their numbers."""
        return (user for user in range(1, self.users + 1) if user in self)


def deal(users: int, engines: int) -> list[Hand]:
    """A hand for each engine: as many users as the others have, with a like share of everything.

    The lists' members are the first users, who get more mail than the others; so engines do not have consecutive
    users. Nor every so manieth: these may all be of one profile, for profiles come around, too. The golden ratio keeps
    step with nothing.
    """
    places = sorted(user * GOLDEN_STEP % CIRCLE for user in range(1, users + 1))
    edges = [0, *(places[users * engine // engines] for engine in range(1, engines)), CIRCLE]
    return [Hand(users, GOLDEN_STEP, begin, end) for begin, end in pairwise(edges)]
