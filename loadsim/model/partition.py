"""Which of a run's users an engine has, or a machine: by a rule that is short enough to stand in their logs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

CIRCLE = 2**32
"""Every user has a place on a circle of so many, from 0 on."""

GOLDEN_STEP = 2_654_435_769
"""The circle by the golden ratio. So many places further on each time, any number of users are evenly spread."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one engine, or one machine, was dealt of so many `users`, who are numbered from 1.

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

    def cut(self, weights: Sequence[int]) -> list[Assignment]:
        """Its users in as many hands as there are weights (positive), as nearly in proportion to them as can be.

        Each is an arc of this one, and so has a like share of everything that this one has.
        """
        places = [*sorted(user * self.step % CIRCLE for user in self), self.end]
        users, whole = len(places) - 1, sum(weights)
        inner = (places[users * before // whole] for before in accumulate(weights[:-1]))
        edges = [self.begin, *inner, self.end]
        return [Assignment(self.users, self.step, begin, end) for begin, end in pairwise(edges)]


def all_users(users: int) -> Assignment:
    """All users, in the steps by which they are dealt.

    The lists' members are the first users, who get more mail than the others; so engines do not have consecutive
    users. Nor every so manieth: these may all be of one profile, for profiles come around, too. The golden ratio keeps
    step with nothing.
    """
    return Assignment(users, GOLDEN_STEP, 0, CIRCLE)


def divide(users: int, engines: int) -> list[Assignment]:
    """A hand for each engine: as many users as the others have, with a like share of everything."""
    return all_users(users).cut([1] * engines)


# --- of several machines ------------------------------------------------------------------------------------------

_SLICE = re.compile(r"([0-9]{1,6})/([0-9]{1,6}(?:,[0-9]{1,6})*)")

MOST_SLICES = 10_000


@dataclass(frozen=True, slots=True)
class Slice:
    """The part of a run that one machine makes: the `number`th (from 1) of as many parts as there are `weights`.

    Each part has users in proportion to its weight. Weights are whole numbers of at least 1 without a common divisor.
    """

    number: int
    weights: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Slice:
        """`3/12`, the third of twelve equal parts; `3/2,2,1,1`, the third of four with these weights.

        Raises `ValueError` for anything else.
        """
        found = _SLICE.fullmatch(text)
        if found is None:
            raise ValueError(text)
        number, *weights = (int(digits) for digits in re.split("[/,]", text))
        if len(weights) == 1:
            weights = [1] * min(weights[0], MOST_SLICES + 1)
        if not 1 <= number <= len(weights) <= MOST_SLICES or min(weights) < 1:
            raise ValueError(text)
        divisor = gcd(*weights)
        return cls(number, tuple(weight // divisor for weight in weights))

    def __str__(self) -> str:
        """As it is written for a command."""
        equal = max(self.weights) == 1
        return f"{self.number}/{len(self.weights) if equal else ','.join(map(str, self.weights))}"

    @property
    def parts(self) -> tuple[Slice, ...]:
        """All slices of the run, this one among them."""
        return tuple(Slice(number, self.weights) for number in range(1, len(self.weights) + 1))

    def hand(self, users: int) -> Assignment:
        """Which of so many users are this machine's; the same on every machine."""
        return all_users(users).cut(self.weights)[self.number - 1]


def slice_of(about: Mapping[str, Any]) -> Slice | None:
    """The slice that the header of a log names; None for a run that one machine made."""
    found = about.get("slice")
    return Slice(found["number"], tuple(found["weights"])) if found else None
