"""Types for the fields of a document: scalars with units, and dataclasses that reject unknown keys.

A class for a mapping is decorated with `@strict`; its fields are annotated with the scalars below. A key is the name of
its field without `_s`: a duration in a file has its own unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Annotated, Any, TypeVar

from pydantic import AliasGenerator, ConfigDict, GetCoreSchemaHandler, PlainValidator
from pydantic_core import CoreSchema, core_schema

from loadsim.model.yaml_reader import mismatch, show

T = TypeVar("T")


# --- classes ----------------------------------------------------------------------------------------------------


def strict(cls: type[T]) -> type[T]:
    """Decorate a dataclass that is read from a mapping with its keys and no others."""

    def schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_only(tuple(keys.values())), handler(source))

    keys = _keys(cls)
    vars_of: Any = cls
    aliases = AliasGenerator(validation_alias=lambda name: keys[name])
    vars_of.__pydantic_config__ = ConfigDict(extra="forbid", alias_generator=aliases)
    vars_of.__get_pydantic_core_schema__ = staticmethod(schema)
    return cls


def _keys(cls: Any) -> dict[str, str]:
    return {field.name: field.metadata.get("key", field.name.removesuffix("_s")) for field in fields(cls)}


def _only(keys: tuple[str, ...]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise mismatch("a mapping")
        for key in value:
            if key not in keys:
                raise mismatch(f"one of the keys {', '.join(keys)}", show(key), at=(str(key),))
        return value

    return check


@dataclass(frozen=True, slots=True)
class ReadAs:
    """Annotation: read a value as `section` (a strict dataclass), and convert it with `make`."""

    section: Any
    make: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.make, handler.generate_schema(self.section))


@dataclass(frozen=True, slots=True)
class KeywordOr:
    """Annotation: accept `keyword`, or else a mapping that is read as `section`."""

    keyword: str
    section: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object, inner: Callable[[object], object]) -> object:
            if value == self.keyword:
                return value
            if not isinstance(value, dict):
                raise mismatch(f"{self.keyword} or a mapping")
            return inner(value)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.section))


# --- scalars ----------------------------------------------------------------------------------------------------


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


MOST_WHOLE = 2**53
"""Whole numbers above it have no exact floating-point number."""


def whole(least: int, most: int = MOST_WHOLE) -> PlainValidator:
    """Accept a whole number from `least` to `most`."""
    words = f"a whole number from {least} to {most}"
    at_least = f"a whole number of at least {least}"

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            open_ended = most == MOST_WHOLE and not (isinstance(value, int) and value > most)
            raise mismatch(at_least if open_ended else words)
        return value

    return PlainValidator(read)


def _amount(value: object) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise mismatch("a number of at least 0")
    if number > 1e15:  # beyond, microseconds and sums lose digits
        raise mismatch("a number of at most 1e15")
    return number


_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,300})?)\s*%")


def _share(value: object) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(Fraction(percent[1]) / 100) if percent else _number(value)  # exactly: 0.7% is 0.007
    if share is None or not 0 <= share <= 1:
        raise mismatch("a share such as 30% or 0.3, from 0% to 100%")
    return share


_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


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


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KM]?)")
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


def _off(value: object) -> bool:
    if value is not False:
        raise mismatch("no (loadsim does not do this yet)")
    return False


def word(*words: str) -> PlainValidator:
    """Accept one of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise mismatch(" or ".join(words))
        return value

    return PlainValidator(read)


Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Amount = Annotated[float, PlainValidator(_amount)]
Share = Annotated[float, PlainValidator(_share)]
"""30% or 0.3 in the file, from 0 to 1 in the value."""
Duration = Annotated[float, PlainValidator(_duration)]
"""8h in the file, seconds in the value."""
PositiveDuration = Annotated[float, PlainValidator(_positive_duration)]
Milliseconds = Annotated[int, PlainValidator(lambda value: round(_duration(value) * 1000))]
"""A duration in the file, whole milliseconds in the value."""
Size = Annotated[int, PlainValidator(_size)]
"""22K in the file, bytes in the value; K is 1024."""
Text = Annotated[str, PlainValidator(text)]
Switch = Annotated[bool, PlainValidator(_switch)]
Off = Annotated[bool, PlainValidator(_off)]
"""A published "no" about a feature that loadsim lacks."""
