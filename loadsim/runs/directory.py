"""The directory of a run: new, or refused before anything is done; gone again when no run came of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from loadsim.errors import ConfigError


def part_of_a_path(name: str) -> str:
    """A scenario's name as it may stand in the name of a directory: no slash in it leads out of `runs`."""
    return re.sub(r"[^\w.-]+", "-", name)[:60]


def new_run_directory(path: Path) -> list[Path]:
    """Make the run directory, and those that it lies in: which of them are new, the innermost first.

    Raises `ConfigError` unless it is new, or empty, and takes files: who else would find out has prepared the server.
    """
    made: list[Path] = []
    try:
        made += [place for place in (path, *path.parents) if not place.exists()]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"--out {path}: expected a new or empty directory, found files in it")
        with TemporaryFile(dir=path):
            pass
        path.chmod(0o700)  # it may be an older directory; what it gets names addresses and mail servers
    except OSError as error:
        remove(made)
        raise ConfigError(f"--out {path}: expected a directory to write to, found: {error.strerror}") from None
    return made


@contextmanager
def owner_only() -> Iterator[None]:
    """Make files in this block readable by their owner only, also those of processes that it starts."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def discard(out: Path, made: Sequence[Path]) -> None:
    """Remove the directories made for a run that never began; what a server left to read stays, and so do they."""
    with suppress(OSError):
        for left in out.iterdir():
            if left.is_file() and not left.stat().st_size:
                left.unlink()
    remove(made)


def remove(directories: Sequence[Path]) -> None:
    """Remove those of the directories, the innermost first, that are there and empty."""
    for directory in directories:
        with suppress(OSError):
            directory.rmdir()
