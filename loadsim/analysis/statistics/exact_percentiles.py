"""Exact percentiles of many groups of numbers, which are gathered part by part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loadsim.analysis.aggregate import Growing
from loadsim.analysis.statistics.nearest_rank import percentile


class Grouped:
    """Numbers of one kind by group. Memory holds each number once."""

    def __init__(self, kind: DTypeLike = np.uint32) -> None:
        self._numbers: defaultdict[int, Growing] = defaultdict(lambda: Growing(kind))

    def add(self, groups: NDArray[Any], numbers: NDArray[Any]) -> None:
        """Add each number to its group; a negative group is none."""
        order = np.argsort(groups, kind="stable")
        found, begins = np.unique(groups[order], return_index=True)
        ends = [*begins[1:].tolist(), len(order)]
        for group, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=False):
            if group >= 0:
                self._numbers[group].add(numbers[order[begin:end]])

    def percentiles(
        self, groups: int, percents: Sequence[int], infinite: NDArray[np.int64] | None = None
    ) -> list[NDArray[np.float64]]:
        """Return the nearest-rank percentiles of all groups, an array for each percentage, and forget the numbers.

        A group without numbers has NaN. `infinite` has the count of further numbers of each group that are infinite.
        """
        found = np.full((len(percents), groups), np.nan)
        for group in range(groups):
            ordered = np.sort(self._numbers[group].taken())
            more = 0 if infinite is None else int(infinite[group])
            if len(ordered) + more:
                found[:, group] = [percentile(ordered, percent, more) for percent in percents]
        return list(found)
