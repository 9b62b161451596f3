"""The encoding of the embedded MAPI server: numbers, property values, rows, restrictions and recipients.

Written from [MS-OXCDATA], apart from the codec of the driver: two readings of the documents check each other.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

Values = dict[int, tuple[int, Any]]
"""Properties of an object: by identifier, the type and the value ([MS-OXCDATA] section 2.11.1)."""

Condition = Callable[[Values], bool]

NOT_FOUND = 0x8004010F
NO_MEMORY = 0x8007000E
TOO_COMPLEX = 0x80040117
INVALID = 0x80070057
"""Error codes ([MS-OXCDATA] section 2.4)."""

INTEGER_32, BOOLEAN, INTEGER_64, STRING_8, STRING, TIME, BINARY = 0x03, 0x0B, 0x14, 0x1E, 0x1F, 0x40, 0x0102
_SERVER_ID, _GUID, _SEVERAL = 0xFB, 0x48, 0x1000
_FIXED = {0x02: "h", 0x03: "i", 0x04: "f", 0x05: "d", 0x06: "q", 0x07: "d", 0x0A: "I", 0x0B: "B", 0x14: "Q", 0x40: "Q"}
CODE_PAGE = "cp1252"
DEEPEST_RESTRICTION = 32

RECIPIENT_TYPE, DISPLAY_NAME, ADDRESS_TYPE, EMAIL_ADDRESS = 0x0C15, 0x3001, 0x3002, 0x3003
SMTP_ADDRESS, SIMPLE_NAME, TRANSMITTABLE_NAME = 0x39FE, 0x39FF, 0x3A20
_STANDARD_OF_RECIPIENTS = {0x3002, 0x3001, 0x3003, 0x0FFF, 0x0FF6, 0x0C15, 0x300B, 0x3A40, 0x3A20}
"""Properties that no further column of a recipient may have ([MS-OXCMSG] section 2.2.3.5.1)."""
RECIPIENT_COLUMNS = (0x0FFE0003, 0x39000003, 0x39FE001F)
"""The further columns that this server sends: object type, display type, SMTP address."""


class MalformedError(ValueError):
    """A request that cannot be parsed."""


class RopError(Exception):
    """A refusal, with its error code."""

    def __init__(self, code: int, body: bytes = b"") -> None:
        super().__init__(f"{code:#010x}")
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

    def one(self, layout: str) -> Any:
        """Return one field.

        `z` and `w` are strings of 8 and 16 bits with a terminator, `D` is counted data, `T` and `M` are counted
        property tags and identifiers of messages; others are those of `struct`.
        """
        if layout == "z":
            return self._until(b"\0").decode(CODE_PAGE, "replace")
        if layout == "w":
            return self._until(b"\0\0").decode("utf-16-le", "replace")
        if layout == "D":
            return self.take(*self.unpack("H"))
        if layout in "TM":
            return self.unpack(f"{self.one('H')}{'I' if layout == 'T' else 'Q'}")
        return self.unpack(layout)[0]

    def end(self) -> None:
        if self.at != len(self.data):
            raise MalformedError

    def value(self, kind: int) -> Any:
        """Return a property value of this type. In ROPs, sizes have 16 bits and numbers of values 32 ([MS-OXCDATA])."""
        if kind & _SEVERAL:
            count = self.one("I")
            if count > len(self.data):
                raise MalformedError
            return tuple([self.value(kind & ~_SEVERAL) for _ in range(count)])
        if kind in _FIXED:
            value = self.one(_FIXED[kind])
            return bool(value) if kind == BOOLEAN else value
        if kind == _GUID:
            return self.take(16)
        if kind in (BINARY, _SERVER_ID):
            return self.one("D")
        if kind in (STRING, STRING_8):
            return self.one("w" if kind == STRING else "z")
        raise MalformedError

    def tagged_value(self) -> tuple[int, int, Any]:
        """Return identifier, type and value (section 2.11.4); strings of 8 bits become those of 16."""
        kind, number = self.unpack("HH")
        return number, STRING if kind == STRING_8 else kind, self.value(kind)

    def row(self, tags: Sequence[int]) -> Values:
        """Return the present values of a property row (section 2.8.1)."""
        flagged, values = self.one("B"), Values()
        for tag in tags:
            kind, flag = tag & 0xFFFF, 0
            if kind == 0:
                kind = self.one("H")
            if flagged:
                flag = self.one("B")
            if flag == 0:
                values[tag >> 16] = (STRING if kind == STRING_8 else kind, self.value(kind))
            elif flag == 0x0A:
                self.one("I")
            elif flag != 1:
                raise MalformedError
        return values

    def recipient(self, columns: Sequence[int]) -> Values:
        """Return the properties of a recipient row (section 2.8.3.2). Raises `RopError` for a forbidden column."""
        if _STANDARD_OF_RECIPIENTS & {tag >> 16 for tag in columns}:
            raise RopError(INVALID)
        flags, values, text = self.one("H"), Values(), "z"
        if flags & 0x0200:
            text = "w"
        kind = flags & 7
        if kind == 1:
            _, _ = self.unpack("BB")
            values[ADDRESS_TYPE], values[EMAIL_ADDRESS] = (STRING, "EX"), (STRING, self.one("z"))
        elif kind in (6, 7):
            self.one("D"), self.one("D")
        elif kind == 3:
            values[ADDRESS_TYPE] = (STRING, "SMTP")
        if kind == 0 and flags & 0x8000:
            values[ADDRESS_TYPE] = (STRING, self.one("z"))
        for flag, name in ((8, EMAIL_ADDRESS), (16, DISPLAY_NAME), (0x400, SIMPLE_NAME), (32, TRANSMITTABLE_NAME)):
            if flags & flag:
                values[name] = (STRING, self.one(text))
        count = self.one("H")
        if count > len(columns):
            raise MalformedError
        return values | self.row(columns[:count])

    def restriction(self, depth: int = 0) -> Condition:
        """Return the condition of a restriction (section 2.12). Raises `RopError` for those that are not supported."""
        if depth > DEEPEST_RESTRICTION:
            raise RopError(TOO_COMPLEX)
        kind = self.one("B")
        if kind in (0, 1):
            parts = [self.restriction(depth + 1) for _ in range(self.one("H"))]
            every = all if kind == 0 else any
            return lambda values: every(part(values) for part in parts)
        if kind == 2:
            inner = self.restriction(depth + 1)
            return lambda values: not inner(values)
        if kind == 3:
            return self._content()
        if kind == 4:
            relation, tag = self.unpack("BI")
            _, _, wanted = self.tagged_value()
            return _compared(relation, lambda values: find(values, tag), wanted)
        if kind == 6:
            how, tag, mask = self.unpack("BIi")
            return lambda values: bool((find(values, tag) or 0) & mask) == bool(how)
        if kind == 7:
            relation, tag, size = self.unpack("BII")
            return _compared(relation, lambda values: encoded_size(values, tag), size)
        if kind == 8:
            tag = self.one("I")
            return lambda values: find(values, tag) is not None
        raise RopError(TOO_COMPLEX)

    def _content(self) -> Condition:
        fuzzy, how, tag = self.unpack("HHI")
        _, _, wanted = self.tagged_value()
        if not isinstance(wanted, str | bytes) or fuzzy > 2:
            raise RopError(TOO_COMPLEX)
        fold = isinstance(wanted, str) and bool(how & 1)
        needle: Any = wanted.lower() if fold else wanted

        def holds(values: Values) -> bool:
            found = find(values, tag)
            if not isinstance(found, type(needle)):
                return False
            text = found.lower() if fold else found
            return bool((text == needle, needle in text, text.startswith(needle))[fuzzy])

        return holds

    def _until(self, terminator: bytes) -> bytes:
        step = len(terminator)
        end = self.data.find(terminator, self.at)
        while end >= 0 and (end - self.at) % step:
            end = self.data.find(terminator, end + 1)
        if end < 0:
            raise MalformedError
        text = self.data[self.at : end]
        self.at = end + step
        return text


def _compared(relation: int, left: Callable[[Values], Any], right: Any) -> Condition:
    """Return the comparison with this relational operator (section 2.12.5); a missing value fulfils none but "not"."""
    if relation > 5:
        raise RopError(TOO_COMPLEX)
    compare = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)[relation]

    def holds(values: Values) -> bool:
        found = left(values)
        return relation == 5 if found is None else bool(compare(found, right))

    return holds


def find(values: Values, tag: int) -> Any:
    """Return the value with this tag; None if it is missing or has another type."""
    kind, value = values.get(tag >> 16, (0, None))
    wanted = tag & 0xFFFF
    return value if wanted in (0, kind) or (wanted == STRING_8 and kind == STRING) else None


def encoded_size(values: Values, tag: int) -> int | None:
    value = find(values, tag)
    return None if value is None else len(encode(values[tag >> 16][0], value))


def text_of(values: Values, number: int) -> str:
    """Return a string property; "" if it is missing."""
    kind, value = values.get(number, (0, ""))
    return value if kind == STRING else ""


def encode(kind: int, value: Any) -> bytes:
    """Return a property value of this type ([MS-OXCDATA] section 2.11.1)."""
    if kind & _SEVERAL:
        return struct.pack("<I", len(value)) + b"".join(encode(kind & ~_SEVERAL, each) for each in value)
    if kind in _FIXED:
        return struct.pack("<" + _FIXED[kind], value)
    if kind == STRING:
        return str(value).encode("utf-16-le", "replace") + b"\0\0"
    if kind == STRING_8:
        return str(value).encode(CODE_PAGE, "replace") + b"\0"
    return bytes(value) if kind == _GUID else data(value)


def data(value: bytes) -> bytes:
    return struct.pack("<H", len(value)) + value


def encode_row(values: Values, tags: Sequence[int], largest_bytes: int) -> bytes:
    """Return a property row (section 2.8.1); a value that is larger is an error that asks for a stream."""
    cells = []
    for tag in tags:
        kind, value = tag & 0xFFFF, find(values, tag)
        if value is None:
            cells.append((tag, NOT_FOUND, b""))
            continue
        if kind == 0:
            kind = values[tag >> 16][0]
        fits = not isinstance(value, str | bytes) or len(value) * (2 if kind == STRING else 1) <= largest_bytes
        cells.append((tag, 0 if fits else NO_MEMORY, encode(kind, value) if fits else b""))
    flagged = any(error for _, error, _ in cells)
    parts = [b"\1" if flagged else b"\0"]
    for tag, error, encoded in cells:
        if tag & 0xFFFF == 0:
            parts.append(struct.pack("<H", values.get(tag >> 16, (0x0A, None))[0]))
        if flagged:
            parts.append(b"\x0a" + struct.pack("<I", error) if error else b"\0")
        parts.append(encoded)
    return b"".join(parts)


def cut(values: Values, most: int) -> Values:
    """Return values as tables show them, with at most this number of characters or twice the bytes ([MS-OXCTABL])."""
    return {
        number: (kind, value[: most if kind == STRING else 2 * most] if isinstance(value, str | bytes) else value)
        for number, (kind, value) in values.items()
    }


def typed_string(text: str) -> bytes:
    """Return a string with its form before it: empty, or Unicode (section 2.11.7)."""
    return b"\x04" + encode(STRING, text) if text else b"\x01"


def encode_recipient(values: Values) -> bytes:
    """Return a row of an open message's recipients ([MS-OXCROPS] section 2.2.6.1.2.1)."""
    address_type, address = text_of(values, ADDRESS_TYPE), text_of(values, EMAIL_ADDRESS)
    if address_type == "EX":
        flags, text = 0x0211, b"\0\0" + encode(STRING_8, address)
    else:
        flags, text = 0x021B, encode(STRING, address)
    name = encode(STRING, text_of(values, DISPLAY_NAME) or address)
    columns = struct.pack("<H", len(RECIPIENT_COLUMNS)) + encode_row(values, RECIPIENT_COLUMNS, 0xFFFF)
    head = struct.pack("<BHH", values.get(RECIPIENT_TYPE, (INTEGER_32, 1))[1], 1252, 0)
    return head + data(struct.pack("<H", flags) + text + name + columns)
