"""Rules for merging: the header keys that must be equal in all logs, and the names of their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadsim.errors import LogError
from loadsim.timinglog.reader import TimingLog

LOAD = ("submission", "scenario_digest", "plan_digest")
"""Header keys of the load."""

TERMS = ("criteria", "limits", "weights", "window_s", "day_s", "night_s", "compression")
"""Header keys of score and verdict: a merged log has one set of them for all of its runs."""

ABSENT = "nothing"
"""Name of a missing entry. A missing limit has its default; a null limit is off."""

MIXED = "mixed"
"""Header key of a log that was merged by force: the terms in which its logs differ."""


def check_compatible(first: TimingLog, logs: Sequence[TimingLog]) -> None:
    """Raise `LogError` for logs that differ from the first in load, terms or truncation."""
    for log in logs:
        kept = [one.header.get("truncated_s") for one in (first, log)]
        if kept[0] != kept[1]:
            raise LogError(f"merge: expected logs that were truncated alike, found {kept[0]} and {kept[1]}")
        for name, *found in _differences(first.header, log.header, (*LOAD, *TERMS)):
            sides = zip(found, (first.sources[0], log.sources[0]), strict=True)
            stated = [f"{value!r} in {made.client}.{made.engine} of run {made.run!r}" for value, made in sides]
            raise LogError(f"merge: {name}: expected the same in all logs, found {' and '.join(stated)}")


def mixed_terms(first: TimingLog, logs: Sequence[TimingLog]) -> list[str]:
    """Return the terms in which logs differ from the first, and those of logs that were merged by force before."""
    found = {name for log in logs for name, *_ in _differences(first.header, log.header, TERMS)}
    return sorted(found.union(*(log.header.get(MIXED, ()) for log in logs)))


def _differences(
    one: Mapping[str, Any], another: Mapping[str, Any], keys: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each difference with both values; mappings are compared entry by entry."""
    for key in keys:
        first, second = one.get(key, ABSENT), another.get(key, ABSENT)
        if isinstance(first, dict) and isinstance(second, dict):
            for name, *both in _differences(first, second, sorted({*first, *second})):
                yield f"{key}.{name}", *both
        elif first != second:
            yield key, first, second
