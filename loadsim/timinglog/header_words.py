"""Names for header keys, and the differences between two headers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loadsim.findings.formats import length

ABSENT = "nothing"
"""The value shown for a missing entry."""

OFF = "off (null)"
"""The value shown for a criterion that is off."""

LIMITS = "limits"
"""The header key for the limits of a valid run."""

LABELS: Mapping[str, str] = {
    "users": "number of users (topology)",
    "senders": "number of outside senders (topology)",
    "profiles": "profiles (topology)",
    "day_s": "length of the day (run.day_length)",
    "day_shape": "shape of the day (run.day_shape)",
    "window_s": "window (run.warm_up, run.window)",
    "duration_s": "duration (run.duration)",
    "submission": "submission (client.submission)",
    "programs": "mail programs (topology)",
    "calendars": "calendars (topology)",
    "log_on": "log-on methods (server)",
    "plugins": "plug-ins (topology)",
    "weights": "weights",
    LIMITS: "limits",
    "audit_allow": "allowed faults (run.audit_allow)",
    "event_loop": "event loop",
    "acknowledgements": "acknowledgements to the server",
    "mailbox": "start state (mailbox)",
}
"""The keys' names, and the scenario keys that set them, in the order in which differences are listed.

Only scenarios have a key `mailbox`.
"""


def shape_words(weights: Any) -> str:
    """Describe the shape of a day; anything other than a list of weights is a flat day."""
    if not isinstance(weights, list | tuple) or not sum(weights):
        return "flat"
    mean = sum(weights) / len(weights)
    most, least = max(weights) / mean, min(weights) / mean
    return f"{len(weights)} parts, the busiest at {most:.3g} times the mean rate, the quietest at {least:.3g} times"


def shown(key: str, values: Sequence[Any]) -> list[str]:
    """Describe a header key's values; for mappings, only the entries that differ.

    Return the values verbatim if different ones would read the same.
    """
    if all(isinstance(value, Mapping) for value in values):
        names = sorted({name for value in values for name in value}, key=str)
        differing = [name for name in names if len({str(value.get(name)) for value in values}) > 1]
        values = [{name: value.get(name) for name in differing} for value in values]
    words = [_words(key, value) for value in values]
    verbatim = [str(value) for value in values]
    return words if len({*words}) == len({*verbatim}) else verbatim


def _words(key: str, value: Any) -> str:
    """Describe a value. None stands for a default, such as the default mail program, or for no SMTP."""
    if key == "day_shape":
        return shape_words(value)
    if value is None or value == ABSENT:
        return "not set" if value is not None else "not by SMTP" if key == "submission" else "the default"
    if key == "window_s" and isinstance(value, list | tuple) and len(value) == 2:
        begin_s, end_s = map(float, value)
        return f"{length(end_s - begin_s)} from {length(begin_s)} on"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words('', part)}" for name, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(_words("", part) for part in value) or "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return length(value) if key.endswith("_s") else f"{value:,.15g}"


def differences(
    base: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield each difference's name and both values; mappings are compared entry by entry."""
    for key in keys:
        first, second = base.get(key, ABSENT), other.get(key, ABSENT)
        if isinstance(first, dict) and isinstance(second, dict):
            for name, *both in differences(first, second, sorted({*first, *second}, key=str)):
                yield f"{key}.{name}", *both
        elif first != second:
            yield key, first, second
