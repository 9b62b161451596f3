"""Words for the header keys that several runs must share, with the scenario keys that set them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = "nothing"
"""Name of a missing entry. A missing limit has its default; a null limit is off."""

OFF = "off (null)"
"""The value of a limit that is off."""

SHARES = ("lost_users", "done", "load", "generator_lag_share", "generator_cpu")
"""The limits of a log's header that are shares."""


@dataclass(frozen=True, slots=True)
class HeaderKey:
    """A header key in words: its noun, the plural for other values of it, and the scenario key that sets it."""

    noun: str
    plural: str
    scenario_key: str
    shown: Callable[[Any], str]


def length(length_s: float) -> str:
    """Return a length of time in the largest unit that divides it: 8 h, 5 min, 90 s."""
    for unit, unit_s in (("h", 3600), ("min", 60)):
        if length_s >= unit_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:g} {unit}"
    return f"{length_s:g} s"


def _length(value: Any) -> str:
    return length(float(value)) if isinstance(value, int | float) else _plain(value)


def _window(value: Any) -> str:
    if not isinstance(value, list | tuple) or len(value) != 2:
        return _plain(value)
    begin_s, end_s = map(float, value)
    return f"{length(end_s - begin_s)} from {length(begin_s)} on"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else _plain(value)


FLAT_DAY = "flat"
"""A day whose rates are the same at all times."""


def shape_words(weights: Any) -> str:
    """Return the shape of a day in words; anything but a list of weights is a flat day."""
    if not isinstance(weights, list | tuple) or not sum(weights):
        return FLAT_DAY
    mean = sum(weights) / len(weights)
    most, least = max(weights) / mean, min(weights) / mean
    return f"{len(weights)} parts, the busiest at {most:.3g} times the mean rate, the quietest at {least:.3g} times"


FEW_PARTS = 24
"""A day of at most so many parts is stated with all of its weights where its words alone would not tell it apart."""


def _shapes_apart(shapes: Sequence[Any]) -> list[str]:
    """Return the shapes in words, with their weights or the first part in which they differ."""
    if max(map(len, shapes)) <= FEW_PARTS:
        return [f"{shape_words(each)} (weights {', '.join(f'{one:.15g}' for one in each)})" for each in shapes]
    part = next(at for at, weights in enumerate(zip(*shapes, strict=True)) if len({*weights}) > 1)
    return [f"{shape_words(each)} (weight {each[part]:.15g} of {sum(each):.15g} in part {part + 1})" for each in shapes]


def shown_apart(key: str, values: Sequence[Any]) -> list[str]:
    """Return the values of a header key in words that differ where the values differ."""
    shown = [WORDS[key].shown(value) for value in values]
    if key != "day_shape":
        return shown
    # Shapes with the same words have as many parts.
    by_words: dict[str, list[int]] = {}
    for at, words in enumerate(shown):
        if words != FLAT_DAY:
            by_words.setdefault(words, []).append(at)
    for places in by_words.values():
        alike = [values[at] for at in places]
        if any(one != alike[0] for one in alike):
            for at, words in zip(places, _shapes_apart(alike), strict=True):
                shown[at] = words
    return shown


def _plain(value: Any) -> str:
    """Return a value in words. None stands for a default, such as the default mail program."""
    if value is None or value == ABSENT:
        return "the default" if value is None else "not set"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


LIMITS = "limits"
"""The header key of the limits of a valid run."""

WORDS: Mapping[str, HeaderKey] = {
    "users": HeaderKey("number of users", "numbers of users", "topology", _count),
    "profiles": HeaderKey("set of profiles", "profiles", "topology", _plain),
    "day_s": HeaderKey("day", "days", "run.day_length", _length),
    "day_shape": HeaderKey("shape of the day", "shapes of the day", "run.day_shape", shape_words),
    "window_s": HeaderKey("window", "windows", "run.warm_up, run.window", _window),
    "duration_s": HeaderKey("duration", "durations", "run.duration", _length),
    "submission": HeaderKey("submission", "submissions", "client.submission", _plain),
    "programs": HeaderKey("mail program", "mail programs", "topology", _plain),
    "log_on": HeaderKey("log-on method", "log-on methods", "server", _plain),
    "plugins": HeaderKey("plug-in", "plug-ins", "topology", _plain),
    "weights": HeaderKey("weight", "weights", "weights", _plain),
    LIMITS: HeaderKey("limit", "limits", "limits", _plain),
    "event_loop": HeaderKey("event loop", "event loops", "", _plain),
    "mailbox": HeaderKey("start state", "start states", "mailbox", _plain),
}
"""The keys by their names, in the order in which differences are stated. `mailbox` is a key of scenarios only."""


_OF_GENERATOR = "generator_"
"""Begins the name of a generator's limit in a log's header."""


def limit_key(name: str) -> str:
    """Return the scenario key of a limit that a log's header has by this name."""
    if name.startswith(_OF_GENERATOR):
        return f"limits.generator.{name.removeprefix(_OF_GENERATOR)}"
    return f"limits.{name.removesuffix('_s')}"


def named(name: str) -> str:
    """Return the name of a difference for a reader: the scenario key of a limit, any other name as it is."""
    key, _, entry = name.partition(".")
    return limit_key(entry) if key == LIMITS and entry else name


def limit_words(name: str, value: Any) -> str:
    """Return the value of a limit of a log's header in words, with all of its digits."""
    if value is None:
        return OFF
    if value == ABSENT:
        return "the default"
    if not isinstance(value, int | float):
        return _plain(value)
    if name in SHARES:
        return f"{100 * value:.15g} %"
    return f"{value:,.15g} ms" if name.endswith("_ms") else length(value) if name.endswith("_s") else f"{value:,.15g}"


def differences(
    one: Mapping[str, Any], another: Mapping[str, Any], keys: Sequence[str]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each difference with both values; mappings are compared entry by entry."""
    for key in keys:
        first, second = one.get(key, ABSENT), another.get(key, ABSENT)
        if isinstance(first, dict) and isinstance(second, dict):
            for name, *both in differences(first, second, sorted({*first, *second}, key=str)):
                yield f"{key}.{name}", *both
        elif first != second:
            yield key, first, second


def scenario_differences(one: Mapping[str, Any], another: Mapping[str, Any]) -> list[str]:
    """Return the scenario keys in which two headers differ, with both values: run.day_length 5 min and 2 min."""
    found = []
    for name, *both in differences(one, another, list(WORDS)):
        key, _, entry = name.partition(".")
        if key == LIMITS and entry:
            first, second = (limit_words(entry, value) for value in both)
            found.append(f"{limit_key(entry)} {first} and {second}")
        elif scenario_key := WORDS[key].scenario_key:
            first, second = shown_apart(key, both)
            found.append(f"{scenario_key}{f'.{entry}' if entry else ''} {first} and {second}")
    return found
