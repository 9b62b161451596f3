"""Logs that may be merged: which keys of their headers must agree, and how a difference is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadsim.errors import LogError
from loadsim.timinglog.reader import TimingLog

LOAD = ("submission", "scenario_digest", "plan_digest")
"""Header keys that say which load was made."""

TERMS = ("criteria", "limits", "weights", "window_s", "day_s", "night_s", "compression")
"""Header keys that say how a run is scored and judged: a merged log has one set of them for all of its runs."""

ABSENT = "nothing"
"""Name of an entry that is missing: of a limit it is the default, while null is none."""

MIXED = "mixed"
"""Header key of a merged log: the terms in which its logs differ. They were merged by force."""


def check_compatible(first: TimingLog, logs: Sequence[TimingLog]) -> None:
    """Refuse logs that differ from the first in load, terms or truncation. Raises `LogError`, which names where."""
    for log in logs:
        kept = [one.header.get("truncated_s") for one in (first, log)]
        if kept[0] != kept[1]:
            raise LogError(f"merge: expected logs that were truncated alike, found {kept[0]} and {kept[1]}")
        for name, *found in _differences(first.header, log.header, (*LOAD, *TERMS)):
            sides = zip(found, (first.sources[0], log.sources[0]), strict=True)
            told = [f"{value!r} in {made.client}.{made.engine} of run {made.run!r}" for value, made in sides]
            raise LogError(f"merge: {name}: expected the same in all logs, found {' and '.join(told)}")


def mixed_terms(first: TimingLog, logs: Sequence[TimingLog]) -> list[str]:
    """The terms in which logs differ from the first, or in which one that was merged already does."""
    found = {name for log in logs for name, *_ in _differences(first.header, log.header, TERMS)}
    return sorted(found.union(*(log.header.get(MIXED, ()) for log in logs)))


def _differences(
    one: Mapping[str, Any], another: Mapping[str, Any], keys: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """The name of each difference, and both values; of two mappings, those of their entries that differ."""
    for key in keys:
        first, second = one.get(key, ABSENT), another.get(key, ABSENT)
        if isinstance(first, dict) and isinstance(second, dict):
            for name, *both in _differences(first, second, sorted({*first, *second})):
                yield f"{key}.{name}", *both
        elif first != second:
            yield key, first, second
