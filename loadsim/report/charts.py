"""Charts as SVG within a page: no script, no address, the same bytes for the same figures.

Matplotlib (the extra `report`) draws them, and is imported with the first chart. Colours are those of Okabe and Ito,
which most colour-blind readers can distinguish; each line also has its own dash and marker.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from loadsim.errors import ConfigError
from loadsim.report.document import Axis, Chart, Line, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Okabe and Ito's, without the yellow, which is hard to see on white (Color Universal Design, 2008)."""

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
INFINITE = "^"
"""The marker at the upper edge of a panel, for a figure that is infinite."""

WIDTH_IN = 8.0
"""The width of a chart in inches; a page scales it to its own width."""

HEIGHT_IN = {1: 2.0, 2: 1.8, 3: 1.3}
"""The height of a panel without its texts, by the number of panels in a row; a single panel is higher."""

ALONE_IN = 2.7

LEFT_IN, RIGHT_IN, ABOVE_IN, BELOW_IN = 0.65, 0.12, 0.32, 0.42
"""Room for the texts around a panel, in inches. Computing it would take most of the time of a chart."""

LEGEND_IN = 1.5
"""Room to the right of a panel with more lines than fit above it."""

MOST_ABOVE = 4

SECOND_ROW_IN = 0.2
"""Height of a legend below a title, for panels without room next to the title."""

LETTER_IN, SAMPLE_IN = 0.062, 0.45
"""The approximate width of a letter of title and legend, and of a line's sample with its margins."""

LEAST_MS = 0.001
"""The smallest figure on a logarithmic scale: logs have whole microseconds."""

PERCENT_TICKS = (0, 50, 90, 95, 99, 99.9, 99.99, 99.999, 99.9999, 99.99999)

STYLE: Any = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib: texts take the same room on every machine
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "svg.fonttype": "none",  # texts stay texts, to be found and read aloud
    "text.parse_math": False,  # a $ in a name is a $
}

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def check_drawing() -> None:
    """Raise `ConfigError` if charts cannot be drawn."""
    if find_spec("matplotlib") is None:
        raise ConfigError("report: expected matplotlib to be installed, found none: pip install 'loadsim[report]'")


