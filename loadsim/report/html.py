"""A report as one HTML file that needs nothing else: no script, no network, no other file; on screen and in print."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import count

from loadsim.report.charts import svg
from loadsim.report.document import Block, Cell, Column, Document, Listing, Section, Table

FILE_NAME = "report.html"
"""The page's default file name, also in a run directory."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""The page's content security policy."""

SIGNS = {"good": "\N{CHECK MARK}", "doubtful": "!", "bad": "\N{MULTIPLICATION SIGN}"}
"""Signs before the verdict, which do not depend on its colour."""

SHORT_ROWS = 24
"""Tables of at most this many rows stay together on a printed page."""

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --soft: #444; --line: #bbb; --thin: #ddd;
  --good: #00664b; --good-back: #eef8f4; --doubt: #8a5a00; --doubt-back: #fdf6e7; --bad: #a83f00; --bad-back: #fdf0ea; }
@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #16191d; --ink: #e8e8e8; --soft: #b8bcc2; --line: #6a6f76; --thin: #3a3f46; --good: #4fc7a0;
    --good-back: #10261f; --doubt: #e0a94a; --doubt-back: #2a2110; --bad: #ff9a66; --bad-back: #2e1a12; }
  svg { background: #fff; border-radius: .3rem; }
}
body { margin: 0 auto; max-width: 66rem; padding: 1.5rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", "DejaVu Sans", Arial, sans-serif; }
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.2rem 0 .6rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
.subtitle { margin: .2rem 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
.verdict { margin: 1rem 0; padding: .7rem 1rem; border: 1px solid; border-left-width: .6rem; font-size: 1.2rem;
  font-weight: 600; }
.good { border-color: var(--good); background: var(--good-back); }
.doubtful { border-color: var(--doubt); background: var(--doubt-back); }
.bad { border-color: var(--bad); background: var(--bad-back); }
.listing { margin: .6rem 0 .2rem; font-weight: 600; }
ul { margin: 0 0 .8rem; padding-left: 1.4rem; }
li { overflow-wrap: anywhere; }
.scroll { margin: 1rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
caption { padding: .2rem 0; text-align: left; font-weight: 600; }
th, td { padding: .22rem .5rem; border-bottom: 1px solid var(--thin); text-align: left; vertical-align: top; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; }
tbody th { min-width: 7rem; font-weight: 500; }
tbody th.figure { min-width: 0; }
td { min-width: 5rem; overflow-wrap: anywhere; }
td.figure { min-width: 0; }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
thead .figure { white-space: normal; }
figure { margin: 1.2rem 0; }
figcaption { font-weight: 600; font-size: .9rem; }
svg { display: block; width: 100%; height: auto; }
.drawing { overflow-x: auto; }
svg * { stroke-linejoin: round; stroke-linecap: butt; }
details { margin: .3rem 0; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); }
@media screen and (max-width: 44rem) {
  body { padding: 1rem; }
  .drawing svg { width: 42rem; }
}
@page { margin: 15mm; }
@media print {
  html { font-size: 9pt; }
  body { max-width: none; padding: 0; }
  h2 { margin-top: 1.4rem; }
  h2, h2 + p { break-after: avoid; }
  table { font-size: .875rem; }
  th, td { padding: .12rem .35rem; }
  figure, p, tr, .short, .verdict { break-inside: avoid; }
  .listing, caption, thead, tbody tr:first-child { break-after: avoid; }
  thead { display: table-header-group; }
  .scroll, .drawing { overflow: visible; }
  details { display: none; }
  .verdict { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""


def to_html(document: Document) -> str:
    """Return the whole file. Raises `ModuleNotFoundError` without matplotlib: see `charts.check_drawing`."""
    numbers = count(1)
    title = escape(document.title)
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>",
            f'<p class="subtitle">{escape(document.subtitle)}</p>',
            f'<p class="verdict {document.tone}"><span aria-hidden="true">{SIGNS[document.tone]}</span>'
            f" {escape(document.verdict)}</p>\n</header>\n<main>",
            *(_section(section, numbers) for section in document.sections),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _section(section: Section, numbers: Iterator[int]) -> str:
    blocks = [_block(block, numbers) for block in section.blocks]
    return "\n".join(["<section>", f"<h2>{escape(section.title)}</h2>", *blocks, "</section>"])


def _block(block: Block, numbers: Iterator[int]) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>"
    if isinstance(block, Listing):
        items = "".join(f"<li>{escape(item)}</li>" for item in block.items)
        return f'<p class="listing">{escape(block.caption)}</p>\n<ul>{items}</ul>'
    if isinstance(block, Table):
        return _table(block)
    return (
        f"<figure>\n<figcaption>{escape(block.caption)}</figcaption>\n"
        f'<div class="drawing" role="group" aria-label="{escape(block.caption)}" tabindex="0">'
        f"{svg(block, next(numbers))}</div>\n<details>"
        f"<summary>The figures of this chart</summary>\n{_table(block.table())}\n</details>\n</figure>"
    )


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col"{_class(column)}>{escape(column.title)}</th>' for column in table.columns)
    rows = "\n".join(f"<tr>{_row(table.columns, row)}</tr>" for row in table.rows)
    caption = escape(table.caption)
    short = " short" if len(table.rows) <= SHORT_ROWS else ""
    return (
        f'<div class="scroll{short}" role="region" aria-label="{caption}" tabindex="0">'
        f"<table><caption>{caption}</caption>\n"
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
    )


def _row(columns: tuple[Column, ...], row: tuple[Cell, ...]) -> str:
    shown = [escape(column.shown(cell)) for column, cell in zip(columns, row, strict=True)]
    cells = [f"<td{_class(column)}>{cell}</td>" for column, cell in zip(columns[1:], shown[1:], strict=True)]
    return f'<th scope="row"{_class(columns[0])}>{shown[0]}</th>{"".join(cells)}'


def _class(column: Column) -> str:
    return "" if column.digits is None else ' class="figure"'
