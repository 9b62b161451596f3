"""A document on standard output: brief, for the terminal's width, or with all figures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadsim.report.document import Document

WIDTH = 80
"""Columns where standard output is no terminal."""

MOST_WIDTH = 100
"""Longer lines are hard to read."""


def add_wide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wide", action="store_true", help="print all figures, in lines of any length, as in answer.txt"
    )


def shown(document: Document, *, wide: bool = False) -> str:
    """Return a document for standard output, without a line break at its end; see `to_text`.

    Brief, in colour on a terminal unless `NO_COLOR` is set; `wide`: all of it, in lines of any length.
    """
    from loadsim.report.text import to_text  # not for commands that need the width only

    width, colours = width_and_colours()
    return (to_text(document, whole=True) if wide else to_text(document, width, colours)).rstrip("\n")


def width_and_colours() -> tuple[int, bool]:
    """Return the columns of standard output, and True if it shows colours."""
    terminal = sys.stdout.isatty()
    width = min(MOST_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if terminal else WIDTH
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return width, colours
