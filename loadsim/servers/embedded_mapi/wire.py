"""The embedded MAPI server's encoding of numbers, property values, rows and recipients.

Written from [MS-OXCDATA], independently of the driver's codec: two readings of the documents check each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

Values = dict[int, Any]
"""An object's properties by tag: identifier and type ([MS-OXCDATA] section 2.9)."""

STRING, BINARY = 0x1F, 0x0102
_FIXED = {0x03: "i", 0x0B: "?", 0x14: "Q", 0x40: "Q"}
"""Property types ([MS-OXCDATA] section 2.11.1): Unicode strings, sized bytes, and types of fixed size."""

DISPLAY_NAME, ADDRESS_TYPE, EMAIL_ADDRESS, SMTP_ADDRESS = 0x3001001F, 0x3002001F, 0x3003001F, 0x39FE001F
TO = 1
_OR, _PART_OF_STRING = 0x01, (0x03, 1, 1)
"""An OrRestriction, and a ContentRestriction that ignores case ([MS-OXCDATA] sections 2.12.2 and 2.12.4)."""
_SMTP_RECIPIENT = 0x021B
"""The flags of a recipient with SMTP address and name, both in Unicode ([MS-OXCDATA] section 2.8.3.1)."""


class Error(IntEnum):
    """Error codes ([MS-OXCDATA] section 2.4)."""

    UNKNOWN_USER = 0x3EB
    RPC_FORMAT = 0x4B6
    NULL_OBJECT = 0x4B9
    STREAM_ACCESS = 0x80030005
    NOT_SUPPORTED = 0x80040102
    NOT_FOUND = 0x8004010F
    COMPUTED = 0x8004011A
    TOO_BIG = 0x80040305
    DUPLICATE_NAME = 0x80040604
    NO_RECIPIENTS = 0x80040607
    ACCESS_DENIED = 0x80070005
    INVALID = 0x80070057


class MalformedError(ValueError):
    """A request that cannot be parsed."""


class RopError(Exception):
    """A refusal, with its error code."""

    def __init__(self, code: Error) -> None:
        super().__init__(code.name)
        self.code = code


class Reader:
    """A cursor in received bytes. Reading beyond their end raises `MalformedError`."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise MalformedError
        taken, self.at = self.data[self.at : end], end
        return taken

    def unpack(self, layout: str) -> tuple[Any, ...]:
        layout = "<" + layout
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def one(self, letter: str) -> Any:
        """Return one field: a number, by its letter in `struct`, or one of `_FIELDS`."""
        return _FIELDS[letter](self) if letter in _FIELDS else self.unpack(letter)[0]

    def text(self, width: int = 2) -> str:
        """Return a string, in Unicode or code page 1252, and skip its terminator, which has this width."""
        end = self.data.find(bytes(width), self.at)
        while end >= 0 and (end - self.at) % width:
            end = self.data.find(bytes(width), end + 1)
        if end < 0:
            raise MalformedError
        return self.take(end + width - self.at)[:-width].decode("cp1252" if width == 1 else "utf-16-le", "replace")

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedError

    def value(self, kind: int) -> Any:
        """Read a property value of this type; in ROPs, sizes have 16 bits (section 2.11.1.1)."""
        if kind in _FIXED:
            return self.one(_FIXED[kind])
        if kind == STRING:
            return self.text()
        if kind == BINARY:
            return self.one("D")
        raise MalformedError

    def tagged_value(self) -> tuple[int, Any]:
        """Return a tag and its value (section 2.11.4)."""
        tag = self.one("I")
        return tag, self.value(tag & 0xFFFF)

    def recipient(self) -> Values:
        """Return a recipient's properties: SMTP address and name (section 2.8.3.2).

        Raises `RopError` for any other kind of recipient, and for further properties.
        """
        if self.one("H") != _SMTP_RECIPIENT:
            raise RopError(Error.NOT_SUPPORTED)
        values: Values = {ADDRESS_TYPE: "SMTP", EMAIL_ADDRESS: self.text(), DISPLAY_NAME: self.text()}
        if self.unpack("HB") != (0, 0):
            raise RopError(Error.NOT_SUPPORTED)
        return values

    def names(self) -> list[tuple[bytes, int | str]]:
        """Return named properties, each as its set, and its name or number ([MS-OXCDATA] section 2.6.1)."""
        names: list[tuple[bytes, int | str]] = []
        for _ in range(self.one("H")):
            kind, group = self.one("B"), self.take(16)
            if kind > 1:
                raise MalformedError
            names.append((group, Reader(self.take(self.one("B"))).text() if kind else self.one("I")))
        return names

    def sort_orders(self) -> tuple[int, list[tuple[int, int]]]:
        """Return the number of categories, and the sort orders ([MS-OXCROPS] section 2.2.5.2.1)."""
        count, categories, _ = self.unpack("3H")
        return categories, [self.unpack("IB") for _ in range(count)]

    def any_of(self) -> list[tuple[int, str]]:
        """Return the columns and texts of an OrRestriction of ContentRestrictions (section 2.12).

        Raises `RopError` for all others than parts of strings, ignoring case.
        """
        inner = Reader(self.one("D"))
        if inner.one("B") != _OR:
            raise RopError(Error.NOT_SUPPORTED)
        wanted: list[tuple[int, str]] = []
        for _ in range(inner.one("H")):
            if inner.unpack("BHH") != _PART_OF_STRING:
                raise RopError(Error.NOT_SUPPORTED)
            column, (_, text) = inner.one("I"), inner.tagged_value()
            if not isinstance(text, str):
                raise RopError(Error.NOT_SUPPORTED)
            wanted.append((column, text))
        inner.end()
        return wanted

    def recipients(self) -> tuple[tuple[int, ...], list[tuple[int, int, bytes]]]:
        """Return the further columns, and each row's number, recipient type and remaining bytes."""
        columns = self.one("T")
        return columns, [(*self.unpack("IB"), self.one("D")) for _ in range(self.one("H"))]

    def new_folder(self) -> str:
        """Return a folder's name without its comment ([MS-OXCROPS] section 2.2.4.2.1)."""
        unicode, _, _ = self.unpack("3B")
        name, _ = self.text(), self.text()
        if not unicode:
            raise MalformedError
        return name


