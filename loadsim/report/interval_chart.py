"""A chart of the ratios of a comparison with their intervals: a line per task on one logarithmic axis.

It is HTML with an SVG element per line. Positions are in per cent and texts in the size of the page, so it fits any
width. Its style is that of the page, in the class `intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from loadsim.analysis.compare import level
from loadsim.analysis.compare_runs import ComparedFigure, ComparisonFigures
from loadsim.report.compare_words import interval_words, ratio_words
from loadsim.report.document import Drawing

LEAST, MOST = 0.1, 10.0
"""The ends of the widest axis; intervals beyond run to its edge."""

MARGIN = 1.03
"""The axis is longer than the intervals by this factor on each side."""

TICKS = (1.0, 0.5, 2.0, 0.2, 5.0, 0.1, 10.0, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05, 0.7, 1.5, 0.98, 1.02)
"""Ratios that are marked on the axis if there is room: the first ones first."""

LEAST_APART = 0.16
"""The least distance between two marks, as a share of the axis: of 15 rem, their text takes 2."""


def interval_chart(figures: ComparisonFigures) -> Drawing:
    """Return the chart; figures without an interval, of single runs, are points, and the caption says so."""
    both = figures.all_figures
    limit = None if figures.max_regression is None else 1 + figures.max_regression
    scale = _Scale(both, limit)
    rows = [_row(one, scale, limit, is_score=one in figures.all_scores) for one in both]
    with_interval = any(one.difference.low is not None for one in both)
    what = f"its {level(figures.looks) * 100:.4g} % confidence interval" if with_interval else "no confidence interval"
    caption = (
        f"New / Base with {what}{'' if with_interval else ', as a side has a single run'}; right of 1, new is slower"
    )
    if limit is not None:
        caption += f"; dashed: the limit of {limit:g}"
    if not all(scale.shows(one.difference.ratio) for one in both):
        caption += "; triangles: beyond the axis"
    return Drawing(caption, "\n".join(['<div class="intervals">', *rows, _axis(scale), "</div>", ""]))


class _Scale:
    """Positions on the axis, in per cent of its length."""

    def __init__(self, both: Sequence[ComparedFigure], limit: float | None) -> None:
        ends = [1.0, limit or 1.0]
        for one in both:
            found = one.difference
            ends += [found.ratio if end is None else end for end in (found.low, found.ratio, found.high)]
        self._low = math.log(max(min(ends) / MARGIN, LEAST))
        self._high = math.log(min(max(ends) * MARGIN, MOST))
        if max(ends) > 1:
            self._extend_to_a_tick_above_1()

    def _extend_to_a_tick_above_1(self) -> None:
        """Extend the axis until a ratio right of 1 has room: without one, its scale cannot be read there."""
        for tick in sorted(tick for tick in TICKS if tick > 1):
            if any(marked > 1 for marked in self.ticks()):
                return
            self._high = max(self._high, min(math.log(tick * MARGIN), math.log(MOST)))

    def __call__(self, ratio: float) -> float:
        at = (math.log(ratio) - self._low) / (self._high - self._low) if ratio > 0 else 0.0
        return 100 * min(max(at, 0.0), 1.0)

    def shows(self, ratio: float) -> bool:
        """Return False for a ratio beyond the ends of the axis."""
        return ratio > 0 and self._low <= math.log(ratio) <= self._high

    def ticks(self) -> list[float]:
        """Return the ratios to mark, in their order."""
        chosen: list[float] = []
        for tick in TICKS:
            inside = self._low <= math.log(tick) <= self._high
            if inside and all(abs(self(tick) - self(other)) >= 100 * LEAST_APART for other in chosen):
                chosen.append(tick)
        return sorted(chosen)


def _row(one: ComparedFigure, scale: _Scale, limit: float | None, *, is_score: bool) -> str:
    found = one.difference
    words = f"{found.name}: {ratio_words(found.ratio)}"
    marks = [_upright("same", scale(1))]
    if limit is not None:
        marks.append(_upright("most", scale(limit)))
    if found.low is not None and found.high is not None:
        words += f" ({interval_words(one)})"
        marks.append(f'<line x1="{scale(found.low):.2f}%" x2="{scale(found.high):.2f}%" y1="50%" y2="50%"/>')
    marks.append(_point(scale, found.ratio))
    text, change = escape(words), None if one.answered_less else one.change
    return (
        f"<div><span{_class('score' if is_score else None)}>{escape(found.name)}</span>"
        f'<svg{_class(change)} role="img" aria-label="{text}"><title>{text}</title>{"".join(marks)}</svg></div>'
    )


def _point(scale: _Scale, ratio: float) -> str:
    """Return a circle; a triangle at the edge of the axis, which points to a ratio beyond it."""
    if scale.shows(ratio):
        return f'<circle cx="{scale(ratio):.2f}%" cy="50%" r="5"/>'
    tip = 6 if ratio > 1 else -6
    return f'<svg x="{scale(ratio):.2f}%" y="50%"><path d="M{-tip},-6 L{tip},0 L{-tip},6 Z"/></svg>'


def _class(name: str | None) -> str:
    return f' class="{name}"' if name else ""


def _upright(name: str, at: float) -> str:
    return f'<line class="{name}" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'


def _axis(scale: _Scale) -> str:
    ticks = scale.ticks()
    marks = "".join(f'<text x="{scale(tick):.2f}%" y="1rem" text-anchor="middle">{tick:g}</text>' for tick in ticks)
    name = f"Axis: {', '.join(f'{tick:g}' for tick in ticks)}"
    return f'<div><span></span><svg role="img" aria-label="{name}">{marks}</svg></div>'
