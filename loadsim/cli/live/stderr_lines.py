"""Lines for people, whether anybody still reads them or not."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line, if anybody still reads it; on standard error unless another stream is given."""
    with suppress(BrokenPipeError):  # no reason to end the command
        print(line, file=stream or sys.stderr, flush=True)
