"""`suite.json`: the runs of a suite and what follows from them, replaced as a whole after each run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loadsim.analysis.suite import SuiteFigures, SuiteRun
from loadsim.errors import ConfigError, LogError
from loadsim.files import read_text
from loadsim.model.suite import Slot, Suite
from loadsim.runs.directory import path_component
from loadsim.runs.resumable import INCOMPLETE, write_state
from loadsim.runs.suite_cells import Terms

FILE_NAME = "suite.json"

RUNS, HOOKS = "runs", "hooks"
"""The directories of the run directories, and of the outputs of commands."""

MOST_BYTES = 1 << 27
"""The largest file that is read: 10,000 runs have about 10 MB."""


def run_name(suite: Suite, slot: Slot, attempt: int) -> str:
    """Return the name of a run's directory: place in the order, cell, repeat, and retry if it is one."""
    width = max(3, len(str(suite.repeats * len(suite.cells))))
    retry = f".retry-{attempt - 1}" if attempt > 1 else ""
    return f"{slot.number:0{width}d}-{path_component(slot.cell.name)}-{slot.repeat}{retry}"


def write(figures: SuiteFigures) -> None:
    """Replace the file of a suite. Raises `ConfigError` if the directory does not take it."""
    write_state(figures.directory / FILE_NAME, figures.document)


def read_runs(directory: Path, suite: Suite, terms: Terms) -> tuple[SuiteRun, ...]:
    """Return the recorded runs of a suite with the same terms.

    Raises `ConfigError` for a suite with others, unless it has no run yet, and for a damaged file.
    """
    path = directory / FILE_NAME
    content = read_text(path, str(path), most_bytes=MOST_BYTES)
    try:
        document = json.loads(content)
        changed = _changed(document["terms"], terms.document)
        runs = tuple(SuiteRun.read(run) for run in document["runs"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, LogError):
        raise ConfigError(f"{path}: expected a file of loadsim suite, found something else") from None
    if changed and (runs or _any_run(directory)):
        raise ConfigError(
            f"--out {directory}: expected the suite that it holds, found changed: {', '.join(changed)}"
            " (take a new directory, or the old file)"
        )
    if changed:
        return ()
    _check(runs, suite, path)
    return runs


def _check(runs: tuple[SuiteRun, ...], suite: Suite, path: Path) -> None:
    """Check that each run has the directory and the place that the suite gives it: its files are read from there."""
    slots = {slot.number: slot for slot in suite.slots}
    attempts: dict[int, int] = {}
    for run in runs:
        attempts[run.number] = attempts.get(run.number, 0) + 1
        slot = slots.get(run.number)
        expected = slot and (
            f"{RUNS}/{run_name(suite, slot, attempts[run.number])}",
            slot.cell.name,
            slot.repeat,
            attempts[run.number],
        )
        if expected != (run.run, run.cell, run.repeat, run.attempt):
            raise ConfigError(f"{path}: expected the runs of this suite, found {run.run!r:.100} at {run.number}")


def _any_run(directory: Path) -> bool:
    """Return True if the suite may have measured something, also if a crash kept it from its file."""
    place = directory / RUNS
    return place.is_dir() and any(INCOMPLETE not in each.name for each in place.iterdir())


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the terms and cells that differ."""
    cells = {f"cell {name}": digest for name, digest in dict(before["cells"]).items()}
    new_cells = {f"cell {name}": digest for name, digest in now["cells"].items()}
    old, new = ({**one, **of_cells, "cells": None} for one, of_cells in ((before, cells), (now, new_cells)))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
