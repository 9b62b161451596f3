"""The digits that a figure is known to, from its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST_DECIMALS = 1
"""The most decimals of times in milliseconds."""


def known_decimals(figure: float, interval: Sequence[float]) -> int:
    """Return the number of decimals to show; below 0, digits before the point are unknown, too.

    The last digit is the first of the standard error, which is about half the distance to the nearer end of a 95 %
    interval.
    """
    error = min(figure - interval[0], interval[1] - figure) / 2
    return min(MOST_DECIMALS, -math.floor(math.log10(error))) if error > 0 else MOST_DECIMALS


def rounded(figure: float, decimals: int) -> str:
    """Return a figure with so many decimals, which may be below 0."""
    return f"{round(figure, decimals):.{max(decimals, 0)}f}"
