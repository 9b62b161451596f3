"""`--junit FILE`: a file that is never green for a command that has not come to its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadsim.errors import ConfigError, LoadSimError
from loadsim.report.junit import Case, junit


@contextmanager
def junit_file(path: Path | None, verb: str) -> Iterator[Callable[[str], None]]:
    """Write what is to be there until the end is known; gives what then writes the document.

    What an earlier command has left there is gone at once. Where the command ends with an error, that is in the file.
    Raises `ConfigError` where it cannot be written; when that comes to light at the end only, it is told, no more.
    """
    if path is None:
        yield lambda _: None
        return

    def write(document: str) -> None:
        try:
            path.write_text(document, encoding="utf-8")
        except OSError as failure:
            print(f"loadsim: --junit {path} not written: {failure.strerror}", file=sys.stderr)

    try:
        path.write_text(_unfinished(verb, "it has not come to its end"), encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"--junit {path}: expected a file to write, found: {failure.strerror}") from None
    try:
        yield write
    except LoadSimError as failure:
        write(_unfinished(verb, str(failure)))
        raise


def _unfinished(verb: str, why: str) -> str:
    return junit(f"loadsim {verb}", [Case(f"loadsim.{verb.replace(' ', '.')}", verb, "error", why)])
