"""Checks of documents, composed of checks of their values; each returns the text of what it expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from loadsim.errors import LogError, printable
from loadsim.timinglog.json_text import LONGEST_SHOWN, shown

Check = Callable[[Any], str | None]
"""Returns None for a good value, else what was expected, behind the keys that lead to it: `KEY: KEY: EXPECTED`."""


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
    """Check a mapping that has the `needed` keys, and perhaps others."""
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
    """Check a mapping that has no other keys."""
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
