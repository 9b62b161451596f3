"""Numbers, strings, property values and rows on the wire, little-endian (MS-OXCDATA sections 2.6 to 2.11).

Malformed input raises only `ProtocolError`, and counts are checked before memory is allocated. Writing raises
`struct.error` for a value that a field cannot hold, such as a size above 65,535.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import calcsize, error, pack, unpack_from
from typing import Any, NamedTuple
from uuid import UUID

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi.codes import ErrorCode

Value = int | str | bytes | ErrorCode | None
"""A property's value; None or `ErrorCode` if the server has none to return."""

INTEGER32, ERROR, BOOLEAN, INTEGER64, STRING, TIME, BINARY = 0x03, 0x0A, 0x0B, 0x14, 0x1F, 0x40, 0x0102
"""Property types. A tag has 32 bits: the identifier in the upper half, the type in the lower."""

_EPOCH_US = 11_644_473_600_000_000  # from 1601 to 1970


def tag(identifier: int, type_: int) -> int:
    """Return a property's tag."""
    return identifier << 16 | type_


def time_of(microseconds: int) -> int:
    """Return microseconds since 1970 as a PtypTime, in units of 100 ns since 1601."""
    return (microseconds + _EPOCH_US) * 10


def malformed(expected: str, at: int) -> ProtocolError:
    """Return this package's error, which does not quote the input, as that may be mail."""
    return ProtocolError("MAPI syntax", f"expected {expected} at byte {at}")


@dataclass(slots=True)
class Reader:
    """A buffer and the position of the next read. Formats are those of `struct`."""

    data: bytes
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size_bytes: int) -> bytes:
        """Return the next bytes."""
        end = self.at + size_bytes
        if end > len(self.data):
            raise malformed(f"{size_bytes} bytes", self.at)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def unpack(self, form: str) -> tuple[Any, ...]:
        form = "<" + form
        try:
            values = unpack_from(form, self.data, self.at)
        except error:
            raise malformed(f"{calcsize(form)} bytes", self.at) from None
        self.at += calcsize(form)
        return values

    def number(self, form: str) -> Any:
        return self.unpack(form)[0]

    def numbers(self, count_form: str, form: str) -> tuple[int, ...]:
        """Return numbers after their count."""
        count = self.number(count_form)
        if count * calcsize(form) > self.left:
            raise malformed(f"{count} values", self.at)
        return self.unpack(f"{count}{form}")

    def sized(self, form: str = "H") -> bytes:
        """Return the bytes that follow their size."""
        return self.take(self.number(form))

    def text(self, width: int = 2) -> str:
        """Return a string up to its null character, in Unicode or single bytes; undecodable bytes become U+FFFD."""
        begin, null = self.at, bytes(width)
        end = self.data.find(null, begin)
        while end >= 0 and (end - begin) % width:
            end = self.data.find(null, end + 1)
        if end < 0:
            raise malformed("a null character", begin)
        self.at = end + width
        return self.data[begin:end].decode("cp1252" if width == 1 else "utf-16-le", "replace")

    def end(self) -> None:
        """Raise `ProtocolError` if anything is left."""
        if self.left:
            raise malformed("the end", self.at)


def string(value: str, encoding: str = "utf-16-le") -> bytes:
    """Return a string with its final null character; any others in it are left out."""
    return (value.replace("\0", "") + "\0").encode(encoding, "replace")


def sized(data: bytes, form: str = "H") -> bytes:
    return pack("<" + form, len(data)) + data


def counted(values: Sequence[int], form: str, count_form: str = "H") -> bytes:
    """Return numbers after their count."""
    return pack(f"<{count_form}{len(values)}{form}", len(values), *values)


_FORMS = {INTEGER32: "i", BOOLEAN: "?", INTEGER64: "q", TIME: "Q"}

Kinds = Mapping[int, Callable[[Reader], Value]]
"""The functions that read values, by property type: those in `tags`, and errors."""

_IN_ROPS: Kinds = {
    **{type_: partial(Reader.number, form=form) for type_, form in _FORMS.items()},
    ERROR: lambda reader: ErrorCode(reader.number("I")),
    STRING: Reader.text,
    BINARY: Reader.sized,
}
_IN_ADDRESS_BOOK: Kinds = {
    **_IN_ROPS,
    STRING: lambda reader: reader.text() if reader.number("?") else None,
    BINARY: lambda reader: reader.sized("I") if reader.number("?") else None,
}


def row(reader: Reader, columns: Sequence[int], address_book: bool = False) -> tuple[Value, ...]:
    """Return a row's values (section 2.8.1; MS-OXCMAPIHTTP section 2.2.1.7).

    If some are missing, a flag before each marks which (section 2.11.5).
    """
    kinds = _IN_ADDRESS_BOOK if address_book else _IN_ROPS
    readers = [kinds[column & 0xFFFF] for column in columns]
    lacks = reader.number("B")
    if not lacks:
        return tuple([read(reader) for read in readers])
    values: list[Value] = []
    for read in readers:
        flag = reader.number("B")
        if lacks > 1 or flag not in (0, 1, 10):
            raise malformed("a row", reader.at - 1)
        values.append(None if flag == 1 else (kinds[ERROR] if flag == 10 else read)(reader))
    return tuple(values)


def tagged(property_tag: int, value: Any) -> bytes:
    """Return a tag and its value (section 2.11.4)."""
    type_, begin = property_tag & 0xFFFF, pack("<I", property_tag)
    if type_ in (STRING, BINARY):
        return begin + (string(value) if type_ == STRING else sized(value))
    return begin + pack("<" + _FORMS[type_], value)


class PropertyName(NamedTuple):
    """A property's name (section 2.6.1): a set, and a number or a string of at most 126 characters."""

    set: UUID
    name: int | str

    def encoded(self) -> bytes:
        if isinstance(self.name, int):
            return b"\0" + self.set.bytes_le + pack("<I", self.name)
        return b"\1" + self.set.bytes_le + sized(string(self.name), "B")
