"""JSON documents of unknown origin: strict reading, safe display, and checks that are composed of checks of values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from loadsim.errors import LogError, printable

LONGEST_SHOWN = 60
"""The most characters of a value that an error shows."""

MOST_LEVELS = 16
"""The most lists and mappings within each other."""


def read_document(name: str, text: bytes, *, strictly: bool = True) -> Any:
    """Read JSON; `strictly` rejects repeated keys, and escapes control characters. Raises `LogError`."""
    try:
        if not strictly:
            return json.loads(text)
        return harmless(name, json.loads(text, object_pairs_hook=unique_keys))
    except RepeatedKey as repeated:
        raise LogError(f"{name}: expected each key once, found {shown(repeated.args[0])} again") from None
    except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError
        raise LogError(f"{name}: expected JSON, found something else") from None


class RepeatedKey(ValueError):
    """A JSON object repeats a key, which is the only argument."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs (a hook of `json.loads`). Raises `RepeatedKey`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise RepeatedKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def harmless(name: str, value: Any, levels: int = MOST_LEVELS) -> Any:
    """Return a document with all texts made printable. Raises `LogError` for more than `levels` levels."""
    if isinstance(value, str):
        return printable(value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise LogError(f"{name}: expected at most {MOST_LEVELS} levels, found more")
    if isinstance(value, dict):
        return {
            printable(key) if isinstance(key, str) else key: harmless(name, one, levels - 1)
            for key, one in value.items()
        }
    return [harmless(name, one, levels - 1) for one in value]


def shown(value: Any) -> str:
    """Return a value in a few characters; lists and mappings only by their type."""
    if value is None or isinstance(value, dict | list | tuple):
        return {type(None): "nothing", dict: "a mapping"}.get(type(value), "a list")
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**LONGEST_SHOWN else "a larger number"
    return printable(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


# --- checks --------------------------------------------------------------------------------------------------------

Check = Callable[[Any], str | None]
"""Returns None for a good value, else what was expected, after the keys that lead to it: `KEY: KEY: EXPECTED`."""


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -math.inf < value < math.inf  # type: ignore[operator]


def number(least: float, most: float, *, above: bool = False) -> Check:
    words = f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"

    def check(value: Any) -> str | None:
        good = _is_number(value) and least <= value <= most and not (above and value == least)
        return None if good else words

    return check


def whole(least: int, most: int) -> Check:
    words = f"a whole number from {least} to {most}"
    return lambda value: None if type(value) is int and least <= value <= most else words


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else "a text"


def switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def word(*words: str) -> Check:
    return lambda value: None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"


def or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def each_of(check: Check, least: int = 0) -> Check:
    def check_each(value: Any) -> str | None:
        if not isinstance(value, list | tuple) or len(value) < least:
            return f"a list of at least {least}" if least else "a list"
        return next((f"{place}: {wrong}" for place, one in enumerate(value) if (wrong := check(one))), None)

    return check_each


def each_in(check: Check) -> Check:
    def check_each(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a mapping"
        return next((f"{key}: {wrong}" for key, one in value.items() if (wrong := check(one))), None)

    return check_each


def having(needed: Mapping[str, Check], others: Mapping[str, Check] | None = None) -> Check:
    """Check a mapping that must have the `needed` keys, and may have the `others`; unknown keys pass."""
    known = {**needed, **(others or {})}

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return "a mapping"
        if missing := needed.keys() - value.keys():
            return f"{min(missing)}: a value"
        return next(
            (f"{key}: {wrong}" for key, one in value.items() if key in known and (wrong := known[key](one))), None
        )

    return check


def having_only(check: Check, *keys: str) -> Check:
    """Check a mapping that may have only these keys."""
    return lambda value: check(value) or (None if value.keys() <= {*keys} else f"the keys {', '.join(keys)}")


def refuse(where: str, wrong: str | None, found: Any) -> None:
    """Raise `LogError` for the result of a check, unless it is None; the error shows the value at the result's keys."""
    if wrong is None:
        return
    *keys, expected = wrong.split(": ")
    for key in keys:
        found = _below(found, key)
    path = "".join(f": {printable(key)[:LONGEST_SHOWN]}" for key in keys)
    raise LogError(f"{where}{path}: expected {expected}, found {shown(found)}")


def _below(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    return value[int(key)] if isinstance(value, list) and key.isdecimal() and int(key) < len(value) else None
