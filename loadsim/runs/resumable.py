"""A directory of several runs that is resumed after a crash: its lock, its finished runs, and its incomplete ones."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from loadsim.analysis.verdict import ENDED, FAULT
from loadsim.errors import ConfigError, RunInvalid
from loadsim.runs.directory import create_directory
from loadsim.runs.result import write_summary
from loadsim.runs.watcher import SILENT

INCOMPLETE = ".incomplete-"
"""The mark in the names of run directories that were set aside."""


class Interrupted(Exception):
    """A user ended a sequence of runs, which can be resumed.

    `kept`: the last run had done its work and is recorded. Else, it is repeated.
    """

    def __init__(self, *, kept: bool = False) -> None:
        super().__init__()
        self.kept = kept

    def in_words(self, noun: str, resume: str) -> str:
        """Return what happened in a run, which `noun` names, and what `resume` does."""
        if self.kept:
            return f"interrupted after a {noun}, which is kept: {resume} makes the others"
        return f"interrupted in a {noun}, which {resume} repeats"


@contextmanager
def own_directory(out: Path, state: str, noun: str) -> Iterator[None]:
    """Create a directory unless it has the file `state`, and keep other processes out; `noun` names their work.

    Raises `ConfigError` for a directory with other files, and while another process uses it.
    """
    if not (out / state).exists():
        create_directory(out)
    try:
        directory = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as failure:
        raise ConfigError(f"--out {out}: expected a directory, found: {failure.strerror}") from None
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"--out {out}: expected a directory of its own, found another {noun} at work") from None
        yield
    finally:
        os.close(directory)


def finished_score(directory: Path) -> Mapping[str, Any] | None:
    """Return the content of score.json of a run that ended by itself; None for any other.

    A crash may have come between the end of a run and its score: it is computed then if the logs are complete.
    """
    with suppress(OSError, ValueError):
        found = json.loads((directory / "score.json").read_text(encoding="utf-8"))
        return None if ENDED in found["verdict"]["causes"] else dict(found)
    with suppress(RunInvalid, ConfigError):
        summary = write_summary(directory, SILENT).summary
        if summary.verdict.validity != "degraded" and not {ENDED, FAULT} & set(summary.verdict.causes):
            return summary.score
    return None


def set_aside(directory: Path) -> None:
    """Rename the directory of a run that did not end by itself, which stays for diagnosis."""
    number = 1
    while (aside := directory.with_name(f"{directory.name}{INCOMPLETE}{number}")).exists():
        number += 1
    try:
        directory.rename(aside)
    except OSError as failure:
        raise ConfigError(f"{directory}: expected to rename it, found: {failure.strerror}") from None
