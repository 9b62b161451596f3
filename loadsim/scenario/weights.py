"""Weights of tasks in the score, and the names that plug-ins' tasks may have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any

from loadsim.documents.schema import with_nearest
from loadsim.documents.typed import Reads, Wrong, mismatch, mismatches, show
from loadsim.documents.yaml_reader import Origin, parse, read_document, shipped
from loadsim.errors import MOST_SHOWN
from loadsim.model.ports import ALL_TASKS
from loadsim.model.records import SPANS
from loadsim.model.terms import INJECT

TASKS = "tasks"
"""The word for task names in errors."""

_PLUGIN_TASK = re.compile(r"[A-Z][A-Z0-9]*(?: [A-Z0-9]+)*")
_LONGEST_NAME = 32


def may_name_plugin_task(name: object) -> bool:
    """Return True for a name that a plug-in's task may have; the names of loadsim's tasks and spans are taken."""
    return (
        isinstance(name, str)
        and len(name) <= _LONGEST_NAME
        and _PLUGIN_TASK.fullmatch(name) is not None
        and name not in (*ALL_TASKS, INJECT, *SPANS)
    )


def expected_plugin_task() -> str:
    """Describe, for errors, the names that a plug-in's task may have."""
    return f"words of A-Z and 0-9 (at most {_LONGEST_NAME} characters) that do not name a task of loadsim"


@cache
def load_weights() -> Mapping[str, float]:
    """Return this project's own weights for scored tasks (`profiles/weights.yaml`)."""
    document, _ = read_document(shipped("profiles") / "weights.yaml", "profiles/weights.yaml")
    return read_weights(document["weights"], TASKS, ALL_TASKS)


def read_weights(value: object, what: str, names: Collection[str]) -> dict[str, float]:
    """Read a mapping from `names` to weights; errors call the names `what`.

    Among `TASKS`, names that plug-ins' tasks may have are also valid.
    """
    if not isinstance(value, dict):
        raise mismatch("a mapping")
    mistakes = list[Wrong]()
    for name, weight in value.items():
        of_plugin = what == TASKS and may_name_plugin_task(name)
        if name not in names and not of_plugin:
            shown = with_nearest(name, names) if len(mistakes) < MOST_SHOWN else show(name)  # a slow search
            mistakes.append(mismatch(f"one of the {what} {', '.join(names)}", shown, at=(str(name),)))
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not weight >= 0:
            mistakes.append(mismatch("a weight of at least 0", show(weight), at=(name,)))
        elif weight and not 1e-9 <= weight <= 1e9:  # beyond these, sums of products lose digits or overflow
            mistakes.append(mismatch("a weight of 0, or from 1e-9 to 1e9", show(weight), at=(name,)))
    if mistakes:
        raise mismatches(mistakes)
    return {name: float(weight) for name, weight in value.items()}


def weights_of(document: object, name: str) -> dict[str, float]:
    """Read a document that maps tasks to weights. Raises `ConfigError`, which calls the document `name`."""
    weights: dict[str, float] = parse(Annotated[Any, Reads(_some_weights)], document, Origin(name))
    return weights


def _some_weights(value: object) -> dict[str, float]:
    if not isinstance(value, dict) or not value:
        raise mismatch("a mapping of tasks to weights", "an empty one" if value == {} else None)
    return read_weights(value, TASKS, sorted(ALL_TASKS))
