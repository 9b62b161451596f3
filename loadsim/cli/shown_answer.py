"""Documents on standard output: brief and as wide as the terminal, or with all figures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadsim.report.document import Document

WIDTH = 80
"""The width in columns if standard output is not a terminal."""

MOST_WIDTH = 100
"""Longer lines are hard to read."""


def add_wide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wide", action="store_true", help="print all figures as in answer.txt, in lines of any length"
    )


def shown(document: Document, *, wide: bool = False) -> str:
    """Return a document as text for standard output, without a final line break; see `to_text`.

    It is brief, and coloured on a terminal unless `NO_COLOR` is set. If `wide`, it is complete, with lines of any
    length.
    """
    from loadsim.report.text import to_text  # other commands need only the width

    width, colours = width_and_colours()
    return (to_text(document, whole=True) if wide else to_text(document, width, colours)).rstrip("\n")


def width_and_colours() -> tuple[int, bool]:
    """Return the width of standard output in columns, and True if it shows colours."""
    terminal = sys.stdout.isatty()
    width = min(MOST_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if terminal else WIDTH
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return width, colours
