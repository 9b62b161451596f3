"""Restrictions: the conditions of Restrict and FindRow (MS-OXCDATA section 2.12)."""

from __future__ import annotations

from typing import Annotated, Any

from loadsim.protocols.mapi.layout import (
    U8,
    U16,
    U32,
    Maybe,
    Reader,
    Several,
    layout_of,
    malformed,
    structure,
    uint8,
    uint16,
)
from loadsim.protocols.mapi.properties import Tagged, Value

DEEPEST = 20
"""The most restrictions within restrictions that are read."""


class Condition:
    """The kind of any restriction, after a byte that says which."""

    def write(self, value: Any) -> bytes:
        return bytes([_TYPES.index(type(value))]) + layout_of(type(value)).write(value)

    def read(self, reader: Reader) -> Any:
        type_ = uint8.read(reader)
        if type_ >= len(_TYPES) or reader.depth == DEEPEST:
            raise malformed(f"a restriction of at most {DEEPEST} levels", reader.at - 1)
        reader.depth += 1
        value = layout_of(_TYPES[type_]).read(reader)
        reader.depth -= 1
        return value


condition = Condition()
TagAndValue = Annotated[tuple[int, Value], Tagged()]

LESS, LESS_OR_EQUAL, GREATER, GREATER_OR_EQUAL, EQUAL, NOT_EQUAL = range(6)
WHOLE, SUBSTRING, PREFIX = range(3)
IGNORE_CASE = 0x0001


@structure
class And:
    parts: Annotated[tuple[Restriction, ...], Several(uint16, condition)]


@structure
class Or:
    parts: Annotated[tuple[Restriction, ...], Several(uint16, condition)]


@structure
class Not:
    part: Annotated[Restriction, condition]


@structure
class Content:
    """The property holds the value: `match` is `WHOLE`, `SUBSTRING` or `PREFIX`."""

    match: U16
    ignoring: U16
    tag: U32
    value: TagAndValue


@structure
class Compared:
    """The property compares with the value by an operator such as `EQUAL`."""

    operator: U8
    tag: U32
    value: TagAndValue


@structure
class ComparedWith:
    """One property compares with another."""

    operator: U8
    tag: U32
    other: U32


@structure
class Bits:
    """The bits of the property under a mask are zero, or with `nonzero` not."""

    nonzero: U8
    tag: U32
    mask: U32


@structure
class Size:
    """The size of the property's value in bytes compares with a number."""

    operator: U8
    tag: U32
    size_bytes: U32


@structure
class Exists:
    tag: U32


@structure
class OfParts:
    """Some recipient or attachment, as the tag says, meets the condition."""

    tag: U32
    part: Annotated[Restriction, condition]


@structure
class Comment:
    """A condition with values that mean nothing to the server."""

    values: Annotated[tuple[tuple[int, Value], ...], Several(uint8, Tagged())]
    part: Annotated[Restriction | None, Maybe(condition)]


@structure
class Count:
    """The condition, for at most this number of rows."""

    most: U32
    part: Annotated[Restriction, condition]


Restriction = And | Or | Not | Content | Compared | ComparedWith | Bits | Size | Exists | OfParts | Comment | Count
_TYPES: tuple[type, ...] = (
    *(And, Or, Not, Content, Compared, ComparedWith, Bits, Size, Exists, OfParts, Comment, Count),
)
