"""`capacity.json`: the state and the answer of a capacity search, replaced as a whole after each step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from loadsim.analysis.capacity import Capacity, Terms
from loadsim.analysis.capacity_step import MeasuredStep
from loadsim.errors import ConfigError
from loadsim.files import read_text
from loadsim.runs.resumable import INCOMPLETE

FILE_NAME = "capacity.json"

STEPS = "steps"
"""The directory of the run directories of the steps."""


def write(capacity: Capacity) -> None:
    """Replace the file of a search. Raises `ConfigError` if the directory does not take it."""
    path = capacity.directory / FILE_NAME
    new = path.with_suffix(".new")
    try:
        new.write_text(json.dumps(capacity.document, indent=2) + "\n", encoding="utf-8")
        new.replace(path)
    except OSError as failure:
        with suppress(OSError):
            new.unlink()
        raise ConfigError(f"{path}: expected to write it, found: {failure.strerror or failure}") from None


def read_steps(directory: Path, terms: Terms) -> tuple[MeasuredStep, ...]:
    """Return the steps of a search with the same terms.

    Raises `ConfigError` for a search with others, unless it has no step yet, and for a damaged file.
    """
    path = directory / FILE_NAME
    try:
        document = json.loads(read_text(path, str(path)))
        before, steps = document["terms"], tuple(MeasuredStep.read(step) for step in document["steps"])
        changed = _changed(before, terms.document)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{path}: expected a file of loadsim capacity, found something else") from None
    if changed and _any_run(directory):
        raise ConfigError(
            f"--out {directory}: expected the terms of the search that it holds, found changed: {', '.join(changed)}"
            " (take a new directory, or the old terms)"
        )
    return steps


def _any_run(directory: Path) -> bool:
    """Return True if the search may have measured something, also if a crash kept it from its file."""
    place = directory / STEPS
    return place.is_dir() and any(INCOMPLETE not in each.name for each in place.iterdir())


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the names of the terms that differ."""
    settings, others = dict(before["settings"]), {key: value for key, value in before.items() if key != "settings"}
    wanted, rest = now["settings"], {key: value for key, value in now.items() if key != "settings"}
    pairs = [(settings, wanted), (others, rest)]
    return sorted(key for old, new in pairs for key in old.keys() | new.keys() if old.get(key) != new.get(key))
