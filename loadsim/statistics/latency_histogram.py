"""Histograms of service times for the live view; no score uses them.

All histograms have the same buckets, ten per factor of ten. So counts from several engines can be added, and the
difference between counts at two instants describes the time in between. Percentiles are exact to within a few per cent.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

PER_DECADE = 10

BOUNDS_MS = tuple(float(f"{10 ** (-1 + step / PER_DECADE):.3g}") for step in range(6 * PER_DECADE + 1))
"""The inclusive upper bounds of the buckets: 0.1 ms to 100 s, rounded to three digits."""

LABELS = (*(f"{bound_ms:g}" for bound_ms in BOUNDS_MS), "inf")
"""The names of the buckets in a snapshot: their bounds; the last bucket has no bound."""

_BOUNDS_NS = tuple(round(bound_ms * 1_000_000) for bound_ms in BOUNDS_MS)


class LatencyHistogram:
    """Service times of the tasks with one name since the engine started."""

    __slots__ = ("_counts", "_total_ns")

    def __init__(self) -> None:
        self._counts = [0] * len(LABELS)
        self._total_ns = 0

    def add(self, service_ns: int) -> None:
        """Add a service time, which takes a fraction of a microsecond and no memory."""
        self._counts[bisect_left(_BOUNDS_NS, service_ns)] += 1
        self._total_ns += service_ns

    @property
    def counts(self) -> Mapping[str, int]:
        return {label: count for label, count in zip(LABELS, self._counts, strict=True) if count}

    @property
    def total_s(self) -> float:
        return self._total_ns * 1e-9


def about_ms(counts: Mapping[str, int], percentile: float) -> float | None:
    """Estimate a percentile (nearest rank) in ms by the middle of its bucket; the error is at most 13 %.

    None without counts. The estimate is between 0.1 ms and 100 s.
    """
    ranks = list(accumulate(counts.get(label, 0) for label in LABELS))
    if not ranks[-1]:
        return None
    at = bisect_left(ranks, max(1, math.ceil(ranks[-1] * percentile / 100)))
    if at in (0, len(BOUNDS_MS)):
        return BOUNDS_MS[min(at, len(BOUNDS_MS) - 1)]
    return math.sqrt(BOUNDS_MS[at - 1] * BOUNDS_MS[at])
