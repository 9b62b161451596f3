"""Property tags, names, values and rows (MS-OXCDATA sections 2.6 to 2.11; MS-OXCMAPIHTTP section 2.2.1).

A tag is 32 bits: the identifier in the upper half, the type in the lower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi.codes import ErrorCode
from loadsim.protocols.mapi.layout import (
    Kind,
    Maybe,
    Number,
    Reader,
    Sequential,
    Sized,
    boolean,
    int32,
    malformed,
    uint8,
    uint16,
    uint32,
    uint64,
    unicode,
)

Value = int | str | bytes | ErrorCode | None
"""A value of a property; None or `ErrorCode` if the server has none to return."""

INTEGER32 = 0x0003
ERROR = 0x000A
BOOLEAN = 0x000B
INTEGER64 = 0x0014
STRING = 0x001F
TIME = 0x0040
BINARY = 0x0102

MOST_COLUMNS = 1000
"""The most columns of a row that a server describes; loadsim asks for a few."""

_EPOCH_US = 11_644_473_600_000_000  # from 1601 to 1970


def tag(identifier: int, type_: int) -> int:
    """Return the tag of a property, such as a named one, of this type."""
    return identifier << 16 | type_


def time_of(microseconds: int) -> int:
    """Return the PtypTime, units of 100 ns since 1601, of microseconds since 1970."""
    return (microseconds + _EPOCH_US) * 10


class _Code:
    """A PtypErrorCode."""

    def read(self, reader: Reader) -> ErrorCode:
        return ErrorCode(uint32.read(reader))


_code = _Code()

Kinds = Mapping[int, Kind]
"""The kinds of values by the types of properties: those of `tags`, and the error."""

_FIXED: Kinds = {INTEGER32: int32, BOOLEAN: boolean, INTEGER64: Number("q"), TIME: uint64, ERROR: _code}
IN_ROPS: Kinds = {**_FIXED, STRING: unicode, BINARY: Sized(uint16)}
IN_ADDRESS_BOOK: Kinds = {**_FIXED, STRING: Maybe(unicode), BINARY: Maybe(Sized(uint32))}


def kind_of(property_tag: int, kinds: Kinds = IN_ROPS) -> Kind:
    kind = kinds.get(property_tag & 0xFFFF)
    if kind is None:
        raise ProtocolError("MAPI syntax", f"expected a known type of property, found 0x{property_tag & 0xFFFF:04X}")
    return kind


class _Flagged:
    """A value, or the reason why it is missing, after a byte that says which (MS-OXCDATA section 2.11.5)."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def read(self, reader: Reader) -> Any:
        flag = uint8.read(reader)
        if flag not in (0, 1, 10):
            raise malformed("a flag of a value", reader.at - 1)
        return None if flag == 1 else (_code if flag == 10 else self.kind).read(reader)


@lru_cache(maxsize=256)
def _sequences(columns: tuple[int, ...], address_book: bool) -> tuple[Sequential, Sequential]:
    """Return the kinds of a row with all values, and of one that lacks some."""
    if len(columns) > MOST_COLUMNS:
        raise ProtocolError("MAPI syntax", f"expected at most {MOST_COLUMNS} columns, found {len(columns)}")
    kinds = [kind_of(each, IN_ADDRESS_BOOK if address_book else IN_ROPS) for each in columns]
    return Sequential(kinds), Sequential(map(_Flagged, kinds))


class PropertyRow:
    """The kind of a row with the columns of its reader: a tuple of values.

    The source is MS-OXCDATA section 2.8.1, of the address book MS-OXCMAPIHTTP section 2.2.1.7.
    """

    def __init__(self, address_book: bool = False) -> None:
        self.address_book = address_book

    def read(self, reader: Reader) -> tuple[Any, ...]:
        sequences = _sequences(tuple(reader.columns), self.address_book)
        lacks = uint8.read(reader)
        if lacks > 1:
            raise malformed("a row", reader.at - 1)
        return tuple(sequences[lacks].read(reader))


class TaggedValue:
    """The kind of a tag and its value (MS-OXCDATA section 2.11.4)."""

    def write(self, value: Any) -> bytes:
        property_tag, content = value
        return bytes(uint32.write(property_tag) + kind_of(property_tag).write(content))


@dataclass(frozen=True, slots=True)
class PropertyName:
    """The name of a property (MS-OXCDATA section 2.6.1): a set, and a number or a text of at most 126 characters."""

    set: UUID
    name: int | str


class Named:
    """The kind of a `PropertyName`."""

    def write(self, value: Any) -> bytes:
        if isinstance(value.name, int):
            return b"".join((b"\0", value.set.bytes_le, uint32.write(value.name)))
        return b"".join((b"\1", value.set.bytes_le, Sized(uint8, unicode).write(value.name)))
