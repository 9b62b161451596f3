"""Draw charts in a page, as HTML and SVG: no scripts, no URLs, and the same bytes for the same figures.

Colours and sizes are in the page's style sheet, so charts adapt to dark mode, screen width and print. Positions in a
panel are percentages of its size, so text keeps its size on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from loadsim.findings.formats import duration
from loadsim.report.document import Axis, Bar, Chart, Limit, Line, Panel
from loadsim.report.scales import Scale, x_scale, y_scale

COLOURS = 7
"""The number of line colours in the style sheet: classes c0, c1 and so on."""

DASHES = 4
"""The number of line dashes in the style sheet: classes d0, d1 and so on."""

MARKERS = (
    '<circle r="3"/>',
    '<path d="M-3-3h6v6h-6z"/>',
    '<path d="M0-4l4 7h-8z"/>',
    '<path d="M0-4l4 4-4 4-4-4z"/>',
    '<path d="M0 4l4-7h-8z"/>',
    '<path d="M-1-4h2v3h3v2h-3v3h-2v-3h-3v-2h3z"/>',
    '<path d="M-4 0l7-4v8z"/>',
)
"""Shapes around the origin, in pixels. Together with the dashes, they tell 28 lines apart without colour."""

INFINITE = '<path d="M0-6l5 9h-10z"/>'
"""The marker of an infinite figure, at the upper edge of a panel."""

MARKED = 8
"""A line without gaps has about this many markers."""

UNITS = 1000
"""The width and height of a panel in units of its lines."""


def markers() -> str:
    """Return the definitions of markers, which a page needs once."""
    shapes = [f'<g id="m{number}">{shape}</g>' for number, shape in enumerate(MARKERS)]
    return f'<svg class="markers" aria-hidden="true"><defs>{"".join(shapes)}<g id="mi">{INFINITE}</g></defs></svg>'


def drawn(chart: Chart) -> str:
    """Return the panels of a chart with their legends, and the title of the common axis."""
    names = [[line.name for line in panel.lines] for panel in chart.panels]
    have_one = len(names) > 1 and all(each == names[0] for each in names)
    across = min(chart.across, len(chart.panels))
    size = f"across-{across}" + (" alone" if len(chart.panels) == 1 else "")
    panels = "\n".join(_panel(panel, chart, not have_one) for panel in chart.panels)
    legend = _legend(chart.panels[0].lines) + "\n" if have_one else ""
    return f'{legend}<div class="panels {size}">\n{panels}\n</div>\n<p class="axis">{escape(chart.axis.title)}</p>'


def bar(cell: Bar) -> str:
    """Return the drawing of an interval in a table; the cell's text says the same."""
    low, at, high = map(_percent, (cell.low, cell.at, cell.high))
    return (
        f'<svg class="bar {cell.look}" aria-hidden="true">'
        '<line class="edge" x1="50%" x2="50%" y1="-30%" y2="130%"/>'
        f'<line class="line" x1="{low}" x2="{high}" y1="50%" y2="50%"/><circle cx="{at}" cy="50%" r="3.5"/></svg>'
    )


def described(chart: Chart, panel: Panel) -> str:
    """Describe a panel for those who cannot see it: each line with its least and greatest figure."""
    head = f"{chart.caption}: {panel.title}" if panel.title else chart.caption
    lines = [f"{line.name} {_range(panel, line)}" for line in panel.lines]
    return f"{head}. {'; '.join([*lines, *(limit.name for limit in panel.limits)])}."


def _range(panel: Panel, line: Line) -> str:
    known = [value for value in line.values if value is not None]
    low, high = (_shown(panel, end(known)) for end in (min, max))
    return low if low == high else f"from {low} to {high}"


def _shown(panel: Panel, value: float) -> str:
    return duration(value) if panel.is_time else f"{value:,.{panel.digits}f}"


def _legend(lines: Sequence[Line], limits: Sequence[Limit] = ()) -> str:
    """Return a legend of lines and limits: names next to the lines could hide figures."""
    samples = [(_sample(line, _number(line, place)), line.name) for place, line in enumerate(lines)]
    samples += [('<line class="limit" x2="100%" y1="50%" y2="50%"/>', limit.name) for limit in limits]
    items = "".join(
        f'<li><svg class="key" aria-hidden="true">{sample}</svg>{escape(name)}</li>' for sample, name in samples
    )
    return f'<ul class="legend">{items}</ul>' if items else ""


def _sample(line: Line, number: int) -> str:
    stroke = f'<line class="line {_look(number)}" x1="0" x2="100%" y1="50%" y2="50%"/>' if line.joined else ""
    return f"{stroke}{_marker(line, number, '50%', '50%')}"


