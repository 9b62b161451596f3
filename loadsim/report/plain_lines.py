"""Lines of plain text: wrapped, in lists, and in the colour of a verdict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadsim.analysis.summary import Tone

LEAST_WIDTH = 40
"""Lines are never wrapped at fewer columns."""

NO_BREAK = "\N{NO-BREAK SPACE}"
_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|%|MiB|x)\b|%)|(?<=\(limit) (?=\d)")
"""The space between a figure and its unit, or between a figure and the word before it in brackets."""

_COLOURS = {"good": "32", "doubtful": "33", "bad": "31"}
"""Codes of SGR (ECMA-48 section 8.3.117), by the tone of a verdict."""


def wrapped(lines: Iterable[str], width: int | None) -> list[str]:
    """Break lines at spaces, but not between a figure and its unit. The further lines of each are indented.

    Without a width, lines are as long as they need to be.
    """
    if width is None:
        return list(lines)
    broken = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" -")) + (0 if line.startswith(" ") else 2))
        together = _UNIT.sub(NO_BREAK, line)
        parts = textwrap.wrap(together, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        broken += [part.replace(NO_BREAK, " ") for part in parts or [""]]
    return broken


def listed(heading: str, items: Iterable[str]) -> list[str]:
    """Return a heading and an item per line; nothing without items."""
    lines = [f"  - {item}" for item in items]
    return [f"{heading}:", *lines] if lines else []


def coloured(line: str, tone: Tone) -> str:
    """Return a line in bold, in the colour of a verdict, by SGR."""
    return f"\x1b[1;{_COLOURS[tone]}m{line}\x1b[0m"
