"""The header keys on which runs must agree so that their scores may be compared, and their differences in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
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


def separate_loads(runs: Sequence[RecordedRun]) -> tuple[list[str], str]:
    """Return the name of each run's load, and a sentence on the loads; empty texts if all runs have one load.

    Runs of one load differ in users, server, seed and limits at most. Names have as few keys as tell the loads apart.
    """
    known = all(run.scenario for run in runs)
    headers = [{**run.log.header.by_key(), MAILBOX: run.scenario.get(MAILBOX) if known else None} for run in runs]
    differing = [key for key in OF_REPEATS if any(header.get(key) != headers[0].get(key) for header in headers)]
    if not differing:
        return [""] * len(runs), ""

    def loads(keys: Sequence[str]) -> int:
        return len({str([header.get(key) for key in keys]) for header in headers})

    enough = next(keys for keys in accumulate([key] for key in differing) if loads(keys) == loads(differing))
    values = {key: shown(key, [header.get(key) for header in headers]) for key in enough}
    names = [
        ", ".join(f"{LABELS[key].partition(' (')[0]} {value}" for key, value in zip(enough, of_run, strict=True))
        for of_run in zip(*values.values(), strict=True)
    ]
    stated = "; ".join(f"{LABELS[key]}: {' or '.join(dict.fromkeys(values[key]))}" for key in enough)
    return names, f"These runs have different loads, and their scores are not comparable: {stated}."
