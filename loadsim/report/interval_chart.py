"""A chart of the ratios of a comparison with their intervals: a line per task on one logarithmic axis.

It is HTML with an SVG element per line. Positions are in per cent and texts in the size of the page, so it fits any
width. Its style is that of the page, in the class `intervals`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from loadsim.analysis.compare import level
from loadsim.analysis.compare_runs import ComparedFigure, ComparisonFigures
from loadsim.report.compare_words import interval_words, ratio_words
from loadsim.report.document import Drawing

LEAST, MOST = 0.1, 10.0
"""The ends of the widest axis; intervals beyond run to its edge."""

MARGIN = 1.03
"""The axis is longer than the intervals by this factor on each side."""

TICKS = (1.0, 0.5, 2.0, 0.2, 5.0, 0.1, 10.0, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05)
"""Ratios that are marked on the axis if there is room: the first ones first."""

LEAST_APART = 16.0
"""The least distance between two marks, in per cent of the axis: of 15 rem, their text takes 2."""

Place = Callable[[float], float]
"""Returns where a ratio stands, in per cent of the axis."""


def interval_chart(figures: ComparisonFigures) -> Drawing:
    """Return the chart; figures without an interval, of single runs, are points."""
    limit = None if figures.max_regression is None else 1 + figures.max_regression
    place = _axis(figures.all_figures, limit)
    rows = [_row(one, place, limit, is_score=one in figures.all_scores) for one in figures.all_figures]
    caption = f"New / Base with its {level(figures.looks) * 100:.4g} % confidence interval; right of 1, new is slower"
    caption += "" if limit is None else f"; dashed: the limit of {limit:g}"
    return Drawing(caption, "\n".join(['<div class="intervals">', *rows, _marks(place), "</div>", ""]))


def _axis(both: Sequence[ComparedFigure], limit: float | None) -> Place:
    ends = [1 / MARGIN, MARGIN, limit or 1.0]
    ends += [
        end
        for one in both
        for end in (one.difference.low, one.difference.ratio, one.difference.high)
        if end is not None
    ]
    low, high = math.log(max(min(ends) / MARGIN, LEAST)), math.log(min(max(ends) * MARGIN, MOST))

    def place(ratio: float) -> float:
        at = (math.log(ratio) - low) / (high - low) if ratio > 0 else 0.0
        return 100 * min(max(at, 0.0), 1.0)

    return place


def _row(one: ComparedFigure, place: Place, limit: float | None, *, is_score: bool) -> str:
    found = one.difference
    words = f"{found.name}: {ratio_words(found.ratio)}"
    marks = [_upright("same", place(1))]
    if limit is not None:
        marks.append(_upright("most", place(limit)))
    if found.low is not None and found.high is not None:
        words += f" ({interval_words(one)})"
        marks.append(f'<line x1="{place(found.low):.2f}%" x2="{place(found.high):.2f}%" y1="50%" y2="50%"/>')
    marks.append(f'<circle cx="{place(found.ratio):.2f}%" cy="50%" r="5"/>')
    text, change = escape(words), None if one.answered_less else one.change
    return (
        f"<div><span{_class('score' if is_score else None)}>{escape(found.name)}</span>"
        f'<svg{_class(change)} role="img" aria-label="{text}"><title>{text}</title>{"".join(marks)}</svg></div>'
    )


def _class(name: str | None) -> str:
    return f' class="{name}"' if name else ""


def _upright(name: str, at: float) -> str:
    return f'<line class="{name}" x1="{at:.2f}%" x2="{at:.2f}%" y1="0" y2="100%"/>'


def _marks(place: Place) -> str:
    """Return the line of the ratios that are marked."""
    chosen: list[float] = []
    for tick in TICKS:
        if 0 < place(tick) < 100 and all(abs(place(tick) - place(other)) >= LEAST_APART for other in chosen):
            chosen.append(tick)
    texts = [f'<text x="{place(tick):.2f}%" y="1rem" text-anchor="middle">{tick:g}</text>' for tick in sorted(chosen)]
    name = f"Axis: {', '.join(f'{tick:g}' for tick in sorted(chosen))}"
    return f'<div><span></span><svg role="img" aria-label="{name}">{"".join(texts)}</svg></div>'
