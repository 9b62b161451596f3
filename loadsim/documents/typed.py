"""Reading annotated types from documents: mappings, lists and scalars from YAML or JSON.

Pydantic would add 110 ms to the 270 ms of `loadsim log answer`, and 140 ms to the 120 ms of reading a scenario.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, reduce
from inspect import get_annotations
from itertools import chain, repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from loadsim.errors import MOST_SHOWN, printable

T = TypeVar("T")

LONGEST_SHOWN = 60
"""The most characters of a value to show in an error."""

Reader = Callable[[Any], Any]
"""Converts a document's value to a value of a type. Raises `Wrong`."""


# --- errors -----------------------------------------------------------------------------------------------------

_OPEN = object()
"""Stands for the value that a reader was called with."""


class Wrong(ValueError):
    """A value of the wrong type: a description of what was expected, the value, and the keys that lead to it.

    `text` replaces the value in errors. `others` are further mistakes in the same document.
    """

    def __init__(self, expected: str, found: Any = _OPEN, *keys: Any, text: str | None = None) -> None:
        super().__init__(expected)
        self.expected, self.found, self.keys, self.text = expected, found, keys, text
        self.others: list[Wrong] = []

    def within(self, value: Any, *keys: Any) -> list[Wrong]:
        """Return all mistakes in a value found under these keys."""
        mistakes = [self, *self.others]
        for wrong in mistakes:
            wrong.keys = (*keys, *wrong.keys)
            wrong.found = value if wrong.found is _OPEN else wrong.found
        return mistakes


def mismatch(expected: str, found: str | None = None, at: tuple[Any, ...] = ()) -> Wrong:
    """Return the exception for a field that is not as expected.

    `at` is the path below the field; `found` is a text to show instead of the value.
    """
    return Wrong(expected, _OPEN, *at, text=found)


def mismatches(mistakes: Sequence[Wrong]) -> Wrong:
    """Combine one or more mistakes into one exception."""
    first, *others = mistakes
    for wrong in mistakes:
        wrong.others = []
    first.others = others
    return first


def show(value: object) -> str:
    """Describe a value in a few characters; lists and mappings only by their type."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case int() if abs(value) >= 10**LONGEST_SHOWN:
            return "a larger number"
    text = repr(value)
    return printable(text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "...")


SIMILAR = 0.75
"""The least similarity of names. With a lower one, `users` would match `cluster`, and `profile` match `probes`."""


def nearest(name: object, names: Iterable[str]) -> str | None:
    """Return the name that ends with this one, or else the most similar name; None if nothing is similar."""
    from difflib import get_close_matches

    folded, wanted = {known.casefold(): known for known in names}, str(name).casefold()
    near = [known for known in folded if known.endswith(f"_{wanted}")] or get_close_matches(wanted, folded, 1, SIMILAR)
    return folded[near[0]] if near else None


# --- annotations ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds for a number; with `above`, the lower bound itself is excluded."""

    least: float
    most: float
    above: bool = False


class Row:
    """Marks a named tuple that is a list in documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """The annotation for a value that `read` converts. `words` describe accepted values in the reference."""

    read: Reader
    words: str = ""


@dataclass(frozen=True, slots=True)
class ReadAs:
    """The annotation for a value that is read as a `section` (a strict dataclass), and converted by `make`."""

    section: Any
    make: Reader


_KEYS: dict[type, Mapping[str, str]] = {}
"""The fields' keys in classes whose documents must not have other keys."""


