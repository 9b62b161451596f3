"""The groups of the scenario's topology, from a log's header, and the group of each user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.population import group_index
from loadsim.timinglog.header import UserGroup


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a topology in their order: the profile, the driver and the number of users of each."""

    profiles: tuple[str, ...]
    modules: tuple[str, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, groups: Iterable[UserGroup] | None) -> Groups | None:
        """Return the groups of a log's header; None without any."""
        rows = [(group.profile, group.module, group.users) for group in groups or ()]
        return cls(*zip(*rows, strict=True)) if rows else None

    def numbers(self, users: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """Return the group (from 0) of each user (from 1).

        Raises `LogError` for a user above the number of users of all groups.
        """
        different, places = np.unique(users, return_inverse=True)
        if len(different) and not 1 <= different[0] <= different[-1] <= sum(self.sizes):
            found = f"{different[0]} to {different[-1]}"
            raise LogError(f"groups: expected users from 1 to {sum(self.sizes)}, found {found}")
        return np.array([group_index(user, self.sizes) for user in different.tolist()], np.int64)[places]

    def name(self, number: int) -> str:
        """Return the number of a group, from 1 as in the scenario's file, with its profile and driver."""
        return f"{number + 1}: {self.profiles[number]} on {self.modules[number]}"
