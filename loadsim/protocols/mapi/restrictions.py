"""Restrictions: the conditions of Restrict (MS-OXCDATA section 2.12)."""

from __future__ import annotations

from typing import Annotated, Any

from loadsim.protocols.mapi.layout import U8, U16, U32, Reader, Several, layout_of, malformed, structure, uint8, uint16
from loadsim.protocols.mapi.properties import Tagged, Value

DEEPEST = 20
"""The most restrictions within restrictions that are read."""


class Condition:
    """The kind of any restriction, after a byte that says which."""

    def write(self, value: Any) -> bytes:
        return bytes([_NUMBERS[type(value)]]) + layout_of(type(value)).write(value)

    def read(self, reader: Reader) -> Any:
        type_ = _TYPES.get(uint8.read(reader))
        if type_ is None or reader.depth == DEEPEST:
            raise malformed(f"a restriction of at most {DEEPEST} levels", reader.at - 1)
        reader.depth += 1
        value = layout_of(type_).read(reader)
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
class Bits:
    """The bits of the property under a mask are zero, or with `nonzero` not."""

    nonzero: U8
    tag: U32
    mask: U32


@structure
class Exists:
    tag: U32


Restriction = And | Or | Not | Content | Compared | Bits | Exists
_TYPES: dict[int, type] = {0: And, 1: Or, 2: Not, 3: Content, 4: Compared, 6: Bits, 8: Exists}
_NUMBERS = {type_: number for number, type_ in _TYPES.items()}
