"""Structures of the MAPI documents: dataclasses whose annotations are their layout on the wire, little-endian.

A field annotated with a kind, such as `U16`, is on the wire in its place; one without is not. A structure is itself a
kind. Malformed input raises `ProtocolError` only, and nothing is allocated by a size or count before it is checked.
Writing raises `struct.error` for a value that its field cannot hold, such as a size above 65,535.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from struct import Struct, error
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from loadsim.errors import ProtocolError


def malformed(expected: str, at: int) -> ProtocolError:
    """Return the error of this package. It does not quote the input, which may be mail."""
    return ProtocolError("MAPI syntax", f"expected {expected} at byte {at}")


@dataclass(slots=True)
class Reader:
    """A buffer that is read from `at`. `columns` are the property tags of the rows in it, if there are any."""

    data: bytes
    at: int = 0
    columns: Sequence[int] = ()

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

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        try:
            values = form.unpack_from(self.data, self.at)
        except error:
            raise malformed(f"{form.size} bytes", self.at) from None
        self.at += form.size
        return values

    def end(self) -> None:
        """Raise `ProtocolError` if anything is left."""
        if self.left:
            raise malformed("the end", self.at)


Kind = Any
"""The form of values of one type: `write(value)` returns bytes, `read(reader)` a value. Many go one way only."""


class Number:
    """A value of fixed size; `code` is its format character in `struct`. Neighbours are read as one."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.form = Struct("<" + code)

    def write(self, value: Any) -> bytes:
        return self.form.pack(value)

    def read(self, reader: Reader) -> Any:
        return reader.unpack(self.form)[0]


uint8, uint16, uint32, uint64, boolean = Number("B"), Number("H"), Number("I"), Number("Q"), Number("?")
int32 = Number("i")

U8 = Annotated[int, uint8]
U16 = Annotated[int, uint16]
U32 = Annotated[int, uint32]
U64 = Annotated[int, uint64]
I32 = Annotated[int, int32]
Bool = Annotated[bool, boolean]
Guid = Annotated[bytes, Number("16s")]


class Terminated:
    """A string that ends with a null character (MS-OXCDATA section 2.11.1, PtypString and PtypString8).

    What does not decode becomes U+FFFD. Null characters are left out of what is written: they would end it.
    """

    def __init__(self, encoding: str, unit_bytes: int) -> None:
        self.encoding = encoding
        self.null = bytes(unit_bytes)

    def write(self, value: Any) -> bytes:
        return bytes(value.replace("\0", "").encode(self.encoding, "replace")) + self.null

    def read(self, reader: Reader) -> str:
        data, begin, unit_bytes = reader.data, reader.at, len(self.null)
        end = data.find(self.null, begin)
        while end >= 0 and (end - begin) % unit_bytes:
            end = data.find(self.null, end + 1)
        if end < 0:
            raise malformed("a null character", begin)
        reader.at = end + unit_bytes
        return data[begin:end].decode(self.encoding, "replace")


ansi = Terminated("cp1252", 1)
unicode = Terminated("utf-16-le", 2)
Ansi = Annotated[str, ansi]
Unicode = Annotated[str, unicode]


class Sized:
    """Bytes after their size, or a value of some kind after its size in bytes: this is only written."""

    def __init__(self, size: Number, kind: Kind = None) -> None:
        self.size = size
        self.kind = kind

    def write(self, value: Any) -> bytes:
        data: bytes = value if self.kind is None else self.kind.write(value)
        return self.size.write(len(data)) + data

    def read(self, reader: Reader) -> bytes:
        return reader.take(self.size.read(reader))


class Several:
    """Values of one kind, after their number or, if `count` is an integer, always as many."""

    def __init__(self, count: Number | int, kind: Kind) -> None:
        self.count = count
        self.kind = kind

    def write(self, value: Any) -> bytes:
        begin = b"" if isinstance(self.count, int) else self.count.write(len(value))
        return begin + b"".join(map(self.kind.write, value))

    def read(self, reader: Reader) -> tuple[Any, ...]:
        count = self.count if isinstance(self.count, int) else self.count.read(reader)
        if not isinstance(self.kind, Number) or len(self.kind.code) > 1:
            return tuple([self.kind.read(reader) for _ in range(count)])
        if count * self.kind.form.size > reader.left:
            raise malformed(f"{count} values", reader.at)
        return reader.unpack(Struct(f"<{count}{self.kind.code}"))


class Maybe:
    """A value after a byte that is 1, or a byte 0 for None."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def write(self, value: Any) -> bytes:
        return b"\0" if value is None else b"\1" + self.kind.write(value)

    def read(self, reader: Reader) -> Any:
        return self.kind.read(reader) if boolean.read(reader) else None


class Sequential:
    """Values of several kinds, one after another."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.parts: list[tuple[Struct | Kind, int]] = []  # with the number of values
        codes = ""
        for kind in (*kinds, None):
            if isinstance(kind, Number):
                codes += kind.code
                continue
            if codes:
                self.parts.append((Struct("<" + codes), sum(code not in "0123456789x" for code in codes)))
                codes = ""
            if kind is not None:
                self.parts.append((kind, 1))

    def write(self, value: Any) -> bytes:
        written, at = [], 0
        for part, count in self.parts:
            if isinstance(part, Struct):
                written.append(part.pack(*value[at : at + count]))
            else:
                written.append(part.write(value[at]))
            at += count
        return b"".join(written)

    def read(self, reader: Reader) -> list[Any]:
        values: list[Any] = []
        for part, _ in self.parts:
            if isinstance(part, Struct):
                values += reader.unpack(part)
            else:
                values.append(part.read(reader))
        return values


class StructureLayout:
    """The kind of a dataclass, from its annotations."""

    def __init__(self, structure: type) -> None:
        hints = get_type_hints(structure, include_extras=True)
        metadata = {each.name: getattr(hints[each.name], "__metadata__", None) for each in fields(structure)}
        self.structure = structure
        self.kinds = {name: each[0] for name, each in metadata.items() if each is not None}
        self.sequence = Sequential(self.kinds.values())
        take = attrgetter(*self.kinds) if self.kinds else lambda _: ()
        self.values: Callable[[Any], tuple[Any, ...]] = take if len(self.kinds) != 1 else lambda value: (take(value),)

    def write(self, value: Any) -> bytes:
        return self.sequence.write(self.values(value))

    def read(self, reader: Reader) -> Any:
        return self.structure(*self.sequence.read(reader))


_layouts: dict[type, StructureLayout] = {}


def layout_of(structure: type) -> StructureLayout:
    """Return the layout of a structure, which is made at its first use."""
    return _layouts.get(structure) or _layouts.setdefault(structure, StructureLayout(structure))


T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def structure(cls: type[T]) -> type[T]:
    return dataclass(frozen=True, slots=True)(cls)


def encode(value: object) -> bytes:
    """Return a structure as bytes."""
    return layout_of(type(value)).write(value)
