"""Printing that survives a closed pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line on standard error, or on another stream. A closed pipe does not end the command."""
    with suppress(BrokenPipeError):
        print(line, file=stream or sys.stderr, flush=True)
