"""A report as plain text: a coloured verdict, wrapped lines, lists, and tables that fit."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from loadsim.errors import printable
from loadsim.report.document import Block, Document, Listing, Table

LEAST_WIDTH = 40
"""Narrower terminals get lines of this width."""

MOST_WITH_UNIT = 2
"""With more columns of times, their unit moves to the caption."""

_NO_BREAK = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|%|MiB|x)\b|%)|(?<=\(limit) (?=\d)")
"""The space between a figure and its unit, or after `(limit`."""

_COLOURS = {"good": "32", "doubtful": "33", "bad": "31"}
"""SGR codes (ECMA-48 section 8.3.117) by the tone of a verdict."""


def to_text(document: Document, width: int | None = None, colours: bool = False, *, whole: bool = False) -> str:
    """Return the verdict and the brief sections, or the `whole` document, without charts, ending with a line break.

    Lines have at most `width` columns; None leaves them unwrapped. `colours`: the verdict is coloured.
    """
    width = None if width is None else max(width, LEAST_WIDTH)
    label = f"{document.label}: " if document.label else ""
    lines = wrapped([printable(f"{label}{document.verdict}")], width)
    if colours:
        lines = [f"\x1b[1;{_COLOURS[document.tone]}m{line}\x1b[0m" for line in lines]
    if whole:
        lines += wrapped(map(printable, filter(None, (document.title, document.subtitle))), width)
    for section in document.filled:
        if whole or section.brief:
            below = [line for block in section.blocks for line in _lines(block, width)]
            heading = ["", printable(section.title), "-" * len(section.title)] if whole and section.title else []
            lines += [*heading, *below] if below else []
    return "\n".join(lines) + "\n"


def _lines(block: Block, width: int | None) -> list[str]:
    if isinstance(block, str):
        return wrapped([printable(block)], width)
    if isinstance(block, Listing):
        return wrapped([f"{block.caption}:", *(f"  - {printable(text)}" for text in block.texts)], width)
    return ["", *_table_lines(block, width)] if isinstance(block, Table) else []


def _table_lines(table: Table, width: int | None) -> list[str]:
    """Return the caption and the rows. A table of facts has a line for each fact: its name and value.

    Columns that do not fit are left out, the last one first. A table of words that does not fit becomes one of facts,
    with a line for its headings. Several columns of times omit their unit.
    """
    of_words = all(column.digits is None for column in table.columns)
    if of_words and len(table.columns) == 2:
        return wrapped([f"{printable(str(name))}: {printable(str(value))}" for name, value in table.rows], width)
    head = [column.title for column in table.columns]
    bare = sum(column.digits == "time" for column in table.columns) > MOST_WITH_UNIT
    rows = [
        [
            printable(column.shown(cell)).removesuffix(" ms" if bare and column.digits == "time" else "")
            for column, cell in zip(table.columns, row, strict=True)
        ]
        for row in table.rows
    ]
    right = [column.digits is not None for column in table.columns]
    caption = wrapped([printable(table.caption + (" (ms)" if bare else ""))], width)
    lines = aligned([head, *rows], right)
    if width is not None and max(map(len, lines)) > width:
        if of_words:
            return [*caption, *wrapped([f"{row[0]}: {'; '.join(row[1:])}" for row in (head, *rows)], width)]
        for left in range(len(head) - 1, 1, -1):
            lines = aligned([row[:left] for row in (head, *rows)], right[:left])
            if max(map(len, lines)) <= width:
                break
    return [*caption, *lines]


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return a line for each row, with two spaces between cells; columns marked in `right` are right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    return aligned(rows, [False, *[True] * (len(rows[0]) - 1)])


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """Break lines at spaces, but not between a figure and its unit; indent continuation lines.

    Without a width, lines stay as they are.
    """
    if width is None:
        return list(lines)
    broken = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" -")) + (0 if line.startswith(" ") else 2))
        together = _UNIT.sub(_NO_BREAK, line)
        parts = textwrap.wrap(together, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        broken += [part.replace(_NO_BREAK, " ") for part in parts or [""]]
    return broken
