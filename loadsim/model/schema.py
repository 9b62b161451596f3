"""How the fields of a document are read: scalars with units, and dataclasses that know all of their keys.

A class that is read is marked `@strict`; its fields are annotated with the scalars below, which say in words what
they expect. Key names are the field names without their `_s`: a duration in a file carries its own unit.
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

from loadsim.model.yaml_reader import refused, show

T = TypeVar("T")


# --- classes ----------------------------------------------------------------------------------------------------


def strict(cls: type[T]) -> type[T]:
    """Class decorator: this dataclass is read from a mapping that holds its keys and no others."""

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
            raise refused("a mapping")
        for key in value:
            if key not in keys:
                raise refused(f"one of the keys {', '.join(keys)}", show(key), at=(str(key),))
        return value

    return check


@dataclass(frozen=True, slots=True)
class Via:
    """Annotation: the value is read as a `shape` (a strict dataclass) and made from it by `make`."""

    shape: Any
    make: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read the shape, then make the value."""
        return core_schema.no_info_after_validator_function(self.make, handler.generate_schema(self.shape))


@dataclass(frozen=True, slots=True)
class OrWord:
    """Annotation: the value is the one word, or what the type says."""

    word: str
    shape: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let the word pass; read anything else as the shape."""

        def read(value: object, inner: Callable[[object], object]) -> object:
            if value == self.word:
                return value
            if not isinstance(value, dict):
                raise refused(f"{self.word} or a mapping")
            return inner(value)

        return core_schema.no_info_wrap_validator_function(read, handler.generate_schema(self.shape))


# --- scalars ----------------------------------------------------------------------------------------------------


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def whole(least: int, most: int | None = None) -> PlainValidator:
    """A whole number of at least `least`, and at most `most` if that is given."""
    words = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def read(value: object) -> int:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            raise refused(words)
        return value

    return PlainValidator(read)


def _amount(value: object) -> float:
    number = _number(value)
    if number is None or number < 0:
        raise refused("a number of at least 0")
    return number


_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,300})?)\s*%")


def _share(value: object) -> float:
    percent = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    share = float(Fraction(percent[1]) / 100) if percent else _number(value)  # 0.7% is 0.007, as 7 of 1000 are
    if share is None or not 0 <= share <= 1:
        raise refused("a share such as 30% or 0.3, from 0% to 100%")
    return share


_DURATION = re.compile(r"(?=.)(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


LONGEST_S = 366 * 24 * 3600.0
"""A slip of the finger above this would wait, or plan, for ever."""


def _duration(value: object) -> float:
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refused("a duration such as 90s, 10m, 8h or 1h30m")
    parts = zip(match.groups("0"), (3600.0, 60.0, 1.0, 1e-3), strict=True)
    seconds = sum(float(part) * unit for part, unit in parts)
    if seconds > LONGEST_S:
        raise refused(f"a duration of at most {LONGEST_S / 3600:.0f}h")
    return seconds


def _some_duration(value: object) -> float:
    seconds = _duration(value)
    if seconds <= 0:
        raise refused("a duration above 0s")
    return seconds


def _milliseconds(value: object) -> int:
    return round(_duration(value) * 1000)


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)([KM]?)")
_UNITS = {"": 1, "K": 1024, "M": 1024 * 1024}


def _size(value: object) -> int:
    text = str(value) if type(value) is int and 0 <= value < 10**15 else value
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise refused("a size such as 22K (of 1024 bytes)")
    return round(float(match[1]) * _UNITS[match[2]])


def _text(value: object) -> str:
    if isinstance(value, bool | int | float):
        raise refused("a text (a number, yes and no need quotes)")
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise refused("a text of printable characters")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise refused("yes or no")
    return value


def _off(value: object) -> bool:
    if value is not False:
        raise refused("no (loadsim does not do this yet)")
    return False


def word(*words: str) -> PlainValidator:
    """One of these words."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise refused(" or ".join(words))
        return value

    return PlainValidator(read)


Count = Annotated[int, whole(0)]
Positive = Annotated[int, whole(1)]
Amount = Annotated[float, PlainValidator(_amount)]
Share = Annotated[float, PlainValidator(_share)]
"""30% or 0.3 in the file, from 0 to 1 in the value."""
Duration = Annotated[float, PlainValidator(_duration)]
"""8h in the file, seconds in the value."""
SomeDuration = Annotated[float, PlainValidator(_some_duration)]
Milliseconds = Annotated[int, PlainValidator(_milliseconds)]
"""A duration in the file, whole milliseconds in the value."""
Size = Annotated[int, PlainValidator(_size)]
"""22K in the file, bytes in the value; K is 1024."""
Text = Annotated[str, PlainValidator(_text)]
Switch = Annotated[bool, PlainValidator(_switch)]
Off = Annotated[bool, PlainValidator(_off)]
"""A published "no" that the program does not act on."""
