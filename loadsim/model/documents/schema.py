"""Types for the fields of a document: scalars with units, and dataclasses that reject unknown keys.

A class for a mapping is decorated with `@strict`; its fields are annotated with the scalars below. A key is the name of
its field without `_s`: a duration in a file has its own unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from loadsim.errors import MOST_SHOWN
from loadsim.model.documents import lazy_pydantic as pydantic
from loadsim.model.documents.yaml_reader import failures_of, mismatch, show

T = TypeVar("T")


# --- classes ----------------------------------------------------------------------------------------------------


def strict(cls: type[T]) -> type[T]:
    """Decorate a dataclass that is read from a mapping with its keys and no others."""

    def schema(source: Any, handler: pydantic.GetCoreSchemaHandler) -> pydantic.CoreSchema:
        return pydantic.core_schema.no_info_wrap_validator_function(_only(tuple(keys.values())), handler(source))

    keys = _keys(cls)
    vars_of: Any = cls
    vars_of.__pydantic_config__ = {"extra": "forbid", "alias_generator": keys.__getitem__}
    vars_of.__get_pydantic_core_schema__ = staticmethod(schema)
    return cls


def _keys(cls: Any) -> dict[str, str]:
    return {field.name: field.metadata.get("key", field.name.removesuffix("_s")) for field in fields(cls)}


def _only(keys: tuple[str, ...]) -> Callable[[object, Callable[[object], object]], object]:
    """Return a check that rejects unknown keys, together with the errors of the others."""

    def read(value: object, inner: Callable[[object], object]) -> object:
        if not isinstance(value, dict):
            raise mismatch("a mapping")
        strange = [key for key in value if key not in keys]
        if not strange:
            return inner(value)
        meant = {key: nearest(key, keys) for key in strange[:MOST_SHOWN]}  # a slow search
        unknown = [_unknown(key, keys, meant.get(key)) for key in strange]
        failures = [pydantic.InitErrorDetails(type=each, input=value) for each in unknown]
        try:
            inner({key: each for key, each in value.items() if key in keys})
        except pydantic.ValidationError as error:
            # A check across keys needs them all, and a misspelt key is not missing as well.
            misspelt = [("missing", (key,)) for key in meant.values()]
            found = failures_of(error)
            failures += [each for each in found if each["loc"] and (each["type"], each["loc"]) not in misspelt]
        raise pydantic.ValidationError.from_exception_data("", failures)

    return read


def _unknown(key: object, keys: Sequence[str], meant: str | None) -> pydantic.PydanticCustomError:
    found = f"{show(key)} (perhaps {meant})" if meant else show(key)
    return mismatch(f"one of the keys {', '.join(keys)}", found, at=(str(key),))


SIMILAR = 0.75
"""The least ratio of similar names. With less, `users` is like `cluster`, and `profile` like `probes`."""


def nearest(name: object, names: Iterable[str]) -> str | None:
    """Return the name that ends with this one, or else the most similar one; None if there is no such name."""
    folded, wanted = {each.casefold(): each for each in names}, str(name).casefold()
    near = [each for each in folded if each.endswith(f"_{wanted}")] or get_close_matches(wanted, folded, 1, SIMILAR)
    return folded[near[0]] if near else None


def nearest_path(name: object, names: Iterable[str]) -> str | None:
    """Return the name such as loadsim-5.5/medium that is most similar to this one, also to its last part, or None.

    Of several names with the same last part, it is the last one.
    """
    names = list(names)
    last_parts = {each.rpartition("/")[2]: each for each in names}
    return nearest(name, names) or last_parts.get(nearest(name, last_parts) or "")


def with_nearest(name: object, names: Iterable[str]) -> str:
    """Return a wrong name as errors show it, with the name that is probably meant."""
    near = nearest_path(name, names)
    return show(name) + (f" (perhaps {near})" if near else "")


@dataclass(frozen=True, slots=True, eq=False)
class Reads:
    """Annotation: turn a value into another one by `read`. `words` name the accepted values in the reference."""

    read: Callable[[Any], Any]
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> pydantic.CoreSchema:
        return pydantic.core_schema.no_info_plain_validator_function(self.read)


NAME_OR_PATH = "name or path"
"""The words for a shipped file, or one of the user's."""


