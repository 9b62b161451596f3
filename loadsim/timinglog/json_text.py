"""JSON documents in files that others may have written: read strictly, and made safe to show."""

from __future__ import annotations

import json
from typing import Any

from loadsim.errors import LogError, printable

LONGEST_SHOWN = 60
"""The most characters of a value that an error shows."""

MOST_LEVELS = 16
"""The most lists and mappings within each other."""


def read_document(name: str, text: bytes | memoryview, *, strictly: bool = True) -> Any:
    """Read JSON; `strictly` rejects repeated keys, and escapes what could harm a terminal. Raises `LogError`."""
    try:
        if not strictly:
            return json.loads(bytes(text))
        return harmless(name, json.loads(bytes(text), object_pairs_hook=_each_once))
    except _TwiceError as twice:
        raise LogError(f"{name}: expected each key once, found {shown(twice.args[0])} again") from None
    except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError
        raise LogError(f"{name}: expected JSON, found something else") from None


class _TwiceError(Exception):
    """A key is repeated; `args` has it."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise _TwiceError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def harmless(name: str, value: Any, levels: int = MOST_LEVELS) -> Any:
    """Return the same document with texts that a terminal and UTF-8 can show. Raises `LogError` if it is too deep."""
    if isinstance(value, str):
        return printable(value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise LogError(f"{name}: expected at most {MOST_LEVELS} levels, found more")
    if isinstance(value, dict):
        return {printable(key): harmless(name, one, levels - 1) for key, one in value.items()}
    return [harmless(name, one, levels - 1) for one in value]


def shown(value: Any) -> str:
    """Return a value in a few characters; lists and mappings only by their type."""
    if value is None or isinstance(value, dict | list | tuple):
        return {type(None): "nothing", dict: "a mapping"}.get(type(value), "a list")
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**LONGEST_SHOWN else "a larger number"
    return printable(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")
