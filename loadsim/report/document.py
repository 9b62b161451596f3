"""A report as data: sections of text, tables and charts, to be rendered as HTML, Markdown or plain text.

A chart consists of its figures: `charts` draws them, and Markdown shows them as a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.formats import NEVER, duration

if TYPE_CHECKING:
    from loadsim.findings.verdict import Tone

T = TypeVar("T")


class Link(str):
    """A cell that links to a place relative to the report; formats without links show its text."""

    __slots__ = ("place",)
    place: str

    def __new__(cls, text: str, place: str) -> Link:
        link = super().__new__(cls, text)
        link.place = place
        return link


class Bar(str):
    """A cell with an interval that pages draw: its ends and a figure, as positions from 0 to 1 across the column.

    A line down the middle of the column marks no change. `look` is a class of the style sheet.
    """

    __slots__ = ("at", "high", "look", "low")
    low: float
    at: float
    high: float
    look: str

    def __new__(cls, text: str, low: float, at: float, high: float, look: str) -> Bar:
        bar = super().__new__(cls, text)
        bar.low, bar.at, bar.high, bar.look = low, at, high, look
        return bar


Cell = str | int | float | None
"""A cell of a table; None if unknown."""

MET, MISSED, UNJUDGED = "\N{CHECK MARK} met", "\N{MULTIPLICATION SIGN} missed", "- not judged"
PASSED, FAILED = "\N{CHECK MARK} passed", "\N{MULTIPLICATION SIGN} failed"
"""Cells that pages colour; the signs state the result without colour."""

Digits = int | Literal["time"] | None
"""The number of decimal places in a column; `time` for milliseconds, shown with a unit; None for words."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    digits: Digits = None

    def shown(self, cell: Cell) -> str:
        if cell is None:
            return "-"
        if isinstance(cell, str) or self.digits is None:
            return str(cell)
        if self.digits == "time":
            return duration(cell)
        return NEVER if math.isinf(cell) else f"{cell:,.{self.digits}f}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, one for each column; the first cell is the heading of its row.

    `folded`: pages show the table only on request, and never in print.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


ColumnOf = tuple[str, Digits, Callable[[T], Cell]]
"""A column's title, its digits, and the function that returns the cell for an item."""


def table_of(caption: str, things: Iterable[T], *columns: ColumnOf[T]) -> Table:
    return Table(
        caption,
        tuple(Column(title, digits) for title, digits, _ in columns),
        tuple(tuple(cell(thing) for *_, cell in columns) for thing in things),
    )


@dataclass(frozen=True, slots=True)
class Item:
    """A list item that states a finding."""

    words: str
    code: Code

    @property
    def text(self) -> str:
        return f"{self.words} [{self.code.id}]"


def item_of(found: Finding) -> Item:
    return Item(found.words, found.code)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of short texts."""

    caption: str
    items: tuple[str | Item, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The items as text; each finding ends with its code."""
        return tuple(item.text if isinstance(item, Item) else item for item in self.items)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel, with a figure for each position, or None. `joined`: the points are connected.

    `intervals` are drawn around the figures; None stands for a figure without one. `look` is the number of the line's
    colour, dash and marker; by default, the line's place among those drawn. `hollow`: the figures are of invalid runs.
    """

    name: str
    values: tuple[float | None, ...]
    joined: bool = True
    intervals: tuple[tuple[float, float] | None, ...] = ()
    look: int | None = None
    hollow: bool = False

    def __bool__(self) -> bool:
        return any(value is not None for value in self.values)


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that should not be exceeded, or should not even be reached; its name says which."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines sharing one axis and unit. `digits` is the number of decimal places shown in the table."""

    title: str
    y_title: str
    lines: tuple[Line, ...]
    scale: Literal["linear", "log", "symlog"] = "linear"
    digits: int = 1
    limits: tuple[Limit, ...] = ()

    @property
    def is_time(self) -> bool:
        return self.y_title == "ms"


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of all panels of a chart: the positions of points, and their names in a table.

    `kind` is `time` (in the unit of the title) or `count`. `span` is the ends of the axis, if the points do not reach
    them. `unit` is the sign after the first figure on each panel's axis.
    """

    title: str
    kind: Literal["time", "count"]
    positions: tuple[float, ...]
    column: Column
    cells: tuple[Cell, ...]
    span: tuple[float, float] | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Panels, at most `across` of them side by side. `shaded` is a range of the axis, with a name."""

    caption: str
    axis: Axis
    panels: tuple[Panel, ...]
    across: int = 1
    shaded: tuple[float, float] | None = None
    shaded_name: str = "window"

    def table(self) -> Table:
        """Return a column for each line, except times of invalid runs, which must not be quoted."""
        columns = [self.axis.column]
        series: list[tuple[Cell, ...]] = []
        for panel in self.panels:
            for line in panel.lines:
                if line.hollow and panel.is_time:
                    continue
                title = line.name if len(self.panels) == 1 else f"{panel.title}: {line.name}"
                columns.append(Column(title, "time" if panel.is_time else panel.digits))
                series.append(line.values)
        rows = tuple(zip(self.axis.cells, *series, strict=True))
        only = f": {self.panels[0].title}" if len(self.panels) == 1 and self.panels[0].title else ""
        return Table(self.caption + only, tuple(columns), rows, folded=True)


Block = str | Listing | Table | Chart
"""A paragraph, a list, a table or a chart."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks below it. `brief`: the section is part of a terminal's answer."""

    title: str
    blocks: tuple[Block, ...]
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A report. `verdict` is a single line; `tone` is its rating, and `label` precedes it in plain text."""

    title: str
    subtitle: str
    verdict: str
    tone: Tone
    sections: tuple[Section, ...]
    label: str = "Verdict"

    @property
    def banner(self) -> str:
        """The verdict with a capital first letter."""
        return f"{self.verdict[:1].upper()}{self.verdict[1:]}"

    @property
    def filled(self) -> tuple[Section, ...]:
        return tuple(section for section in self.sections if section.blocks)

    @property
    def codes(self) -> tuple[Code, ...]:
        """The codes of all findings in lists, without repetition."""
        listings = (block for section in self.sections for block in section.blocks if isinstance(block, Listing))
        items = (item for listing in listings for item in listing.items)
        return tuple(dict.fromkeys(item.code for item in items if isinstance(item, Item)))


def figures(values: Iterable[float]) -> tuple[float | None, ...]:
    """Return the numbers as a line's figures, with None for NaN."""
    return tuple(None if math.isnan(value) else float(value) for value in values)


def drawable(chart: Chart) -> Chart | None:
    """Return the chart without empty lines and panels, or None if nothing is left."""
    panels = (replace(panel, lines=tuple(filter(None, panel.lines))) for panel in chart.panels)
    kept = tuple(panel for panel in panels if panel.lines)
    return replace(chart, panels=kept) if kept else None
