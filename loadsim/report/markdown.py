"""A report in GitHub's Markdown; charts become folded tables of their figures."""

from __future__ import annotations

import re

from loadsim.report.document import Block, Cell, Chart, Column, Document, Link, Listing, Table

_SIGNIFICANT = re.compile(r"([\\`*_\[\]|~#])")
_SPACE = re.compile(r"\s+")


def to_markdown(document: Document) -> str:
    parts = [f"# {_text(document.title)}", _text(document.subtitle), f"**{_text(document.banner)}**"]
    for section in document.filled:
        parts += [f"## {_text(section.title)}"] if section.title else []
        parts += [_block(block) for block in section.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, str):
        return _text(block)
    if isinstance(block, Listing):
        return "\n".join([f"{_text(block.caption)}:", "", *(f"- {_text(item)}" for item in block.texts)])
    table = block.table() if isinstance(block, Chart) else block
    if table.folded:
        return f"<details><summary>{_text(table.caption)}</summary>\n\n{_table(table)}\n\n</details>"
    return f"**{_text(table.caption)}**\n\n{_table(table)}"


def _table(table: Table) -> str:
    rules = ["---" if column.digits is None else "---:" for column in table.columns]
    rows = [
        [_text(column.title) for column in table.columns],
        rules,
        *([_cell(column, cell) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(column: Column, cell: Cell) -> str:
    text = _text(column.shown(cell))
    return f"[{text}]({cell.place})" if isinstance(cell, Link) else text


def _text(text: str) -> str:
    """Return a text on one line, with the special characters of Markdown and HTML escaped."""
    plain = _SIGNIFICANT.sub(r"\\\1", _SPACE.sub(" ", text))
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