def closed(cls: type[T]) -> type[T]:
    """Decorate a dataclass whose documents must have no keys but its fields."""
    _KEYS[cls] = {field.name: field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls


def strict(cls: type[T]) -> type[T]:
    """Decorate a closed dataclass. A field's key is in its metadata; otherwise it is the name without `_s`."""
    _KEYS[cls] = keys_of(cls)
    return cls


def keys_of(cls: Any) -> dict[str, str]:
    """Return the key of each field, with the class's own before inherited ones."""
    own_first = sorted(fields(cls), key=lambda field: field.name not in get_annotations(cls))
    return {field.name: field.metadata.get("key", field.name.removesuffix("_s")) for field in own_first}


# --- readers ----------------------------------------------------------------------------------------------------


def value_of(kind: Any, document: Any) -> Any:
    """Read a value of a type from a document. Raises `Wrong`."""
    return reader(kind)(document)


@cache
def reader(kind: Any) -> Reader:
    """Return the reader for a type.

    Types: bool, str, finite numbers, `Literal`, unions, tuples, mappings, and classes with fields: dataclasses, named
    tuples and typed dictionaries, which are mappings in documents. Unknown keys are ignored, unless a class is `closed`
    or `strict`. An `Annotated` type has one of the annotations above, or functions that return their argument or raise
    `Wrong`.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (int, float):
        return _number(kind, Within(-(2**63), 2**63 - 1) if kind is int else Within(-1e300, 1e300))
    if kind in (str, bool):
        return _only(lambda value: isinstance(value, kind), "a text" if kind is str else "true or false")
    if origin is Literal:
        words = arguments[0] if len(arguments) == 1 else f"one of {', '.join(arguments)}"
        return _only(lambda value: isinstance(value, str) and value in arguments, words)
    if origin is Annotated:
        return _annotated(*arguments)
    if origin in (Union, UnionType):
        return _one_of([reader(member) for member in arguments if member is not NoneType], NoneType in arguments)
    if origin is tuple:
        return _list(reader(arguments[0])) if arguments[-1] is ... else _row(arguments, tuple)
    if origin in (Mapping, dict):
        return _mapping(*map(reader, arguments))
    return _record(kind)


def _annotated(kind: Any, *checks: Any) -> Reader:
    match checks[0]:
        case Within():
            return _number(kind, checks[0])
        case Reads():
            return checks[0].read
        case ReadAs():
            return _checked(reader(checks[0].section), checks[0].make)
    if checks[0] is Row:
        return reduce(_checked, checks[1:], _row(get_type_hints(kind, include_extras=True).values(), kind._make))
    return reduce(_checked, checks, reader(kind))


def _only(good: Callable[[Any], bool], words: str) -> Reader:
    def read(value: Any) -> Any:
        if not good(value):
            raise Wrong(words, value)
        return value

    return read


def _number(kind: Any, bounds: Within) -> Reader:
    least, most, above = bounds.least, bounds.most, bounds.above
    if kind is int:
        words = f"a whole number from {least} to {most}"
    else:
        words = f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"

    def read(value: Any) -> Any:
        good = type(value) in (int, kind) and least <= value <= most
        if not good or (above and value == least):
            raise Wrong(words, value)
        return value

    return read


def _checked(read: Reader, check: Reader) -> Reader:
    return lambda value: check(read(value))


def _one_of(readers: Sequence[Reader], optional: bool) -> Reader:
    """Return the reader for a union, which picks the first type that fits. Only the last type may have keys."""

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        expected = []
        for read_as in readers:
            try:
                return read_as(value)
            except Wrong as wrong:
                if wrong.keys or wrong.others or len(readers) == 1:
                    raise
                expected.append(wrong.expected)
        raise Wrong(" or ".join(expected), value)

    return read


def _list(read: Reader) -> Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise Wrong("a list", value)
        return tuple(_values(enumerate(value), repeat(read)))

    return read_list


def _row(kinds: Iterable[Any], make: Reader) -> Reader:
    readers = [*map(reader, kinds)]

    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple) or len(value) != len(readers):
            raise Wrong(f"a list of {len(readers)}", value)
        return make(_values(enumerate(value), readers))

    return read


def _mapping(read_key: Reader, read: Reader) -> Reader:
    def read_mapping(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("a mapping", value)
        items = [*((key, key) for key in value), *value.items()]
        made = _values(items, chain(repeat(read_key, len(value)), repeat(read)))
        return dict(zip(made[: len(value)], made[len(value) :], strict=True))

    return read_mapping


@cache
def _fields(cls: Any) -> tuple[Mapping[str, tuple[str, Reader]], frozenset[str]]:
    """Return the names and readers of a class's fields by key, and the required keys."""
    hints, keys = get_type_hints(cls, include_extras=True), _KEYS.get(cls, {})
    if is_dataclass(cls):
        optional = {field.name for field in fields(cls) if not field.default is field.default_factory is MISSING}
        hints = {name: hints[name] for name in keys or keys_of(cls)}
    else:
        optional = {*getattr(cls, "_field_defaults", ()), *getattr(cls, "__optional_keys__", ())}
    readers = {keys.get(name, name): (name, reader(hint)) for name, hint in hints.items()}
    return readers, frozenset(key for key, (name, _) in readers.items() if name not in optional)


def _record(cls: Any) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Wrong("a mapping", value)
        readers, needed = _fields(cls)  # computed for the first document of the class, as this takes a millisecond
        # If a key was misspelt, the right one is not reported as missing as well.
        strange = [key for key in value if key not in readers] if cls in _KEYS else []
        meant = {key: nearest(key, readers) for key in strange[:MOST_SHOWN]}  # a slow search
        mistakes = [_unknown(key, readers, meant.get(key)) for key in strange]
        made = {}
        for key, (name, read_field) in readers.items():
            if key in value:
                try:
                    made[name] = read_field(value[key])
                except Wrong as wrong:
                    mistakes += wrong.within(value[key], key)
            elif key in needed and key not in meant.values():
                mistakes.append(Wrong("a value", None, key))
        if mistakes:
            raise mismatches(mistakes)
        return cls(**made)

    return read


def _unknown(key: object, keys: Iterable[str], meant: str | None) -> Wrong:
    found = f"{show(key)} (perhaps {meant})" if meant else show(key)
    return Wrong(f"one of the keys {', '.join(keys)}", key, str(key), text=found)


def _values(items: Iterable[tuple[object, Any]], readers: Iterable[Reader]) -> list[Any]:
    """Return the values that the readers make of these items."""
    made, mistakes = [], list[Wrong]()
    for (key, value), read in zip(items, readers, strict=False):
        try:
            made.append(read(value))
        except Wrong as wrong:
            mistakes += wrong.within(value, key)
    if mistakes:
        raise mismatches(mistakes)
    return made
