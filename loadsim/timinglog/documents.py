"""JSON documents of unknown origin: strict reading, and bounded quantities."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from loadsim.documents.typed import LONGEST_SHOWN, Reader, Within, Wrong, show, value_of
from loadsim.errors import LogError, printable
from loadsim.findings.finding import GREATEST
from loadsim.model.terms import MOST_USERS

T = TypeVar("T")

MOST_LEVELS = 16
"""The deepest nesting of lists and mappings."""


def read_document(name: str, text: bytes, *, strictly: bool = True) -> Any:
    """Read JSON. If `strictly`, reject repeated keys, and escape control characters. Raises `LogError`."""
    try:
        if not strictly:
            return json.loads(text)
        return harmless(name, json.loads(text, object_pairs_hook=unique_keys))
    except RepeatedJsonKey as repeated:
        raise LogError(f"{name}: expected each key once, found {show(repeated.args[0])} again") from None
    except (ValueError, RecursionError):  # a number with thousands of digits raises ValueError
        raise LogError(f"{name}: expected JSON, found something else") from None


def read_figures(text: str | bytes) -> Any:
    """Read JSON whose numbers are finite and fit findings. Raises `ValueError` or `RecursionError`."""
    return json.loads(text, parse_constant=_number, parse_float=_number, parse_int=lambda digits: int(_number(digits)))


def _number(text: str) -> float:
    number = float(text)
    if not abs(number) <= GREATEST:  # also rejects NaN
        raise ValueError(text)
    return number


class RepeatedJsonKey(ValueError):
    """A JSON object has the same key twice, which is the only argument."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object from its pairs (a hook for `json.loads`). Raises `RepeatedJsonKey`."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen = set[str]()
        raise RepeatedJsonKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return mapping


def harmless(name: str, value: Any, levels: int = MOST_LEVELS) -> Any:
    """Make all text in a document printable. Raises `LogError` if it is nested more than `levels` deep."""
    if isinstance(value, str):
        return printable(value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise LogError(f"{name}: expected at most {MOST_LEVELS} levels, found more")
    if isinstance(value, dict):
        return {
            printable(key) if isinstance(key, str) else key: harmless(name, inner, levels - 1)
            for key, inner in value.items()
        }
    return [harmless(name, inner, levels - 1) for inner in value]


def read_as(kind: type[T], value: Any, where: str) -> T:
    """Read a JSON value as a value of a type. Raises `LogError` with `where`, keys, and what was expected and found."""
    try:
        made: T = value_of(kind, value)
    except Wrong as wrong:
        first, *_ = wrong.within(value)
        path = "".join(f": {printable(str(key))[:LONGEST_SHOWN]}" for key in first.keys)
        raise LogError(f"{where}{path}: expected {first.expected}, found {first.text or show(first.found)}") from None
    return made


def at_least(count: int) -> Reader:
    """Return a check for lists of at least `count` values."""

    def check(values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) < count:
            raise Wrong(f"a list of at least {count}", values)
        return values

    return check


# --- quantities: within these bounds, differences and sums are finite -------------------------------------------------

LONGEST_S = 2**25
"""The most seconds in a document. Runs are shorter (see `documents.schema.LONGEST_S`)."""

SHORTEST_DAY_S = 1e-6
"""The shortest day in a header. Figures divided by it must stay finite."""

MOST_NS = 2**62
"""The largest instant on a clock. Differences between instants fit into 64 bits."""

Instant_ns = Annotated[int, Within(-MOST_NS, MOST_NS)]
Length_ns = Annotated[int, Within(0, MOST_NS)]
Count = Annotated[int, Within(0, 2**53)]
Users = Annotated[int, Within(0, MOST_USERS)]
Seconds = Annotated[float, Within(0, LONGEST_S)]
Instant_s = Annotated[float, Within(-LONGEST_S, LONGEST_S)]
Day_s = Annotated[float, Within(SHORTEST_DAY_S, LONGEST_S)]
Share = Annotated[float, Within(0, 1)]
Amount = Annotated[float, Within(0, 1e300)]
Level = Annotated[int, Within(-(2**53), 2**53)]
Change = Annotated[float, Within(-1e15, 1e15)]
