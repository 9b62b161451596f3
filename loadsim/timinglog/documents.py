"""JSON documents of unknown origin: strict reading, safe display, and values of the types that annotations state.

Pydantic would add 110 ms to the 270 ms of `loadsim log answer`: 65 ms for its import, 45 ms for its validators.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, reduce
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from loadsim.errors import LogError, printable

LONGEST_SHOWN = 60
"""The most characters of a value that an error shows."""

T = TypeVar("T")

MOST_LEVELS = 16
"""The most lists and mappings within each other."""


def read_document(name: str, text: bytes, *, strictly: bool = True) -> Any:
    """Read JSON; `strictly` rejects repeated keys, and escapes control characters. Raises `LogError`."""
    try:
        if not strictly:
            return json.loads(text)
        return harmless(name, json.loads(text, object_pairs_hook=unique_keys))
    except RepeatedJsonKey as repeated:
        raise LogError(f"{name}: expected each key once, found {shown(repeated.args[0])} again") from None
    except (ValueError, RecursionError):  # a number of thousands of digits is a ValueError
        raise LogError(f"{name}: expected JSON, found something else") from None


class RepeatedJsonKey(ValueError):
    """A JSON object repeats a key, which is the only argument."""


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs (a hook of `json.loads`). Raises `RepeatedJsonKey`."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set[str]()
        raise RepeatedJsonKey(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
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


# --- types ----------------------------------------------------------------------------------------------------------


class Wrong(ValueError):
    """A value that is not of its type: the words for what was expected, the value, and the keys that lead to it."""

    def __init__(self, expected: str, found: Any, *keys: str) -> None:
        super().__init__(expected)
        self.expected, self.found, self.keys = expected, found, keys

    def below(self, key: object) -> Wrong:
        """Return the same for the value that has this value at a key."""
        return Wrong(self.expected, self.found, str(key), *self.keys)


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of the number in an `Annotated` type; `above`: the least one is excluded."""

    least: float
    most: float
    above: bool = False


class Row:
    """Marks a named tuple, in an `Annotated` type, that is a list in documents."""


@dataclass(frozen=True, slots=True)
class ReadBy:
    """Marks a type, in an `Annotated` type, of which a function makes values; it raises `Wrong`."""

    read: Callable[[Any], Any]


_CLOSED = set[type]()


def closed(of: type[T]) -> type[T]:
    """Decorate a dataclass of which a document must not have other keys."""
    _CLOSED.add(of)
    return of


def read_as(of: type[T], value: Any, where: str) -> T:
    """Return a value of JSON as one of a type. Raises `LogError` with `where`, the keys, expected and found."""
    try:
        made: T = reader(cast(Any, of))(value)
    except Wrong as wrong:
        path = "".join(f": {printable(key)[:LONGEST_SHOWN]}" for key in wrong.keys)
        raise LogError(f"{where}{path}: expected {wrong.expected}, found {shown(wrong.found)}") from None
    return made


Reader = Callable[[Any], Any]
"""Returns the value of a type for a value of JSON. Raises `Wrong`."""


@cache
def reader(of: Any) -> Reader:
    """Return the reader of a type.

    Types: bool, str, finite numbers, `Literal`, `X | None`, `tuple[X, ...]`, `Mapping[str, X]`, and classes with fields
    (mappings, of which unknown keys pass): dataclasses, named tuples and typed dictionaries. `Annotated` types have
    checks: a `Within`, `Row`, `ReadBy`, or a function that returns its argument, or raises `Wrong`.
    """
    origin, arguments = get_origin(of), get_args(of)
    if of in (int, float):
        return _number(of, Within(-(2**63), 2**63 - 1) if of is int else Within(-1e300, 1e300))
    if of in (str, bool):
        return _only(lambda value: isinstance(value, of), "a text" if of is str else "true or false")
    if origin is Literal:
        return _only(lambda value: isinstance(value, str) and value in arguments, f"one of {', '.join(arguments)}")
    if origin is Annotated:
        inner, *checks = arguments
        if isinstance(checks[0], Within):
            return _number(inner, checks[0])
        if isinstance(checks[0], ReadBy):
            return checks[0].read
        read = _row(inner) if checks[0] is Row else reader(inner)
        return reduce(_checked, (check for check in checks if check is not Row), read)
    if origin in (Union, UnionType):
        (inner,) = (one for one in arguments if one is not NoneType)
        return _or_none(reader(inner))
    if origin is tuple:
        return _list(reader(arguments[0]))
    if origin is Mapping:
        return _mapping(reader(arguments[1]))
    return _record(of)


def _only(good: Callable[[Any], bool], words: str) -> Reader:
    def read(value: Any) -> Any:
        if not good(value):
            raise Wrong(words, value)
        return value

    return read


def _number(of: Any, bounds: Within) -> Reader:
    least, most, above = bounds.least, bounds.most, bounds.above
    if of is int:
        words = f"a whole number from {least} to {most}"
    else:
        words = f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"

    def read(value: Any) -> Any:
        good = type(value) in (int, of) and least <= value <= most
        if not good or (above and value == least):
            raise Wrong(words, value)
        return value

    return read


def _checked(read: Reader, check: Reader) -> Reader:
    return lambda value: check(read(value))


def _or_none(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _list(read: Reader) -> Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Wrong("a list", value)
        return tuple(_values(enumerate(value), repeat(read)))

    return read_list


def _row(of: Any) -> Reader:
    readers = [*map(reader, get_type_hints(of, include_extras=True).values())]

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Wrong(f"a list of {len(readers)}", value)
        return of(*_values(enumerate(value), readers))

    return read


def _mapping(read: Reader) -> Reader:
    def read_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("a mapping", value)
        return dict(zip(value, _values(value.items(), repeat(read)), strict=True))

    return read_mapping


@cache
def _fields(of: Any) -> tuple[Mapping[str, Reader], frozenset[str]]:
    """Return the readers of a class's fields by key, and the keys that a document must have."""
    readers = {key: reader(hint) for key, hint in get_type_hints(of, include_extras=True).items()}
    if is_dataclass(of):
        optional = {one.name for one in fields(of) if one.default is not MISSING or one.default_factory is not MISSING}
    else:
        optional = {*getattr(of, "_field_defaults", ()), *getattr(of, "__optional_keys__", ())}
    return readers, frozenset(readers.keys() - optional)


def _record(of: Any) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("a mapping", value)
        readers, needed = _fields(of)  # found when a document first has the class: this takes a millisecond
        if of in _CLOSED and value.keys() - readers.keys():
            raise Wrong(f"the keys {', '.join(readers)}", value)
        if missing := needed - value.keys():
            raise Wrong("a value", None, min(missing))
        known = {key: value[key] for key in readers if key in value}
        return of(**dict(zip(known, _values(known.items(), map(readers.__getitem__, known)), strict=True)))

    return read


def _values(items: Iterable[tuple[object, Any]], readers: Iterable[Reader]) -> list[Any]:
    """Return the values of these items as each reader makes them."""
    made = []
    for (key, value), read in zip(items, readers, strict=False):
        try:
            made.append(read(value))
        except Wrong as wrong:
            raise wrong.below(key) from None
    return made