@dataclass(frozen=True, slots=True)
class ReadAs:
    """Annotation: read a value as `section` (a strict dataclass), and convert it with `make`."""

    section: Any
    make: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> pydantic.CoreSchema:
        return pydantic.core_schema.no_info_after_validator_function(self.make, handler.generate_schema(self.section))


@dataclass(frozen=True, slots=True)
class KeywordOr:
    """Annotation: accept `keyword`, or else a mapping that is read as `section`."""

    keyword: str
    section: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: pydantic.GetCoreSchemaHandler) -> pydantic.CoreSchema:
        def read(value: object, inner: Callable[[object], object]) -> object:
            if value == self.keyword:
                return value
            if not isinstance(value, dict):
                raise mismatch(f"{self.keyword} or a mapping")
            return inner(value)

        return pydantic.core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.section))


# --- scalars ----------------------------------------------------------------------------------------------------


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


MOST_WHOLE = 2**53
"""Whole numbers above it have no exact floating-point number."""


def whole(least: int, most: int = MOST_WHOLE) -> Reads:
    """Accept a whole number from `least` to `most`."""
    words = f"a whole number from {least} to {most}"
    at_least = f"a whole number of at least {least}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            open_ended = most == MOST_WHOLE and not (isinstance(value, int) and value > most)
            raise mismatch(at_least if open_ended else words)
        return value

    return Reads(read, f"from {least}" if most == MOST_WHOLE else f"{least} to {most:,}")


def _amount(value: object) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise mismatch("a number of at least 0")
    if number > 1e15:  # beyond, microseconds and sums lose digits
        raise mismatch("a number of at most 1e15")
    return number


_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,300})?)\s*%", re.ASCII)


def _share(value: object) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(Fraction(percent[1]) / 100) if percent else _number(value)  # exactly: 0.7% is 0.007
    if share is None or not 0 <= share <= 1:
        raise mismatch("a share such as 30% or 0.3, from 0% to 100%")
    return share


_DURATION = re.compile(
    r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII
)


LONGEST_S = 366 * 24 * 3600.0
"""The longest duration. A typing error above it would plan or wait endlessly."""


def _duration(value: object) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise mismatch("a duration such as 90s, 10m, 8h or 1h30m")
    parts = zip(match.groups("0"), (3600.0, 60.0, 1.0, 1e-3), strict=True)
    seconds = sum(float(part) * unit for part, unit in parts)
    if seconds > LONGEST_S:
        raise mismatch(f"a duration of at most {LONGEST_S / 3600:.0f}h")
    return seconds


def _positive_duration(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise mismatch("a duration above 0s")
    return seconds


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KM]?)", re.ASCII)
_UNITS = {"": 1, "K": 1024, "M": 1024 * 1024}


def _size(value: object) -> int:
    text = str(value) if type(value) is int and 0 <= value < 10**15 else value
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise mismatch("a size such as 22K (of 1024 bytes)")
    return round(float(match[1]) * _UNITS[match[2]])


def text(value: object) -> str:
    if isinstance(value, bool | int | float):
        raise mismatch("a text (a number, yes and no need quotes)")
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise mismatch("a text of printable characters")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise mismatch("yes or no")
    return value


def matching(pattern: str, expected: str) -> Reads:
    """Accept a text that this pattern matches as a whole; `expected` describes it."""
    compiled = re.compile(pattern, re.ASCII)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise mismatch(expected)
        return value

    return Reads(read, "text")


def word(*words: str) -> Reads:
    """Accept one of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise mismatch(" or ".join(words), with_nearest(value, words) if isinstance(value, str) else None)
        return value

    return Reads(read, ", ".join(words))


Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Amount = Annotated[float, Reads(_amount, "number")]
Share = Annotated[float, Reads(_share, "share")]
"""30% or 0.3 in the file, from 0 to 1 in the value."""
Duration = Annotated[float, Reads(_duration, "duration")]
"""8h in the file, seconds in the value."""
PositiveDuration = Annotated[float, Reads(_positive_duration, "duration above 0")]
Milliseconds = Annotated[int, Reads(lambda value: round(_duration(value) * 1000), "duration")]
"""A duration in the file, whole milliseconds in the value."""
Size = Annotated[int, Reads(_size, "size")]
"""22K in the file, bytes in the value; K is 1024."""
Text = Annotated[str, Reads(text, "text")]
Switch = Annotated[bool, Reads(_switch, "yes, no")]