def _number(line: Line, place: int) -> int:
    return place if line.look is None else line.look


def _look(number: int) -> str:
    return f"c{number % COLOURS} d{number % DASHES}"


def _marker(line: Line, number: int, x: str, y: str, shape: int | str | None = None) -> str:
    hollow = " hollow" if line.hollow else ""
    shape = number % len(MARKERS) if shape is None else shape
    return f'<use class="c{number % COLOURS}{hollow}" href="#m{shape}" x="{x}" y="{y}"/>'


def _panel(panel: Panel, chart: Chart, own_legend: bool) -> str:
    x, y = x_scale(chart.axis), y_scale(panel)
    unit = "" if panel.is_time else f'<span class="unit">{escape(panel.y_title)}</span>'
    title = f"{escape(panel.title)} {unit}".strip()
    named = own_legend and (len(panel.lines) > 1 or len(chart.panels) == 1)
    legend = _legend(panel.lines if named else (), panel.limits)
    parts = [*_frame(panel, chart, x, y)]
    for place, line in enumerate(panel.lines):
        parts += _line(line, _number(line, place), chart.axis, x, y)
    return (
        '<div class="panel">'
        + (f'<p class="title">{title}</p>' if title else "")
        + legend
        + f'<svg class="plot" role="img" aria-label="{escape(described(chart, panel))}">{"".join(parts)}</svg></div>'
    )


def _percent(share: float) -> str:
    return f"{round(100 * share, 2):g}%"


def _frame(panel: Panel, chart: Chart, x: Scale, y: Scale) -> Iterator[str]:
    if chart.shaded is not None:
        begin, end = map(x.place, chart.shaded)
        yield f'<rect class="window" x="{_percent(begin)}" width="{_percent(end - begin)}" height="100%"/>'
        if chart.across <= 2:
            yield f'<text x="{_percent(begin)}" dy="-4">{escape(chart.shaded_name)}</text>'
    for value, name in y.ticks:
        at = _percent(1 - y.place(value))
        yield f'<line class="grid" x2="100%" y1="{at}" y2="{at}"/>'
        yield f'<text x="-6" y="{at}" dy="4" text-anchor="end">{name}</text>'
    for number, (value, name) in enumerate(x.ticks):
        at = _percent(x.place(value))
        every_second = ' class="second"' if number % 2 else ""
        yield f'<line class="grid" y2="100%" x1="{at}" x2="{at}"/>'
        yield f'<text{every_second} x="{at}" y="100%" dy="16" text-anchor="middle">{name}</text>'
    yield '<line class="edge" x2="100%" y1="100%" y2="100%"/>'
    for limit in panel.limits:
        at = _percent(1 - y.place(limit.value))
        yield f'<line class="limit" x2="100%" y1="{at}" y2="{at}"/>'


def _line(line: Line, number: int, axis: Axis, x: Scale, y: Scale) -> Iterator[str]:
    """Yield the line, its intervals, some of its markers, and markers of infinite figures at the upper edge."""
    points: list[tuple[float, float] | None] = [
        None if value is None or math.isinf(value) else (x.place(at), 1 - y.place(value))
        for at, value in zip(axis.positions, line.values, strict=True)
    ]
    known = [point for point in points if point]
    if line.joined and known:
        strokes = _strokes(points if axis.kind == "time" else known)  # over time, gaps stay gaps
        yield (
            f'<svg viewBox="0 0 {UNITS} {UNITS}" preserveAspectRatio="none" width="100%" height="100%">'
            f'<path class="line {_look(number)}" d="{strokes}"/></svg>'
        )
    for at, interval in zip(axis.positions, line.intervals, strict=False):
        if interval:
            place, (low, high) = _percent(x.place(at)), (_percent(1 - y.place(end)) for end in interval)
            yield f'<line class="line {_look(number)}" x1="{place}" x2="{place}" y1="{low}" y2="{high}"/>'
    # A few markers tell lines apart; with gaps, each point needs one, as it may have no neighbour.
    few = len(known) == len(points) and line.joined
    for across, down in known[:: max(1, len(known) // MARKED) if few else 1]:
        yield _marker(line, number, _percent(across), _percent(down))
    for at, value in zip(axis.positions, line.values, strict=True):
        if value == math.inf:
            yield _marker(line, number, _percent(x.place(at)), "0", "i")


def _strokes(points: Sequence[tuple[float, float] | None]) -> str:
    """Return the path through the points, interrupted where a point is missing."""
    parts, verb = [], "M"
    for point in points:
        if point is None:
            verb = "M"
            continue
        parts.append(f"{verb}{round(point[0] * UNITS)} {round(point[1] * UNITS)}")
        verb = "L"
    return "".join(parts)
