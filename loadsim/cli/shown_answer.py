"""The answer of a run on standard output: short, for the terminal's width, or with all figures."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadsim.analysis.summary import Summary

WIDTH = 80
"""Columns where standard output is no terminal."""

MOST_WIDTH = 100
"""Longer lines are hard to read."""


def add_wide(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wide", action="store_true", help="print all figures, in lines of any length, as in answer.txt"
    )


def shown_answer(summary: Summary, *, wide: bool) -> str:
    """Return the answer for standard output; in colour on a terminal, unless `NO_COLOR` is set."""
    from loadsim.report.answer import full_answer, short_answer  # not for commands that need the width only

    return full_answer(summary) if wide else short_answer(summary, *width_and_colours())


def width_and_colours() -> tuple[int, bool]:
    """Return the columns of standard output, and True if it shows colours."""
    terminal = sys.stdout.isatty()
    width = min(MOST_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if terminal else WIDTH
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return width, colours