_FIELDS: dict[str, Callable[[Reader], Any]] = {
    "z": lambda reader: reader.text(1),
    "D": lambda reader: reader.take(reader.one("H")),
    "T": lambda reader: reader.unpack(f"{reader.one('H')}I"),
    "M": lambda reader: reader.unpack(f"{reader.one('H')}Q"),
    "N": Reader.names,
    "S": Reader.sort_orders,
    "R": Reader.recipients,
    "O": Reader.any_of,
    "F": Reader.new_folder,
}
"""Further fields: strings, sized bytes, counted tags and identifiers, and fields used by only one operation."""


def encode(kind: int, value: Any) -> bytes:
    """Encode a property value of this type ([MS-OXCDATA] section 2.11.1)."""
    if kind in _FIXED:
        return struct.pack("<" + _FIXED[kind], value)
    if kind == STRING:
        return bytes((value + "\0").encode("utf-16-le", "replace"))
    return sized(value)


def sized(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def encode_row(values: Values, tags: Iterable[int], largest_bytes: int = 0xFFFF) -> bytes:
    """Return a property row (section 2.8.1). Values above `largest_bytes` are truncated."""
    cells: list[bytes | None] = []
    for tag in tags:
        value = values.get(tag)
        if isinstance(value, str | bytes):
            value = value[: largest_bytes // (2 if tag & 0xFFFF == STRING else 1)]
        cells.append(None if value is None else encode(tag & 0xFFFF, value))
    if None not in cells:
        return b"\0" + b"".join(cell for cell in cells if cell is not None)
    missing = b"\x0a" + struct.pack("<I", Error.NOT_FOUND)
    return b"\1" + b"".join(missing if cell is None else b"\0" + cell for cell in cells)


def typed_string(text: str) -> bytes:
    """Return a string preceded by its form: empty, or Unicode (section 2.11.7)."""
    return b"\x04" + encode(STRING, text) if text else b"\x01"


def encode_recipient(values: Values) -> bytes:
    """Return a row in an open message's table of recipients ([MS-OXCROPS] section 2.2.6.1.2.1)."""
    row = struct.pack("<H", _SMTP_RECIPIENT) + encode(STRING, values[EMAIL_ADDRESS])
    row += encode(STRING, values[DISPLAY_NAME]) + bytes(3)  # no further properties
    return struct.pack("<BHH", TO, 1252, 0) + sized(row)
