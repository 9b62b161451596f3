"""The header keys on which runs must agree so that their scores may be compared, and their differences in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.limits import Limits
from loadsim.timinglog.header_words import LABELS, LIMITS, differences, shown

PROFILES, MAILBOX = "profiles", "mailbox"

SAME = tuple(key for key in LABELS if key not in (PROFILES, MAILBOX))
"""Header keys on which all runs must agree."""

OF_REPEATS = tuple(key for key in LABELS if key not in ("users", LIMITS))
"""Keys on which runs must agree to be points of one curve over the number of users.

`MAILBOX` is a key of the scenarios. Limits change the verdict, not the score.
"""

Header = Mapping[str, Any]


def difference(key: str, one: Header, another: Header, places: tuple[str, str]) -> str | None:
    """Return the difference of two headers in a key, in words; None if there is none. `places` name the two runs."""
    values_of = [header.get(key) for header in (one, another)]
    if key == LIMITS:
        values_of = [{**Limits().in_header(), **(stated or {})} for stated in values_of]
    found = []
    for name, *values in differences({key: values_of[0]}, {key: values_of[1]}, (key,)):
        entry = name.partition(".")[2]
        first, second = (
            f"{value} in {place}" for value, place in zip(shown(entry or key, values), places, strict=True)
        )
        found.append(f"{f'{key}.{entry}' if entry else LABELS[key]}: {first}, {second}")
    return "; ".join(found) or None


def different_loads(runs: Sequence[RecordedRun]) -> list[str]:
    """Return the keys in which the loads of runs differ, in words. Numbers of users may differ, and the limits."""
    known = all(run.scenario for run in runs)
    headers = [{**run.log.header.by_key(), MAILBOX: run.scenario.get(MAILBOX) if known else None} for run in runs]
    return [LABELS[key] for key in OF_REPEATS if any(header.get(key) != headers[0].get(key) for header in headers)]
