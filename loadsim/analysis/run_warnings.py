"""The warnings of single runs, for an answer on several: each kind once, with the runs that have it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.errors import printable

_NUMBER = re.compile(r"(?<![\w.,:+-])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d:]|[.,-]\w)")
"""Matches a number of a warning, but none in a name, an address or a time of day."""

_PLACE = "\N{NULL}"
"""Stands for a number in a warning, so that runs with other numbers have the same one. No printable text has it."""


@dataclass(frozen=True, slots=True)
class SharedWarning:
    """A kind of warning: the positions of its runs, and its words, with the range of each number."""

    runs: tuple[int, ...]
    words: str


def shared_warnings(warnings: Sequence[Sequence[str]]) -> list[SharedWarning]:
    """Return the kinds of warnings of the runs, those of most runs first; `warnings` has a sequence for each run.

    Warnings that differ only in their numbers are of one kind. A run may have several of a kind.
    """
    kinds: defaultdict[str, list[tuple[int, list[str]]]] = defaultdict(list)
    for run, of_run in enumerate(warnings):
        for warning in map(printable, of_run):
            kinds[_NUMBER.sub(_PLACE, warning)].append((run, _NUMBER.findall(warning)))
    found = []
    for kind, each in kinds.items():
        first, *rest = kind.split(_PLACE)
        ranges = [number_range(numbers) for numbers in zip(*(numbers for _, numbers in each), strict=True)]
        words = first + "".join(number + text for number, text in zip(ranges, rest, strict=True))
        found.append(SharedWarning(tuple(dict.fromkeys(run for run, _ in each)), words))
    return sorted(found, key=lambda one: -len(one.runs))


def number_range(numbers: Sequence[str]) -> str:
    """Return the least and the greatest of some numbers as they were stated, or the only one."""
    low, high = (end(numbers, key=lambda number: float(number.replace(",", ""))) for end in (min, max))
    return low if low == high else f"{low} to {high}"
