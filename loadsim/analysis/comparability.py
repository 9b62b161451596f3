"""The header keys on which runs must agree so that their scores may be compared, and their differences in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from loadsim.analysis.recorded_run import RecordedRun
from loadsim.model.limits import Limits
from loadsim.timinglog.header_words import LIMITS, WORDS, differences, limit_key, limit_words, shown_apart

SAME = (
    "users",
    "day_s",
    "day_shape",
    "window_s",
    "duration_s",
    "submission",
    "programs",
    "log_on",
    "plugins",
    "event_loop",
    "weights",
    "limits",
)
"""Header keys on which all runs must agree."""

PROFILES, MAILBOX = "profiles", "mailbox"

OF_REPEATS = (*(key for key in SAME if key not in ("users", "limits")), PROFILES, MAILBOX)
"""Keys on which runs must agree to be points of one curve over the number of users.

`MAILBOX` is a key of the scenarios. Limits change the verdict, not the score.
"""

Header = Mapping[str, Any]


def difference(key: str, one: Header, another: Header, places: tuple[str, str]) -> str | None:
    """Return the difference of two headers in a key, in words; None if there is none. `places` name the two runs."""
    words, values_of = WORDS[key], [header.get(key) for header in (one, another)]
    if key == LIMITS:
        values_of = [{**Limits().in_header(), **(stated or {})} for stated in values_of]
    found = []
    for name, *values in differences({key: values_of[0]}, {key: values_of[1]}, (key,)):
        _, _, entry = name.partition(".")
        if key == LIMITS:
            what, apart = limit_key(entry), [limit_words(entry, value) for value in values]
        else:
            what, apart = f"the {words.noun}{f' of {entry}' if entry else ''}", shown_apart(key, values)
        first, second = (f"{value} in {place}" for value, place in zip(apart, places, strict=True))
        found.append(f"{what} differs: {first}, {second}")
    if not found:
        return None
    set_by = f" ({words.scenario_key})" if words.scenario_key and key != LIMITS else ""
    return f"{'; '.join(found)}{set_by}: scores of different {words.plural} are not comparable"


def separate_loads(runs: Sequence[RecordedRun]) -> tuple[list[str], str]:
    """Return the name of each run's load, and a sentence on the loads; empty texts if all runs have one load.

    Runs of one load differ in users, server, seed and limits at most. Names have as few keys as tell the loads apart.
    """
    # 1. The values of all keys, and the fewest keys that tell the loads apart.
    known = all(run.scenario for run in runs)
    headers = [{**run.log.header, MAILBOX: run.scenario.get(MAILBOX) if known else None} for run in runs]
    differing = [key for key in OF_REPEATS if any(header.get(key) != headers[0].get(key) for header in headers)]
    if not differing:
        return [""] * len(runs), ""

    def loads(keys: Sequence[str]) -> int:
        return len({str([header.get(key) for key in keys]) for header in headers})

    enough = next(keys for keys in accumulate([key] for key in differing) if loads(keys) == loads(differing))

    # 2. The words.
    shown = {key: _shown(key, headers) for key in enough}
    names = [
        ", ".join(f"{WORDS[key].noun} {value}" for key, value in zip(enough, values, strict=True))
        for values in zip(*shown.values(), strict=True)
    ]
    stated = " and ".join(f"{WORDS[key].plural} ({_joined(dict.fromkeys(shown[key]))})" for key in enough)
    return names, f"These runs have different {stated}: their scores are not comparable."


def _joined(values: Collection[str]) -> str:
    return ("; " if any(", " in value for value in values) else ", ").join(values)


def _shown(key: str, headers: Sequence[Header]) -> list[str]:
    """Return the headers' values of a key in words; of mappings, the entries in which the headers differ."""
    values = [header.get(key) for header in headers]
    mappings = [value for value in values if isinstance(value, Mapping)]
    if len(mappings) == len(headers):
        names = {name for mapping in mappings for name in mapping}
        differing = [name for name in names if len({str(mapping.get(name)) for mapping in mappings}) > 1]
        values = [{name: value.get(name) for name in sorted(differing, key=str)} for value in mappings]
    return shown_apart(key, values)