def svg(chart: Chart, number: int) -> str:
    """Return the chart as an SVG element; a different `number` for each chart of a page keeps its ids unique."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # ignore the user's matplotlibrc
        matplotlib.rcParams.update(STYLE)
        matplotlib.rcParams["svg.hashsalt"] = f"loadsim-{number}"
        across = min(chart.across, len(chart.panels))
        down = math.ceil(len(chart.panels) / across)
        figure = Figure()
        crowded = _crowded(chart.panels, across)
        axes = _places(figure, chart.panels, across, down, SECOND_ROW_IN if crowded else 0)
        for panel, place in zip(chart.panels, axes, strict=False):
            _draw(panel, chart, place)
            if crowded:
                place.set_title(panel.title, loc="left", pad=6 + 72 * SECOND_ROW_IN)
        for empty in axes[len(chart.panels) :]:
            empty.set_visible(False)
        _add_legends(chart.panels, figure, crowded)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata=NO_METADATA)
    return _inline(drawn.getvalue(), chart.caption)


def _right_in(panels: Sequence[Panel]) -> float:
    return RIGHT_IN + (LEGEND_IN if any(len(panel.lines) > MOST_ABOVE for panel in panels) else 0)


def _crowded(panels: Sequence[Panel], across: int) -> bool:
    """Return True if the legend of a panel does not fit next to its title."""
    if _have_one_legend(panels):
        return False
    room_in = WIDTH_IN / across - LEFT_IN - _right_in(panels)
    return any(
        len(panel.title) * LETTER_IN + sum(SAMPLE_IN + len(line.name) * LETTER_IN for line in panel.lines) > room_in
        for panel in panels
        if 1 < len(panel.lines) <= MOST_ABOVE and panel.title
    )


def _places(figure: Figure, panels: Sequence[Panel], across: int, down: int, more_in: float) -> list[Axes]:
    """Size the figure, and return the axes of the panels, row by row, each with `more_in` more room above it."""
    right_in = _right_in(panels)
    above_in = ABOVE_IN if _have_one_legend(panels) else 0
    width_in = (WIDTH_IN - across * (LEFT_IN + right_in)) / across
    each_in = ALONE_IN if len(panels) == 1 else HEIGHT_IN[across]
    own_in = ABOVE_IN + more_in
    height_in = down * (own_in + each_in + BELOW_IN) + above_in
    figure.set_size_inches(WIDTH_IN, height_in)
    figure.subplots_adjust(
        left=LEFT_IN / WIDTH_IN,
        right=1 - right_in / WIDTH_IN,
        bottom=BELOW_IN / height_in,
        top=1 - (own_in + above_in) / height_in,
        wspace=(LEFT_IN + right_in) / width_in,
        hspace=(own_in + BELOW_IN) / each_in,
    )
    return list(figure.subplots(down, across, squeeze=False).flat)


def _draw(panel: Panel, chart: Chart, place: Axes) -> None:
    for number, line in enumerate(panel.lines):
        _draw_line(line, number, chart.axis, panel, place)
    if chart.shaded is not None:
        place.axvspan(*chart.shaded, color="#000000", alpha=0.06, linewidth=0)
    place.set_title(panel.title, loc="left")
    place.set_xlabel(chart.axis.title)
    place.set_ylabel(panel.y_title)
    _scale_x(chart.axis, place)
    _scale_y(panel, place)
    for limit in panel.limits:
        place.axhline(limit.value, color="#444444", linewidth=1, linestyle=(0, (8, 3)))
        place.annotate(
            limit.name,
            xy=(1, limit.value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            color="#444444",
            bbox={"facecolor": "#ffffff", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )


def _draw_line(line: Line, number: int, axis: Axis, panel: Panel, place: Axes) -> None:
    least = LEAST_MS if panel.scale == "log" else -math.inf
    figures = [math.nan if value in (None, math.inf) else max(value, least) for value in line.values]
    known = [index for index, value in enumerate(figures) if not math.isnan(value)]
    if axis.kind != "time":  # in time, a gap is a gap
        axis_positions, figures = [axis.positions[index] for index in known], [figures[index] for index in known]
    else:
        axis_positions = list(axis.positions)
    place.plot(
        axis_positions,
        figures,
        label=line.name,
        color=COLOURS[number % len(COLOURS)],
        linestyle=DASHES[number % len(DASHES)] if line.joined else "none",
        marker=MARKERS[number % len(MARKERS)],
        # Some markers distinguish lines; with gaps, each point needs one, as it may have no neighbour.
        markevery=max(1, len(figures) // 8) if len(known) == len(figures) and line.joined else None,
    )
    infinite = [at for at, value in zip(axis.positions, line.values, strict=True) if value == math.inf]
    if infinite:
        place.plot(
            infinite,
            [1.0] * len(infinite),
            transform=place.get_xaxis_transform(),  # 1.0 is the upper edge
            color=COLOURS[number % len(COLOURS)],
            linestyle="none",
            marker=INFINITE,
            clip_on=False,
        )


def _scale_x(axis: Axis, place: Axes) -> None:
    if axis.kind == "time":
        place.margins(x=0.01)
        place.set_xlim(left=0 if min(axis.positions) >= 0 else None)
    elif axis.kind == "tail":
        from matplotlib.ticker import NullLocator

        place.set_xscale("log")
        ticks = [(100 / (100 - percent), f"{percent:g} %") for percent in PERCENT_TICKS]
        kept = [(at, name) for at, name in ticks if at <= max(axis.positions) * 1.01]
        place.set_xticks([at for at, _ in kept], [name for _, name in kept])
        place.xaxis.set_minor_locator(NullLocator())
    else:
        place.set_xlim(left=0)


def _scale_y(panel: Panel, place: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    shown = [value for line in panel.lines for value in line.values if value not in (None, math.inf)]
    shown += [limit.value for limit in panel.limits]
    if panel.scale == "log":
        lowest, highest = max(min(shown, default=LEAST_MS), LEAST_MS) / 1.6, max([*shown, LEAST_MS]) * 1.6
        decades = math.log10(highest / lowest)
        place.set_yscale("log")
        place.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))
        place.yaxis.set_minor_locator(NullLocator())
        place.set_ylim(lowest, highest)
    else:
        if panel.scale == "symlog":
            place.set_yscale("symlog", linthresh=1)
        above = 1.6 if panel.scale == "symlog" else 1.08  # room for the name of a limit
        place.set_ylim(0, max([*shown, 0]) * above or 1)
    place.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _have_one_legend(panels: Sequence[Panel]) -> bool:
    names = [[line.name for line in panel.lines] for panel in panels]
    return len(panels) > 1 and all(each == names[0] for each in names)


def _add_legends(panels: Sequence[Panel], figure: Figure, crowded: bool) -> None:
    """Add one legend if all panels have the same lines, otherwise one for each panel with several lines."""
    if _have_one_legend(panels):
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper right", ncols=len(labels), borderaxespad=0)
        return
    for panel, place in zip(panels, figure.axes, strict=False):
        if len(panel.lines) > MOST_ABOVE:
            place.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        elif len(panel.lines) > 1 or len(panels) == 1:
            at = 0.0 if crowded else 1.0
            corner: Literal["lower left", "lower right"] = "lower left" if crowded else "lower right"
            place.legend(loc=corner, bbox_to_anchor=(at, 1.0), ncols=len(panel.lines), borderaxespad=0.2)


_OUTSIDE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", re.DOTALL)
_NAMESPACE = re.compile(r' xmlns(?::\w+)?="[^"]*"')
_GROUP_NAME = re.compile(r'<g id="[^"]*"')
_HEAD = re.compile(r'<svg\b[^>]*\b(viewBox="[^"]*")[^>]*>')


def _inline(drawn: str, caption: str) -> str:
    """Return the element for a page from the file that matplotlib writes, without the parts that only a file needs.

    HTML implies the namespaces (HTML standard, section 13.2.6.5), and ids of groups would repeat in a page.
    """
    head = _HEAD.search(drawn)
    assert head is not None, "matplotlib writes a viewBox"
    body = _GROUP_NAME.sub("<g", _NAMESPACE.sub("", _OUTSIDE.sub("", drawn[head.end() :])))
    return f'<svg {head[1]} role="img" aria-label="{escape(caption)}">{body.strip()}'
