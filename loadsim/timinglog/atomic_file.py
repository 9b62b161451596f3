"""New files that are written whole or removed, and never replace another file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from loadsim.errors import LogError


@contextmanager
def new_file(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open a new file to write `what` into; any exception removes the file again.

    Raises `LogError` if the file exists, or if it cannot be written.
    """
    made = written = False
    try:
        with path.open("xb") as file:
            made = True
            yield file
        written = True
    except OSError as failure:
        raise LogError(f"{path}: expected to write a new {what}, found: {failure.strerror or failure}") from None
    finally:
        if made and not written:
            path.unlink(missing_ok=True)
