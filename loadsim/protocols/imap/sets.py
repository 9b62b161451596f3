"""Sets of message numbers, kept as ranges: "1:4294967295" takes no more memory than "1"."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loadsim.errors import ProtocolError

MOST_LISTED = 100_000
"""The largest set that can be iterated."""


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Numbers as ranges (first, last) in ascending order, which do not touch or overlap. Make one with `of`."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> NumberSet:
        """Return the set of all numbers in these ranges, in any order and with either end first."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted([(min(ends), max(ends)) for ends in ranges]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @classmethod
    def union(cls, sets: Iterable[NumberSet]) -> NumberSet:
        return cls.of([ends for numbers in sets for ends in numbers.ranges])

    @property
    def size(self) -> int:
        """The number of members. It is not `__len__`, since `list` would reserve memory for that many."""
        return sum([last - first + 1 for first, last in self.ranges])

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.ranges, number, key=lambda ends: ends[0]) - 1
        return at >= 0 and number <= self.ranges[at][1]

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers in ascending order. Raises `ProtocolError` if there are more than `MOST_LISTED`."""
        if self.size > MOST_LISTED:
            raise ProtocolError("IMAP set of numbers", f"more than {MOST_LISTED} numbers")
        for first, last in self.ranges:
            yield from range(first, last + 1)
