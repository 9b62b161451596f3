"""A chart's scales: where a figure lies on an axis, and which figures label the axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from loadsim.report.document import Axis, Panel

LEAST_MS = 0.001
"""The smallest figure on a logarithmic scale: times are whole microseconds."""

INTERVALS = 6
"""A linear scale has about this many intervals."""


@dataclass(frozen=True, slots=True)
class Scale:
    """`place` returns the position of a figure, from 0 at the low end of the axis to 1. `ticks` have labels."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]


def x_scale(axis: Axis) -> Scale:
    low, high = axis.span or (min(0.0, *axis.positions), max(axis.positions))
    if axis.kind == "count":
        high *= 1.04  # keep the last point off the edge
    named = [(tick, f"{tick:,.10g}") for tick in _round_figures(low, high)]
    if axis.unit and named:
        named[0] = (named[0][0], f"{named[0][1]} {axis.unit}")
    return _scale(float, low, high, named)


def y_scale(panel: Panel) -> Scale:
    shown = [value for line in panel.lines for value in line.values if value is not None and not math.isinf(value)]
    shown += [limit.value for limit in panel.limits]
    shown += [end for line in panel.lines for interval in line.intervals if interval for end in interval]
    if panel.scale == "log":
        low, high = max(min(shown, default=LEAST_MS), LEAST_MS) / 1.6, max([*shown, LEAST_MS]) * 1.6
        of_decade = (1, 2, 5) if high / low < 100 else (1,)
        return _scale(math.log10, low, high, _named(panel, _decimals(low, high, of_decade)))
    if panel.scale == "symlog":
        high = max([*shown, 0]) * 1.6 or 1.0
        ticks = _named(panel, [0, *_decimals(1, high, (1,))] if high > 1 else [0, high / 2])
        return _scale(lambda value: value if value <= 1 else 1 + math.log10(value), 0, high, ticks)
    high = max([*shown, 0]) * 1.08 or 1.0
    return _scale(float, 0, high, _named(panel, _round_figures(0, high)))


def _scale(by: Callable[[float], float], low: float, high: float, ticks: Iterable[tuple[float, str]]) -> Scale:
    begin, end = by(low), by(high)
    length = end - begin or 1.0
    return Scale(lambda value: (by(max(value, low)) - begin) / length, tuple(ticks))


def _decimals(low: float, high: float, of_decade: Sequence[int]) -> list[float]:
    """Return these multiples of the powers of ten on the axis, or of every nth power if there are many."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    powers = range(first, last + 1, max(1, math.ceil((last - first) / 6)))
    ticks = [digit * 10.0**power for power in powers for digit in of_decade]
    return [tick for tick in ticks if low <= tick <= high]


def _round_figures(low: float, high: float) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of ten from one end to the other."""
    least = (high - low or 1.0) / INTERVALS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power >= least * (1 - 1e-9))
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step * (1 + 1e-9)) + 1)]


def _named(panel: Panel, ticks: Iterable[float]) -> list[tuple[float, str]]:
    return [(tick, _time(tick) if panel.is_time else f"{tick:,.6g}") for tick in ticks]


def _time(tick_ms: float) -> str:
    return f"{tick_ms:.6g} ms" if tick_ms < 1000 else f"{tick_ms / 1000:,.6g} s"
