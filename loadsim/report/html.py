"""A report as one self-contained HTML file, without scripts, for screen and print."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from html import escape

from loadsim.findings.catalogue import Code
from loadsim.report.charts import bar, drawn, markers
from loadsim.report.document import (
    FAILED,
    MET,
    MISSED,
    PASSED,
    Bar,
    Block,
    Cell,
    Column,
    Document,
    Item,
    Link,
    Listing,
    Section,
    Table,
)
from loadsim.report.style import STYLE


def hashed(text: str) -> str:
    """Return the hash source of a style or script for a page's policy (Content Security Policy Level 3, 6.7.3.3)."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = f"default-src 'none'; style-src {hashed(STYLE)}; base-uri 'none'; form-action 'none'"
"""A page's content security policy: it loads and runs nothing, and has only this style."""

SIGNS = {"good": "\N{CHECK MARK}", "doubtful": "!", "bad": "\N{MULTIPLICATION SIGN}"}
"""Signs before the verdict, which show its rating without colour."""

SHORT_ROWS = 24
"""Tables of at most this many rows stay together on a printed page."""


RATED = {MET: "met", PASSED: "met", MISSED: "missed", FAILED: "missed"}
"""Classes of cells with a rating."""


def to_html(document: Document) -> str:
    title = escape(document.title)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>",
            f'<p class="subtitle">{escape(document.subtitle)}</p>',
            f'<p class="verdict {document.tone}"><span aria-hidden="true">{SIGNS[document.tone]}</span>'
            f" {escape(document.banner)}</p>\n</header>\n<main>",
            markers(),
            *map(_section, document.filled),
            *_codes(document.codes),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _section(section: Section) -> str:
    heading = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    return "\n".join(["<section>", *heading, *map(_block, section.blocks), "</section>"])


def _codes(codes: Sequence[Code]) -> Iterator[str]:
    """Yield the section that explains the findings' codes; lists link to it."""
    if codes:
        meanings = {code.id: ". ".join(filter(None, (code.outline, code.remedy))) for code in codes}
        rows = (f'<dt id="{code}">{code}</dt>\n<dd>{escape(words)}.</dd>' for code, words in meanings.items())
        yield "\n".join(["<section>", "<h2>Findings of this report</h2>", "<dl>", *rows, "</dl>", "</section>"])


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Listing):
        items = "".join(f"<li>{_item(item)}</li>" for item in block.items)
        return f'<p class="listing">{escape(block.caption)}</p>\n<ul>{items}</ul>'
    if isinstance(block, Table):
        if block.folded:
            return f"<details>\n<summary>{escape(block.caption)}</summary>\n{_table(block)}\n</details>"
        return _table(block)
    return (
        f"<figure>\n<figcaption>{escape(block.caption)}</figcaption>\n{drawn(block)}\n<details>"
        f"<summary>The figures of this chart</summary>\n{_table(block.table())}\n</details>\n</figure>"
    )


def _item(item: str | Item) -> str:
    if isinstance(item, str):
        return escape(item)
    return f'{escape(item.words)} <a class="code" href="#{item.code.id}">{item.code.id}</a>'


def _table(table: Table) -> str:
    """Return a table that scrolls separately if it is wider than the page."""
    caption = escape(table.caption)
    heads = "".join(f'<th scope="col"{_class(column)}>{escape(column.title)}</th>' for column in table.columns)
    rows = "\n".join(f"<tr>{_row(table.columns, row)}</tr>" for row in table.rows)
    kind = "scroll short" if len(table.rows) <= SHORT_ROWS else "scroll"
    return (
        f'<div class="{kind}" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(columns: tuple[Column, ...], row: tuple[Cell, ...]) -> str:
    head, *cells = (f"{_class(column, cell)}>{_cell(column, cell)}" for column, cell in zip(columns, row, strict=True))
    return f'<th scope="row"{head}</th>{"".join(f"<td{cell}</td>" for cell in cells)}'


def _cell(column: Column, cell: Cell) -> str:
    text = escape(column.shown(cell)).replace("_", "_<wbr>")  # a long key may break between its words
    if isinstance(cell, Bar):
        return f"{bar(cell)}{text}"
    return f'<a href="{escape(cell.place)}">{text}</a>' if isinstance(cell, Link) else text


def _class(column: Column, cell: Cell = "") -> str:
    kind = RATED.get(str(cell), "") if column.digits is None else "figure"
    return f' class="{kind}"' if kind else ""
