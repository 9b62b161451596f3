"""`--junit FILE`: a file that reports an error until the command has finished."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadsim.errors import LoadSimError


@contextmanager
def junit_file(path: Path | None, verb: str) -> Iterator[Callable[[str], None]]:
    """Write a file that reports an unfinished command, and yield a function that writes the result.

    An error that ends the block is written to the file. Raises `OSError` if the file cannot be written at the start;
    at the end, a failure is only a warning.
    """
    if path is None:
        yield lambda _: None
        return

    def write(document: str) -> None:
        try:
            path.write_text(document, encoding="utf-8")
        except OSError as failure:
            print(f"loadsim: --junit {path} not written: {failure.strerror}", file=sys.stderr)

    path.write_text(_unfinished(verb, "the command has not ended"), encoding="utf-8")
    try:
        yield write
    except LoadSimError as failure:
        write(_unfinished(verb, str(failure)))
        raise


def _unfinished(verb: str, why: str) -> str:
    from loadsim.report.junit import Case, junit  # only with the option

    return junit(f"loadsim {verb}", [Case(f"loadsim.{verb.replace(' ', '.')}", verb, "error", why)])
