"""The parts of a report by their titles."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadsim.analysis.summary import Summary
from loadsim.report.answer import describe_answer
from loadsim.report.document import Block, Chart, Document, Listing, Table
from loadsim.report.text import to_text


def full_answer(summary: Summary) -> str:
    return to_text(describe_answer(summary), whole=True)


def short_answer(summary: Summary, width: int = 80) -> str:
    return to_text(describe_answer(summary), width)


def tables(blocks: Iterable[Block]) -> list[Table]:
    found = (block.table() if isinstance(block, Chart) else block for block in blocks)
    return [block for block in found if isinstance(block, Table)]


def all_tables(document: Document) -> list[Table]:
    return [table for section in document.sections for table in tables(section.blocks)]


def section(document: Document, title: str) -> Sequence[Any]:
    (found,) = (one for one in document.sections if one.title == title)
    return found.blocks


def table(document: Document, caption: str) -> Mapping[Any, Sequence[Any]]:
    """The rows of the tables with such captions, by their first cells."""
    return {
        row[0]: row[1:]
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Table) and block.caption.startswith(caption)
        for row in block.rows
    }


def listed(document: Document, caption: str) -> tuple[str, ...]:
    blocks = (block for section in document.sections for block in section.blocks)
    found = (block for block in blocks if isinstance(block, Listing))
    return next((one.texts for one in found if one.caption.startswith(caption)), ())
