"""Dataclasses as JSON values.

JSON has no infinity, and `null` already means that nothing was measured. An infinite time is therefore the text "inf",
which `float()` accepts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding

INFINITE = "inf"

OPTIONAL = {"optional": True}
"""Metadata of a field that is left out if it is None."""

INLINE = {"inline": ""}
"""Metadata of a field whose own fields stand in its place."""


def keyed(value: Any) -> dict[str, Any]:
    """Return what a dataclass has under the keys of its JSON object: the names of its fields, in their order."""
    found: dict[str, Any] = {}
    for one in fields(value):
        own = getattr(value, one.name)
        if "inline" in one.metadata:
            found |= {f"{one.metadata['inline']}{key}": below for key, below in keyed(own).items()}
        elif own is not None or not one.metadata.get("optional"):
            found[one.name] = own
    return found


def to_json(value: Any) -> Any:
    """Return a value as JSON has it; a dataclass is an object."""
    if isinstance(value, Finding):
        return value.document
    if isinstance(value, Code):
        return value.id
    if is_dataclass(value):
        return {key: to_json(below) for key, below in keyed(value).items()}
    if isinstance(value, Mapping):
        return {key: to_json(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(below) for below in value]
    if isinstance(value, float) and math.isinf(value):
        return INFINITE if value > 0 else f"-{INFINITE}"
    return value
