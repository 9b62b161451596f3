"""The group of each user, by the groups of the topology in a log's header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.model.population import group_index
from loadsim.timinglog.header import UserGroup


def group_numbers(groups: Sequence[UserGroup], users: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return the group (from 0) of each user (from 1).

    Raises `LogError` for a user above the number of users of all groups.
    """
    sizes = [group.users for group in groups]
    different, places = np.unique(users, return_inverse=True)
    if len(different) and not 1 <= different[0] <= different[-1] <= sum(sizes):
        raise LogError(f"groups: expected users from 1 to {sum(sizes)}, found {different[0]} to {different[-1]}")
    return np.array([group_index(user, sizes) for user in different.tolist()], np.int64)[places]


def group_name(groups: Sequence[UserGroup], number: int) -> str:
    """Return the number of a group, from 1 as in the scenario's file, with its profile and driver."""
    return f"{number + 1}: {groups[number].profile} on {groups[number].module}"
