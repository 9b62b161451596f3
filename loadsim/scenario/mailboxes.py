"""Mailboxes as a scenario states them: the section `mailbox`, which overrides the profiles' start state."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Annotated, Any

from loadsim.documents.schema import Positive, Share, Size, whole
from loadsim.documents.typed import Reads, mismatch, show, strict, value_of
from loadsim.scenario.distribution import CountDistribution, Distribution

LEAST_BYTES = 1024
"""The smallest message: its header has about 600 bytes."""

MOST_BYTES = 1 << 28
DEFAULT_MOST_BYTES = 10 * 1024 * 1024
"""The largest message from a lognormal distribution, unless `max` is given: many servers' default limit."""

MOST_MESSAGES = 1_000_000
"""The most messages in one folder."""

MOST_FOLDERS = 10_000
DEEPEST = 10
"""The most levels of nested folders: names must fit into a file name's 255 bytes."""

MOST_DAYS = 36_525

LEVEL = "/"
"""Separates the levels in a folder's name. Drivers replace it with the server's separator."""


@dataclass(frozen=True, slots=True)
class SizeTable:
    """Message sizes in bytes with their shares, which add up to 1."""

    sizes: tuple[int, ...]
    shares: tuple[float, ...]

    def at(self, u: float) -> int:
        """Return the inverse distribution function at `u` in [0, 1)."""
        return self.sizes[min(bisect_right(_sums(self.shares), u), len(self.sizes) - 1)]

    def document(self) -> dict[str, Any]:
        return {str(size): share for size, share in zip(self.sizes, self.shares, strict=True)}


