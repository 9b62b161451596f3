"""The parts of a report by their titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.report.document import Block, Chart, Document, Listing, Table


def tables(blocks: Iterable[Block]) -> list[Table]:
    """The tables and the charts, these as tables."""
    found = (block.table() if isinstance(block, Chart) else block for block in blocks)
    return [block for block in found if isinstance(block, Table)]


def all_tables(document: Document) -> list[Table]:
    """Those of all sections."""
    return [table for section in document.sections for table in tables(section.blocks)]


def section(document: Document, title: str) -> Sequence[Any]:
    """The blocks of a section."""
    (found,) = (one for one in document.sections if one.title == title)
    return found.blocks


def table(document: Document, title: str, caption: str) -> Mapping[Any, Sequence[Any]]:
    """The rows of a table of a section, by their first cells."""
    (found,) = (one for one in section(document, title) if isinstance(one, Table) and one.caption.startswith(caption))
    return {row[0]: row[1:] for row in found.rows}


def listed(document: Document, caption: str) -> tuple[str, ...]:
    """The items of a list of the first section; none without it."""
    found = (one for one in document.sections[0].blocks if isinstance(one, Listing))
    return next((one.items for one in found if one.caption.startswith(caption)), ())
