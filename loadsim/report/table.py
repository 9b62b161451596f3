"""A table as lines of plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the text of a plan needs no analysis
    from loadsim.report.document import Table


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align the first column left and the others right, with two spaces between; rows have equal lengths."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def text_table(found: Table) -> list[str]:
    """Return the columns and rows of a table, without its caption."""
    return table(shown_rows(found))


def shown_rows(found: Table) -> list[list[str]]:
    """Return the titles of a table's columns, and its rows, as text."""
    rows = ([column.shown(cell) for column, cell in zip(found.columns, row, strict=True)] for row in found.rows)
    return [[column.title for column in found.columns], *rows]
