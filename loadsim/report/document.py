"""A report as data: sections of texts, tables and charts, from which HTML, Markdown and plain text are made.

A chart consists of its figures. `charts` draws it; Markdown has it as a table.
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
    """A text of a table that leads to a place relative to the report; formats without links have the text."""

    __slots__ = ("place",)
    place: str

    def __new__(cls, text: str, place: str) -> Link:
        link = super().__new__(cls, text)
        link.place = place
        return link


class Bar(str):
    """A text of a table with an interval, which a page draws: its ends and a figure, from 0 to 1 across the column.

    The middle of the column has a line for no change. `look` is a class of the style sheet.
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
"""A cell of a table; None if it is unknown."""

MET, MISSED, UNJUDGED = "\N{CHECK MARK} met", "\N{MULTIPLICATION SIGN} missed", "- not judged"
PASSED, FAILED = "\N{CHECK MARK} passed", "\N{MULTIPLICATION SIGN} failed"
"""Cells that a page colours: the signs do not depend on it."""

Digits = int | Literal["time"] | None
"""The decimals of the figures of a column; `time` for milliseconds, shown with their unit; None for words."""


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

    `folded`: a page shows it only on request, and not in print.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


ColumnOf = tuple[str, Digits, Callable[[T], Cell]]
"""A column's title, its digits, and the cell of a thing in it."""


def table_of(caption: str, things: Iterable[T], *columns: ColumnOf[T]) -> Table:
    return Table(
        caption,
        tuple(Column(title, digits) for title, digits, _ in columns),
        tuple(tuple(cell(thing) for *_, cell in columns) for thing in things),
    )


@dataclass(frozen=True, slots=True)
class Item:
    """A text of a list that states a finding."""

    words: str
    code: Code

    @property
    def text(self) -> str:
        return f"{self.words} [{self.code.id}]"


def item_of(found: Finding) -> Item:
    return Item(found.words, found.code)


@dataclass(frozen=True, slots=True)
class Listing:
    """Short texts below each other."""

    caption: str
    items: tuple[str | Item, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The items in words; findings end with their codes."""
        return tuple(item.text if isinstance(item, Item) else item for item in self.items)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a panel: a figure, perhaps infinite, or None for each position. `joined`: points are connected.

    `intervals` are drawn around the figures, if any; None for a figure without one. `look` is the number of its colour,
    dash and marker; by default, that of its place among the lines that are drawn. `hollow`: figures of invalid runs.
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
    """A figure that should not be exceeded, or not be reached; its name states it."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one axis, in one unit. `digits` are those of the figures in the table."""

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

    kind: `time` in the unit of the title, or `count`. `span`: the ends of the axis, if points do
    not reach them. `unit`: the sign that the first figure of each panel's axis has.
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
    """Panels side by side, at most `across`. `shaded` is a range of the axis, with a name."""

    caption: str
    axis: Axis
    panels: tuple[Panel, ...]
    across: int = 1
    shaded: tuple[float, float] | None = None
    shaded_name: str = "window"

    def table(self) -> Table:
        """Return a column for each line, without times of invalid runs, which must not be quoted."""
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
"""A paragraph, or one of the others."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks below it. `brief`: it is part of the answer that a terminal shows."""

    title: str
    blocks: tuple[Block, ...]
    brief: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A report. `verdict` is one line, and `tone` its rating; `label` precedes the verdict in plain text."""

    title: str
    subtitle: str
    verdict: str
    tone: Tone
    sections: tuple[Section, ...]
    label: str = "Verdict"

    @property
    def banner(self) -> str:
        """The verdict, with a capital letter."""
        return f"{self.verdict[:1].upper()}{self.verdict[1:]}"

    @property
    def filled(self) -> tuple[Section, ...]:
        return tuple(section for section in self.sections if section.blocks)

    @property
    def codes(self) -> tuple[Code, ...]:
        """The codes of the findings in lists, each once."""
        listings = (block for section in self.sections for block in section.blocks if isinstance(block, Listing))
        items = (item for listing in listings for item in listing.items)
        return tuple(dict.fromkeys(item.code for item in items if isinstance(item, Item)))


def figures(values: Iterable[float]) -> tuple[float | None, ...]:
    """Return an array as figures of a line, with None for NaN."""
    return tuple(None if math.isnan(value) else float(value) for value in values)


def drawable(chart: Chart) -> Chart | None:
    """Return the chart without empty lines and panels; None if nothing is left."""
    panels = (replace(panel, lines=tuple(filter(None, panel.lines))) for panel in chart.panels)
    kept = tuple(panel for panel in panels if panel.lines)
    return replace(chart, panels=kept) if kept else None
