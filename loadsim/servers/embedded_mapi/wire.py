"""The encoding of the embedded MAPI server: numbers, property values, rows and recipients.

Written from [MS-OXCDATA], apart from the codec of the driver: two readings of the documents check each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any

Values = dict[int, Any]
"""Properties of an object by their tags: identifier and type ([MS-OXCDATA] section 2.9)."""

STRING_8, STRING, BINARY = 0x1E, 0x1F, 0x0102
_FIXED = {0x02: "h", 0x03: "i", 0x04: "f", 0x05: "d", 0x06: "q", 0x07: "d", 0x0A: "I", 0x0B: "?", 0x14: "Q", 0x40: "Q"}
"""Types of properties ([MS-OXCDATA] section 2.11.1): strings of 8 and 16 bits, sized bytes, and those of fixed size."""
_CODE_PAGE = "cp1252"

RECIPIENT_TYPE, DISPLAY_NAME, ADDRESS_TYPE, EMAIL_ADDRESS = 0x0C150003, 0x3001001F, 0x3002001F, 0x3003001F
SMTP_ADDRESS, SIMPLE_NAME, TRANSMITTABLE_NAME = 0x39FE001F, 0x39FF001F, 0x3A20001F
_STANDARD_OF_RECIPIENTS = {0x3002, 0x3001, 0x3003, 0x0FFF, 0x0FF6, 0x0C15, 0x300B, 0x3A40, 0x3A20}
"""Properties that no further column of a recipient may have ([MS-OXCMSG] section 2.2.3.5.1)."""
RECIPIENT_COLUMNS = (0x0FFE0003, 0x39000003, SMTP_ADDRESS)
"""The further columns that this server sends: object type, display type, SMTP address."""


class Error(IntEnum):
    """Error codes ([MS-OXCDATA] section 2.4)."""

    UNKNOWN_USER = 0x3EB
    RPC_FORMAT = 0x4B6
    NULL_OBJECT = 0x4B9
    WITH_ERRORS = 0x40380
    STREAM_ACCESS = 0x80030005
    NOT_SUPPORTED = 0x80040102
    OBJECT_MODIFIED = 0x80040109
    OBJECT_DELETED = 0x8004010A
    NOT_FOUND = 0x8004010F
    COMPUTED = 0x8004011A
    UNKNOWN_CODE_PAGE = 0x8004011E
    TOO_BIG = 0x80040305
    DUPLICATE_NAME = 0x80040604
    NO_RECIPIENTS = 0x80040607
    ACCESS_DENIED = 0x80070005
    NO_MEMORY = 0x8007000E
    INVALID = 0x80070057


class MalformedError(ValueError):
    """A request that cannot be parsed."""


class RopError(Exception):
    """A refusal, with its error code, and what follows it in the response."""

    def __init__(self, code: Error, body: bytes = b"") -> None:
        super().__init__(code.name)
        self.code = code
        self.body = body


class Reader:
    """A cursor in received bytes. Its methods raise `MalformedError` at their end."""

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
        """Return one field: a number by its letter in `struct`, or one of `_FIELDS`."""
        return _FIELDS[letter](self) if letter in _FIELDS else self.unpack(letter)[0]

    def text(self, kind: int) -> str:
        """Return a string, and skip its terminator, which is as wide as its characters."""
        width = 1 if kind == STRING_8 else 2
        end = self.data.find(bytes(width), self.at)
        while end >= 0 and (end - self.at) % width:
            end = self.data.find(bytes(width), end + 1)
        if end < 0:
            raise MalformedError
        return decode_text(kind, self.take(end + width - self.at)[:-width])

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedError

    def value(self, kind: int) -> Any:
        """Return a property value of this type; in ROPs, sizes have 16 bits (section 2.11.1.1)."""
        if kind in _FIXED:
            return self.one(_FIXED[kind])
        if kind in (STRING, STRING_8):
            return self.text(kind)
        if kind == BINARY:
            return self.one("D")
        raise MalformedError

    def tagged_value(self) -> tuple[int, Any]:
        """Return tag and value (section 2.11.4)."""
        tag = self.one("I")
        return wide(tag), self.value(tag & 0xFFFF)

    def row(self, tags: Iterable[int]) -> Values:
        """Return the present values of a property row (section 2.8.1)."""
        flagged, values = self.one("B"), {}
        for tag in tags:
            flag = self.one("B") if flagged else 0
            if flag == 0:
                values[wide(tag)] = self.value(tag & 0xFFFF)
            elif flag == 0x0A:
                self.one("I")
            elif flag != 1:
                raise MalformedError
        return values

    def recipient(self, columns: Sequence[int]) -> Values:
        """Return the properties of a recipient with an SMTP address (section 2.8.3.2).

        Raises `RopError` for others, and for a forbidden column.
        """
        if _STANDARD_OF_RECIPIENTS & {tag >> 16 for tag in columns}:
            raise RopError(Error.INVALID)
        flags, values = self.one("H"), Values()
        if flags & 7 != 3:
            raise RopError(Error.NOT_SUPPORTED)
        values[ADDRESS_TYPE] = "SMTP"
        for flag, tag in ((8, EMAIL_ADDRESS), (16, DISPLAY_NAME), (0x400, SIMPLE_NAME), (32, TRANSMITTABLE_NAME)):
            if flags & flag:
                values[tag] = self.text(STRING if flags & 0x200 else STRING_8)
        count = self.one("H")
        if count > len(columns):
            raise MalformedError
        return values | self.row(columns[:count])

    def names(self) -> list[tuple[bytes, int | str]]:
        """Return named properties: their sets, and names or numbers ([MS-OXCDATA] section 2.6.1)."""
        names: list[tuple[bytes, int | str]] = []
        for _ in range(self.one("H")):
            kind, group = self.one("B"), self.take(16)
            if kind > 1:
                raise MalformedError
            names.append((group, Reader(self.take(self.one("B"))).text(STRING) if kind else self.one("I")))
        return names

    def sort_orders(self) -> tuple[int, list[tuple[int, int]]]:
        """Return the number of categories, and the sort orders ([MS-OXCROPS] section 2.2.5.2.1)."""
        count, categories, _ = self.unpack("3H")
        return categories, [self.unpack("IB") for _ in range(count)]

    def recipients(self) -> tuple[tuple[int, ...], list[tuple[int, int, bytes]]]:
        """Return the further columns, and of each row its number, the recipient's type and the sized rest."""
        columns = self.one("T")
        return columns, [(*self.unpack("IB"), self.one("D")) for _ in range(self.one("H"))]

    def new_folder(self) -> str:
        """Return the name; the comment is left out ([MS-OXCROPS] section 2.2.4.2.1)."""
        unicode, _, _ = self.unpack("3B")
        name, _ = [self.text(STRING if unicode else STRING_8) for _ in range(2)]
        return name


