"""Which group of the scenario's topology a user was in: by the rule that laid the groups out, from a log's header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a topology in its order: of each its profile, its client module and how many users it has."""

    profiles: tuple[str, ...]
    modules: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Groups | None:
        """Those that a log's header has; None in logs that were written before headers had them.

        Raises `LogError` when what it has are no groups.
        """
        found = header.get("groups")
        if not found:
            return None
        try:
            profiles, modules, sizes = zip(
                *((str(group["profile"]), str(group["module"]), int(group["users"])) for group in found), strict=True
            )
        except (KeyError, TypeError, ValueError):
            raise LogError(
                f"groups: expected profile, module and users of each group, found {str(found)[:80]}"
            ) from None
        return cls(profiles, modules, sizes)

    def numbers(self, users: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """For each user (from 1) the number of his group (from 0).

        The first group is laid out evenly over all users by Bresenham's rule, the next over those that remain, and so
        on. Raises `LogError` for a user whom the groups do not have.
        """
        place, left = users.astype(np.int64) - 1, sum(self.sizes)
        if len(place) and not (place.min() >= 0 and place.max() < left):
            raise LogError(f"groups: expected users from 1 to {left}, found {place.min() + 1} to {place.max() + 1}")
        numbers = np.full(len(place), len(self.sizes) - 1)
        undecided = np.arange(len(place))
        for number, size in enumerate(self.sizes[:-1]):
            before = place * size // left
            inside = (place + 1) * size // left > before
            numbers[undecided[inside]] = number
            place, undecided = (place - before)[~inside], undecided[~inside]
            left -= size
        return numbers

    def name(self, number: int) -> str:
        """The number, counted from 1 as in the scenario's file, with profile and client module."""
        return f"{number + 1}: {self.profiles[number]} on {self.modules[number]}"
