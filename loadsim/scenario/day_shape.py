"""The distribution of activities over a day: `run.day_shape` in a scenario."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm

from loadsim.model.terms import Window

MOST_WEIGHT = 1e6
"""The largest weight of a part."""


def normalised(weights: Sequence[float]) -> tuple[float, ...]:
    """Normalise weights, so that lists with the same ratios become equal; equal weights, a flat day, become ().

    The result has coprime whole numbers or, if any would exceed `MOST_WEIGHT`, shares of the largest weight. Weights
    are read as decimals, as in the scenario: 0.1 and 0.3 become 1 and 3. Normalising twice changes nothing.
    """
    exact = [Fraction(str(weight)) for weight in weights]
    shares = [float(weight / max(exact)) for weight in exact]
    if len({*shares}) == 1:
        return ()
    return _whole(exact) or _whole([Fraction(str(weight)) for weight in shares]) or tuple(shares)


def _whole(weights: Sequence[Fraction]) -> tuple[float, ...]:
    """Return coprime whole numbers with these weights' ratios; () if one exceeds `MOST_WEIGHT`."""
    scale = lcm(*(weight.denominator for weight in weights))
    whole = [weight.numerator * (scale // weight.denominator) for weight in weights]
    divisor = gcd(*whole)
    return () if max(whole) // divisor > MOST_WEIGHT else tuple(float(weight // divisor) for weight in whole)


class DayShape:
    """Equal parts of a day with weights: a part's rates are the mean rates times its weight over the mean weight.

    A Poisson process is drawn at the mean rate; the shape then varies the speed of its clock (a non-homogeneous Poisson
    process by inversion of the cumulative rate: Cinlar, Introduction to Stochastic Processes, 1975). A whole day has
    the same activities in the same order for any shape.
    """

    __slots__ = ("_edges",)

    def __init__(self, weights: Sequence[float]) -> None:
        """Take one or more weights, none negative and at least one above 0."""
        sums = tuple(accumulate(weights))
        self._edges = (0.0, *(running / sums[-1] for running in sums))

    def due_us(self, at_s: float, day_us: int) -> int:
        """Return the due time of an activity that would be due at `at_s` on a flat day. Neither time counts nights.

        All machines round these operations alike.
        """
        day, share = divmod(at_s * 1e6 / day_us, 1.0)
        part = min(bisect_right(self._edges, share), len(self._edges) - 1) - 1
        begin, end = self._edges[part], self._edges[part + 1]
        inside = (share - begin) / (end - begin) if end > begin else 0.0
        return round((day + (part + inside) / (len(self._edges) - 1)) * day_us)

    def share(self, begin_days: float, end_days: float) -> float:
        """Return how many days' worth of activities are due between two moments, in days since the start of a day."""
        return self._until(end_days) - self._until(begin_days)

    def _until(self, moment_days: float) -> float:
        day, inside = divmod(moment_days, 1.0)
        parts = len(self._edges) - 1
        part = min(int(inside * parts), parts - 1)
        return day + self._edges[part] + (self._edges[part + 1] - self._edges[part]) * (inside * parts - part)


def factor_of_window(weights: Sequence[float], window_s: Window, day_s: float, night_s: float) -> float:
    """Return the rate of activities in a window, divided by a day's mean rate; 1 for a flat day.

    Nights in the window do not count.
    """
    if not any(weights):
        return 1.0
    begin_days, end_days = (_days(at_s, day_s, night_s) for at_s in (window_s.begin_s, window_s.end_s))
    passed = end_days - begin_days
    return DayShape(weights).share(begin_days, end_days) / passed if passed > 0 else 1.0


def _days(at_s: float, day_s: float, night_s: float) -> float:
    """Return the number of days up to an instant, without nights."""
    cycles, rest_s = divmod(at_s, day_s + night_s)
    return cycles + min(rest_s / day_s, 1.0)