_FIELDS: dict[str, Callable[[Reader], Any]] = {
    "z": lambda reader: reader.text(STRING_8),
    "w": lambda reader: reader.text(STRING),
    "D": lambda reader: reader.take(reader.one("H")),
    "T": lambda reader: reader.unpack(f"{reader.one('H')}I"),
    "M": lambda reader: reader.unpack(f"{reader.one('H')}Q"),
    "N": Reader.names,
    "S": Reader.sort_orders,
    "R": Reader.recipients,
    "F": Reader.new_folder,
    "C": lambda reader: count if (count := reader.one("H")) != 0xBABE else reader.one("I"),
    "W": lambda reader: None if reader.one("B") else reader.unpack("QQ")[0],
}
"""Further fields: strings, sized bytes, counted tags and identifiers, the bytes to read, the folder of a subscription
(None: all).
"""


def wide(tag: int) -> int:
    """Return the tag under which a property is kept: strings are in Unicode."""
    return tag | 1 if tag & 0xFFFF == STRING_8 else tag


def find(values: Values, tag: int, default: Any = None) -> Any:
    return values.get(wide(tag), default)


def decode_text(kind: int, content: bytes) -> str:
    return content.decode(_CODE_PAGE if kind == STRING_8 else "utf-16-le", "replace")


def encode_text(kind: int, text: str) -> bytes:
    return text.encode(_CODE_PAGE if kind == STRING_8 else "utf-16-le", "replace")


def encode(kind: int, value: Any) -> bytes:
    """Return a property value of this type ([MS-OXCDATA] section 2.11.1)."""
    if kind in _FIXED:
        return struct.pack("<" + _FIXED[kind], value)
    if kind in (STRING, STRING_8):
        return encode_text(kind, value + "\0")
    return sized(value)


def sized(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def encode_row(values: Values, tags: Iterable[int], largest_bytes: int, *, cuts: bool = False) -> bytes:
    """Return a property row (section 2.8.1). A value that is larger is cut, or an error that asks for a stream."""
    cells: list[bytes | Error] = []
    for tag in tags:
        value = find(values, tag)
        most = largest_bytes // (2 if tag & 0xFFFF == STRING else 1)
        if isinstance(value, str | bytes) and len(value) > most:
            cells.append(encode(tag & 0xFFFF, value[:most]) if cuts else Error.NO_MEMORY)
        else:
            cells.append(Error.NOT_FOUND if value is None else encode(tag & 0xFFFF, value))
    if not any(isinstance(cell, Error) for cell in cells):
        return b"\0" + b"".join(cell for cell in cells if isinstance(cell, bytes))
    return b"\1" + b"".join(
        b"\x0a" + struct.pack("<I", cell) if isinstance(cell, Error) else b"\0" + cell for cell in cells
    )


def typed_string(text: str) -> bytes:
    """Return a string with its form before it: empty, or Unicode (section 2.11.7)."""
    return b"\x04" + encode(STRING, text) if text else b"\x01"


def encode_recipient(values: Values) -> bytes:
    """Return a row of an open message's recipients ([MS-OXCROPS] section 2.2.6.1.2.1)."""
    address = values.get(EMAIL_ADDRESS, "")
    row = struct.pack("<H", 0x021B) + encode(STRING, address) + encode(STRING, values.get(DISPLAY_NAME, address))
    row += struct.pack("<H", len(RECIPIENT_COLUMNS))
    row += encode_row(values, RECIPIENT_COLUMNS, 0xFFFF)
    return struct.pack("<BHH", values[RECIPIENT_TYPE], 1252, 0) + sized(row)
