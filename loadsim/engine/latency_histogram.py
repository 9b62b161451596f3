"""Service times counted in buckets that add up over engines: for whoever watches a run. No score is made of them.

The bounds of the buckets are the same everywhere, ten to a factor of ten. So a percentile of them is known to a few
per cent, and of the counts at two instants the difference tells of the time between.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import accumulate

PER_DECADE = 10

BOUNDS_MS = tuple(float(f"{10 ** (-1 + step / PER_DECADE):.3g}") for step in range(6 * PER_DECADE + 1))
"""The upper bounds of the buckets, which belong to them: 0.1 ms to 100 s, rounded to three digits."""

LABELS = (*(f"{bound_ms:g}" for bound_ms in BOUNDS_MS), "inf")
"""What the buckets are called in a snapshot: by their bounds; the last one has none."""

_BOUNDS_NS = tuple(round(bound_ms * 1_000_000) for bound_ms in BOUNDS_MS)


class LatencyHistogram:
    """How long tasks of one name took, since the engine's start."""

    __slots__ = ("_counts", "_total_ns")

    def __init__(self) -> None:
        self._counts = [0] * len(LABELS)
        self._total_ns = 0

    def add(self, service_ns: int) -> None:
        """One more; it costs a fraction of a microsecond, and takes no memory."""
        self._counts[bisect_left(_BOUNDS_NS, service_ns)] += 1
        self._total_ns += service_ns

    @property
    def counts(self) -> Mapping[str, int]:
        """How many fell into each bucket, by its label; buckets without any are left out."""
        return {label: count for label, count in zip(LABELS, self._counts, strict=True) if count}

    @property
    def total_s(self) -> float:
        """All of them together."""
        return self._total_ns * 1e-9


def about_ms(counts: Mapping[str, int], percentile: float) -> float | None:
    """About where a percentile (nearest rank) lies: amid the bucket that it fell into, so 13 % beside it at most.

    None without any counts; 100 s, in ms, for all that took longer, and 0.1 ms for what took less.
    """
    ranks = list(accumulate(counts.get(label, 0) for label in LABELS))
    if not ranks[-1]:
        return None
    at = bisect_left(ranks, max(1, math.ceil(ranks[-1] * percentile / 100)))
    if at in (0, len(BOUNDS_MS)):
        return BOUNDS_MS[min(at, len(BOUNDS_MS) - 1)]
    return math.sqrt(BOUNDS_MS[at - 1] * BOUNDS_MS[at])
