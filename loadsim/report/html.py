"""A report as one HTML file that needs nothing else: no script, no network, no other file; on screen and in print."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape

from loadsim.report.charts import drawn, markers
from loadsim.report.document import (
    FAILED,
    MET,
    MISSED,
    PASSED,
    Block,
    Cell,
    Column,
    Document,
    Drawing,
    Link,
    Listing,
    Section,
    Table,
)
from loadsim.report.style import STYLE


def policy(style: str) -> str:
    """Return the content security policy of a page: it loads and runs nothing, and has no style but this one.

    Source: Content Security Policy Level 3, section 6.7.3.3.
    """
    style_hash = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{style_hash}'; base-uri 'none'; form-action 'none'"


SIGNS = {"good": "\N{CHECK MARK}", "doubtful": "!", "bad": "\N{MULTIPLICATION SIGN}"}
"""Signs before the verdict, which do not depend on its colour."""

SHORT_ROWS = 24
"""Tables of at most this many rows stay together on a printed page."""


RATED = {MET: "met", PASSED: "met", MISSED: "missed", FAILED: "missed"}
"""The classes of cells with a rating."""

FITTING_COLUMNS = 2
"""Tables of at most this many columns fit on a narrow screen; those with more stack."""

ROLES = {
    "table": "table",
    "thead": "rowgroup",
    "tbody": "rowgroup",
    "tr": "row",
    'th scope="col"': "columnheader",
    'th scope="row"': "rowheader",
    "td": "cell",
}
"""The role of each element of a table. Escaped texts cannot contain one of these tags."""


def to_html(document: Document) -> str:
    """Return the whole file."""
    title = escape(document.title)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy(STYLE)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>",
            f'<p class="subtitle">{escape(document.subtitle)}</p>',
            f'<p class="verdict {document.tone}"><span aria-hidden="true">{SIGNS[document.tone]}</span>'
            f" {escape(document.verdict)}</p>\n</header>\n<main>",
            markers(),
            *map(_section, document.sections),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _section(section: Section) -> str:
    return "\n".join(["<section>", f"<h2>{escape(section.title)}</h2>", *map(_block, section.blocks), "</section>"])


def _block(block: Block) -> str:
    if isinstance(block, Drawing):
        return f"<figure>\n<figcaption>{escape(block.caption)}</figcaption>\n{block.html}</figure>"
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Listing):
        items = "".join(f"<li>{escape(item)}</li>" for item in block.items)
        return f'<p class="listing">{escape(block.caption)}</p>\n<ul>{items}</ul>'
    if isinstance(block, Table):
        if block.folded:
            return f"<details>\n<summary>{escape(block.caption)}</summary>\n{_table(block, stacks=False)}\n</details>"
        return _table(block, stacks=True)
    return (
        f"<figure>\n<figcaption>{escape(block.caption)}</figcaption>\n{drawn(block)}\n<details>"
        f"<summary>The figures of this chart</summary>\n{_table(block.table(), stacks=False)}\n</details>\n</figure>"
    )


def _table(table: Table, stacks: bool) -> str:
    """Return a table. On a narrow screen it scrolls by itself, or stacks: each cell has a line with its label.

    Roles keep a stacked table a table for screen readers: its rows are displayed as blocks.
    """
    stacks = stacks and len(table.columns) > FITTING_COLUMNS
    columns, caption = table.columns, escape(table.caption)
    heads = "".join(f'<th scope="col"{_class(column)}>{escape(column.title)}</th>' for column in columns)
    rows = "\n".join(f"<tr>{_row(columns, row, stacks)}</tr>" for row in table.rows)
    kind = ("stack" if stacks else "scroll") + (" short" if len(table.rows) <= SHORT_ROWS else "")
    element = f"<table><caption>{caption}</caption>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
    if stacks:
        for tag, role in ROLES.items():
            element = element.replace(f"<{tag}", f'<{tag} role="{role}"')
    return f'<div class="{kind}" role="region" aria-label="{caption}" tabindex="0">{element}</div>'


def _row(columns: tuple[Column, ...], row: tuple[Cell, ...], stacks: bool) -> str:
    shown = [_cell(column, cell) for column, cell in zip(columns, row, strict=True)]
    cells = [
        f"<td{_class(column, cell)}{_label(column) if stacks else ''}>{cell}</td>"
        for column, cell in zip(columns[1:], shown[1:], strict=True)
    ]
    return f'<th scope="row"{_class(columns[0])}>{shown[0]}</th>{"".join(cells)}'


def _cell(column: Column, cell: Cell) -> str:
    text = escape(column.shown(cell)).replace("_", "_<wbr>")  # a long key breaks between its words
    return f'<a href="{escape(cell.place)}">{text}</a>' if isinstance(cell, Link) else text


def _class(column: Column, shown: str = "") -> str:
    kind = RATED.get(shown, "") if column.digits is None else "figure"
    return f' class="{kind}"' if kind else ""


def _label(column: Column) -> str:
    return f' data-label="{escape(column.title)}"'