@lru_cache(maxsize=16)
def _sums(shares: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(accumulate(shares))


def _check_size(size: int, key: str) -> None:
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise mismatch(f"a size from {LEAST_BYTES} bytes to {MOST_BYTES >> 20}M", show(size), at=(key,))


@strict
@dataclass(frozen=True, slots=True)
class LognormalSizes:
    """A lognormal distribution of sizes in bytes. Larger ones become `max`, smaller ones `LEAST_BYTES`."""

    median: Size
    mean: Size
    max: Size = DEFAULT_MOST_BYTES

    def __post_init__(self) -> None:
        for key, size in (("median", self.median), ("max", self.max)):
            _check_size(size, key)
        if not self.median <= self.mean <= 1000 * self.median:
            raise mismatch("a mean from the median to 1000 times the median", show(self.mean), at=("mean",))
        if self.max < self.median:
            raise mismatch("a maximum of at least the median", show(self.max), at=("max",))

    def at(self, u: float) -> int:
        """Return the inverse distribution function at `u` in [0, 1)."""
        sigma = math.sqrt(2 * math.log(self.mean / self.median))  # of the natural logarithm
        if not sigma or u <= 0:
            return self.median if u > 0 else LEAST_BYTES
        exponent = min(sigma * _STANDARD.inv_cdf(u), 50.0)
        return max(LEAST_BYTES, min(self.max, round(self.median * math.exp(exponent))))

    def document(self) -> dict[str, Any]:
        return asdict(self)


_STANDARD = NormalDist()
Sizes = SizeTable | LognormalSizes


def _sizes(value: object) -> Sizes:
    """Read a mapping as lognormal if it has the key `median`, otherwise as a table."""
    if not isinstance(value, dict) or not value:
        raise mismatch("a mapping of sizes to shares, or the keys median and mean")
    sizes: Sizes = value_of(LognormalSizes, value) if "median" in value else _table(value)
    return sizes


def _table(value: dict[Any, Any]) -> SizeTable:
    shares: dict[int, float] = {}
    for key, share in value.items():
        size = value_of(Size, key)
        _check_size(size, str(key))
        if size in shares:
            raise mismatch("each size once", show(key), at=(str(key),))
        shares[size] = value_of(Share, share)
    total = math.fsum(shares.values())
    if abs(total - 1) > 1e-9:
        raise mismatch("shares that add up to 100%", f"{100 * total:.10g}%")
    sizes = sorted(shares)
    return SizeTable(tuple(sizes), tuple(shares[size] for size in sizes))


MessageSizes = Annotated[Sizes, Reads(_sizes, "mapping")]

_Messages = Annotated[int, whole(0, MOST_MESSAGES)]


def _per_folder(value: object) -> int | Distribution:
    messages: int | Distribution = value_of(CountDistribution if isinstance(value, dict) else _Messages, value)
    if isinstance(messages, Distribution) and messages.max > MOST_MESSAGES:
        raise mismatch(f"at most {MOST_MESSAGES} messages", show(messages.max), at=("max",))
    return messages


_PerFolder = Annotated[int | Distribution, Reads(_per_folder, f"0 to {MOST_MESSAGES:,}, mapping")]


@strict
@dataclass(frozen=True, slots=True)
class MailboxSection:
    """Mailboxes before the run; None leaves a key to the users' profiles."""

    inbox: _Messages | None = None
    """Messages in each Inbox; the profile says how many of the newest are unread. Default: the profile's."""
    deleted_items: _Messages | None = None
    """Messages in Deleted Items. Default: the profile's."""
    folders: Annotated[int, whole(1, MOST_FOLDERS)] | None = None
    """Number of a user's own folders. Default: the profile's."""
    fan_out: Positive | None = None
    """Most folders in each folder, and on the top level; at most 10 levels. Default: all on the top level."""
    messages_per_folder: _PerFolder | None = None
    """Messages in each of these folders, or a distribution to draw from per user and folder. Default: the profile's."""
    public: _Messages | None = None
    """Messages in the public folder, of the first profile's kinds. Default: 0."""
    sizes: MessageSizes | None = None
    """Sizes of these messages, 1K to 256M: shares by size, such as `{2K: 50%, 1M: 50%}`, or lognormal, `{median, mean,
    max}`. Default: the profile's kinds."""
    age_days: Annotated[int, whole(1, MOST_DAYS)] | None = None
    """Days before December 2025 over which a folder's messages are spread. Default: November 2025."""
    population: Positive | None = None
    """Number of users from whom senders are drawn, at least the active ones; answers to inactive senders go to active
    users. Default: the active users."""

    def __post_init__(self) -> None:
        if self.folders is not None and levels(self.folders, self.fan_out) > DEEPEST:
            raise mismatch(f"a fan_out that gives at most {DEEPEST} levels of folders", show(self.fan_out))

    def document(self) -> dict[str, Any]:
        """Return the section as in a file, without keys left to the profiles."""
        keys = asdict(self) | {"sizes": self.sizes and self.sizes.document()}
        return {key: value for key, value in keys.items() if value is not None}


PROFILES = MailboxSection()
"""A section that leaves everything to the profiles."""


def levels(folders: int, fan_out: int | None) -> int:
    """Return the depth of a folder tree that is filled level by level."""
    if fan_out is None or not folders:
        return min(folders, 1)
    depth, wide, held = 0, 1, 0
    while held < folders and depth <= DEEPEST:
        wide *= fan_out
        held += wide
        depth += 1
    return depth


@lru_cache(maxsize=64)
def folder_names(folders: int, fan_out: int | None = None) -> tuple[str, ...]:
    """Return the names of a user's own folders, each parent before its children.

    The tree is filled level by level, with `fan_out` folders in each; None puts all on the top level.
    """
    names: list[str] = []
    for number in range(folders):
        if fan_out is None or number < fan_out:
            names.append(f"Folder {number + 1:02d}")
        else:
            parent, place = number // fan_out - 1, number % fan_out
            names.append(f"{names[parent]}{LEVEL}Folder {place + 1:02d}")
    return tuple(names)


def deepest_first(names: Iterable[str]) -> list[str]:
    """Order folders for deletion: a server may refuse to delete a folder that contains others."""
    return sorted(names, key=lambda name: (-name.count(LEVEL), name))
