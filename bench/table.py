"""A table in Markdown, and the place of tables in a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from loadsim.errors import ConfigError

NOTHING = "Nothing was measured."
BEGIN = "<!-- Made by `python -m bench --table`; do not edit. -->"
END = "<!-- The end of what was made. -->"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return the heading, and the rows below it; a sentence if there are no rows."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) if len(lines) > 2 else NOTHING


def figure(value: float | None, form: str, unit: str = "") -> str:
    """Return a figure in a format of `format()`, with its unit; empty for None."""
    return "" if value is None else f"{value:{form}}{unit}"


def put_into(page: Path, tables: str, begin: str = BEGIN) -> None:
    """Replace what stands between the marks. Raises `ConfigError` when the page lacks them."""
    text = page.read_text()
    if begin not in text or END not in text:
        raise ConfigError(f"{page}: expected the marks of generated tables, found none")
    before, _, rest = text.partition(begin)
    page.write_text(f"{before}{begin}\n\n{tables}\n{END}{rest.partition(END)[2]}")


def is_current(page: Path, tables: str, begin: str = BEGIN) -> bool:
    """Return if the page shows these tables."""
    shown = re.search(re.escape(begin) + r"\n\n(.*?)\n" + re.escape(END), page.read_text(), re.DOTALL)
    return shown is not None and shown[1] == tables
