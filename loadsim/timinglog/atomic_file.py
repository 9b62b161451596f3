"""A new file that is there as a whole or not at all: never in place of another, never written in part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from loadsim.errors import LogError


@contextmanager
def new_file(path: Path, what: str) -> Iterator[BinaryIO]:
    """Open a new file to write `what` into; it is removed when that fails, whatever the reason.

    Raises `LogError` when there is a file already, or when the disk does not take it.
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
