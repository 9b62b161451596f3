"""Exact percentiles of many groups of numbers that may exceed memory.

Radix selection: each pass over the numbers finds the next binary digits of every percentile, from the highest down. It
counts the numbers with the digits found so far by their next digits. Memory holds a part of the numbers, and a row of
counters for each percentile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.nearest_rank import rank
from loadsim.errors import LogError

Pass = Iterable[tuple[NDArray[Any], NDArray[Any]]]
"""Parts of the numbers: the group (from 0) of each, and the integers themselves."""

Wanted = Sequence[tuple[int, int | Fraction]]
"""The wanted percentiles as pairs of group and percent."""

_BITS = 11
"""Binary digits found by a pass: three passes for times below two hours in microseconds."""

_MOST_BITS = 63
"""The most binary digits of a group and a number together, without the sign."""


def selected(passes: Callable[[], Pass], groups: int, wanted: Wanted) -> NDArray[np.float64]:
    """Return the wanted nearest-rank percentiles in their order; NaN for a group without numbers.

    Each call of `passes` returns the same numbers, perhaps in other parts and another order.
    Raises `LogError` if the range of the numbers exceeds `_MOST_BITS`.
    """
    counts, least, most = _counts(passes(), groups)
    found = np.full(len(wanted), np.nan)
    known = [index for index, (group, _) in enumerate(wanted) if counts[group]]
    if not known:
        return found
    width = -(-(most - least).bit_length() // _BITS) * _BITS
    if width + groups.bit_length() > _MOST_BITS:
        raise LogError(f"times: expected some that a run can have, found {least} us and {most} us")
    # Pack a group and a number into one: the group has the higher digits.
    prefixes = np.array([wanted[index][0] for index in known], np.int64)
    smaller = np.array([rank(int(counts[wanted[index][0]]), wanted[index][1]) - 1 for index in known], np.int64)
    for shift in range(width - _BITS, -1, -_BITS):
        nodes, of_wanted = np.unique(prefixes, return_inverse=True)
        below = np.cumsum(_tallies(passes(), nodes, least, width, shift), axis=1)[of_wanted]
        digits = np.count_nonzero(below <= smaller[:, None], axis=1)
        before = np.take_along_axis(below, np.maximum(digits - 1, 0)[:, None], axis=1)[:, 0]
        smaller -= np.where(digits > 0, before, 0)
        prefixes = prefixes << _BITS | digits
    found[known] = (prefixes & (1 << width) - 1) + least
    return found


def _counts(numbers: Pass, groups: int) -> tuple[NDArray[np.int64], int, int]:
    """Return the count of numbers in each group, and the smallest and the largest number of all."""
    counts = np.zeros(groups, np.int64)
    least, most = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    for group, values in numbers:
        if len(values):
            counts += np.bincount(group, minlength=groups)
            least, most = min(least, int(values.min())), max(most, int(values.max()))
    return counts, least, most


def _tallies(numbers: Pass, nodes: NDArray[np.int64], least: int, width: int, shift: int) -> NDArray[np.int64]:
    """Count the numbers that begin with each of the sorted prefixes (`nodes`), by their digits from `shift` on."""
    tallies = np.zeros(len(nodes) << _BITS, np.int64)
    for group, values in numbers:
        digits = (group.astype(np.int64) << width | values.astype(np.int64) - least) >> shift
        prefix = digits >> _BITS
        node = np.minimum(np.searchsorted(nodes, prefix), len(nodes) - 1)
        agree = nodes[node] == prefix
        np.add.at(tallies, node[agree] << _BITS | digits[agree] & (1 << _BITS) - 1, 1)
    return tallies.reshape(len(nodes), -1)
