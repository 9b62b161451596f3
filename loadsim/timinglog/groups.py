"""The groups of the scenario's topology, from a log's header, and the group of each user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a topology in their order: the profile, the driver and the number of users of each."""

    profiles: tuple[str, ...]
    modules: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, header: Mapping[str, Any]) -> Groups | None:
        """Return the groups in a log's header; None for older logs, which have none.

        Raises `LogError` for malformed groups.
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
        """Return the group (from 0) of each user (from 1), by the rule of `population.group_index`.

        Raises `LogError` for a user above the number of users of all groups.
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
        """Return the number of a group, from 1 as in the scenario's file, with its profile and driver."""
        return f"{number + 1}: {self.profiles[number]} on {self.modules[number]}"
