"""Dataclasses as JSON values.

JSON has no infinity, and `null` already means that nothing was measured. So an infinite time becomes the text "inf",
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
"""Metadata of a field that is omitted if it is None."""

INLINE = {"inline": ""}
"""Metadata of a field that is replaced by its own fields."""


def keyed(value: Any) -> dict[str, Any]:
    """Return a dataclass's values by the keys of its JSON object, in order."""
    values: dict[str, Any] = {}
    for field in fields(value):
        own = getattr(value, field.name)
        if own is None and field.metadata.get("optional"):
            continue
        if "inline" in field.metadata:
            values |= {f"{field.metadata['inline']}{key}": below for key, below in keyed(own).items()}
        else:
            values[field.name] = own
    return values


def to_json(value: Any) -> Any:
    """Convert a value for JSON; a dataclass becomes an object."""
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
