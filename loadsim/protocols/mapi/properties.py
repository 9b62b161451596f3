"""Property tags, names, values and rows (MS-OXCDATA sections 2.6 to 2.11; MS-OXCMAPIHTTP section 2.2.1).

A tag is 32 bits: the identifier in the upper half, the type in the lower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi.codes import Failed
from loadsim.protocols.mapi.layout import (
    Kind,
    Maybe,
    Number,
    Reader,
    Sequential,
    Several,
    Sized,
    ansi,
    boolean,
    int32,
    malformed,
    uint8,
    uint16,
    uint32,
    uint64,
    unicode,
)

Value = int | float | str | bytes | tuple[Any, ...] | Failed | None
"""A value of a property; None or `Failed` if the server has none to return."""

INTEGER32 = 0x0003
ERROR = 0x000A
BOOLEAN = 0x000B
INTEGER64 = 0x0014
STRING8 = 0x001E
STRING = 0x001F
TIME = 0x0040
GUID = 0x0048
SERVER_ID = 0x00FB
BINARY = 0x0102
MULTIPLE = 0x1000

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

    def write(self, value: Any) -> bytes:
        return uint32.write(value.code)

    def read(self, reader: Reader) -> Failed:
        return Failed(uint32.read(reader))


_code = _Code()

_FIXED: Mapping[int, Kind] = {
    0x0002: Number("h"),
    INTEGER32: int32,
    0x0004: Number("f"),
    0x0005: Number("d"),
    0x0006: Number("q"),
    0x0007: Number("d"),
    BOOLEAN: boolean,
    INTEGER64: Number("q"),
    TIME: uint64,
    GUID: Number("16s"),
}
_SINGLE: Mapping[int, Kind] = {**_FIXED, STRING8: ansi, STRING: unicode, BINARY: Sized(uint16)}

Kinds = Mapping[int, Kind]
"""The kinds of values by the types of properties."""

IN_ROPS: Kinds = {
    **_SINGLE,
    **{MULTIPLE | each: Several(uint32, kind) for each, kind in _SINGLE.items() if each != BOOLEAN},
    ERROR: _code,
    SERVER_ID: Sized(uint16),
}

IN_ADDRESS_BOOK: Kinds = {
    **_FIXED,
    STRING8: Maybe(ansi),
    STRING: Maybe(unicode),
    BINARY: Maybe(Sized(uint32)),
    ERROR: _code,
}
"""AddressBookPropertyValue: values of variable size may be left out."""


def kind_of(property_tag: int, kinds: Kinds = IN_ROPS) -> Kind:
    kind = kinds.get(property_tag & 0xFFFF)
    if kind is None:
        raise ProtocolError("MAPI syntax", f"expected a known type of property, found 0x{property_tag & 0xFFFF:04X}")
    return kind


class _Flagged:
    """A value, or the reason why it is missing, after a byte that says which (MS-OXCDATA section 2.11.5)."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def write(self, value: Any) -> bytes:
        if value is None:
            return b"\1"
        return b"\x0a" + _code.write(value) if isinstance(value, Failed) else b"\0" + self.kind.write(value)

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


def row_bytes(columns: Sequence[int], values: Sequence[Value]) -> bytes:
    """Return a row (MS-OXCDATA section 2.8.1) of these values."""
    lacks = any(value is None or isinstance(value, Failed) for value in values)
    return bytes([lacks]) + _sequences(tuple(columns), False)[lacks].write(values)


def row_from(reader: Reader, columns: Sequence[int], address_book: bool = False) -> tuple[Any, ...]:
    """Return the values of a row in the order of the columns."""
    sequences = _sequences(tuple(columns), address_book)
    lacks = uint8.read(reader)
    if lacks > 1:
        raise malformed("a row", reader.at - 1)
    return tuple(sequences[lacks].read(reader))


class Row:
    """The kind of a row with the columns of its reader."""

    def write(self, value: Any) -> bytes:
        raise NotImplementedError("the columns are unknown: row_bytes")

    def read(self, reader: Reader) -> tuple[Any, ...]:
        return row_from(reader, reader.columns)


class Columns:
    """The kind of property tags, which are the columns of the rows behind them."""

    def __init__(self, count: Number) -> None:
        self.tags = Several(count, uint32)

    def write(self, value: Any) -> bytes:
        return self.tags.write(value)

    def read(self, reader: Reader) -> tuple[int, ...]:
        reader.columns = tags = self.tags.read(reader)
        return tags


class Tagged:
    """The kind of a tag and its value (MS-OXCDATA section 2.11.4)."""

    def write(self, value: Any) -> bytes:
        property_tag, content = value
        return uint32.write(property_tag) + kind_of(property_tag).write(content)

    def read(self, reader: Reader) -> tuple[int, Value]:
        property_tag = uint32.read(reader)
        return property_tag, kind_of(property_tag).read(reader)


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

    def read(self, reader: Reader) -> PropertyName:
        begin, kind = reader.at, uint8.read(reader)
        if kind > 1:
            raise malformed("a name of a property", begin)
        return PropertyName(UUID(bytes_le=reader.take(16)), (Sized(uint8, unicode) if kind else uint32).read(reader))
