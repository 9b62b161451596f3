"""Bodies of requests and responses (MS-OXCMAPIHTTP sections 2.2.2, 2.2.4 and 2.2.5).

The mailbox accepts Connect, Execute, NotificationWait and Disconnect, the address book Bind, ResolveNames and Unbind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import pack
from typing import Generic, NamedTuple, TypeVar

from loadsim.protocols.mapi.codes import ERRORS_RETURNED, ErrorCode
from loadsim.protocols.mapi.wire import Reader, Value, counted, malformed, row, sized, string

R = TypeVar("R")

LONGEST_HEADER_BYTES = 16384
"""The most bytes of meta-tags and header fields before a response's body."""


@dataclass(frozen=True, slots=True)
class BodyRequest(Generic[R]):
    """A request: its type, its body, and the function that reads its response after StatusCode and ErrorCode."""

    request_type: str
    body: bytes
    read: Callable[[Reader], R]


_NO_AUXILIARY = bytes(4)


def _codes_only(reader: Reader) -> None:
    """Skip a response's body, as only its codes matter."""
    reader.take(reader.left)


def connect(user_dn: str) -> BodyRequest[None]:
    body = string(user_dn, "cp1252") + pack("<4I", 0, 1252, 1033, 1033) + _NO_AUXILIARY
    return BodyRequest("Connect", body, _codes_only)


def execute(rop_buffer: bytes) -> BodyRequest[bytes]:
    """Return an Execute of a ROP buffer, which is answered with another one."""

    def read(reader: Reader) -> bytes:
        reader.take(4)  # Flags
        buffer = reader.sized("I")
        reader.sized("I")
        return buffer

    plain = 0x3  # neither compression nor obfuscation (section 2.2.4.2.1)
    body = pack("<I", plain) + sized(rop_buffer, "I") + pack("<I", 0x10008) + _NO_AUXILIARY
    return BodyRequest("Execute", body, read)


def notification_wait() -> BodyRequest[int]:
    """Return a NotificationWait; its answer is 1 if an event is pending, which an Execute then returns."""

    def read(reader: Reader) -> int:
        pending = int(reader.number("I"))
        reader.sized("I")
        return pending

    return BodyRequest("NotificationWait", bytes(4) + _NO_AUXILIARY, read)


def disconnect() -> BodyRequest[None]:
    return BodyRequest("Disconnect", _NO_AUXILIARY, _codes_only)


_STATE = b"\1" + pack("<9I", 0, 0, 0, 0, 0, 0, 1252, 1033, 1033)
"""A position in an address book, with its code page and locales (MS-OXNSPI section 2.2.8)."""


def bind() -> BodyRequest[None]:
    return BodyRequest("Bind", bytes(4) + _STATE + _NO_AUXILIARY, _codes_only)


def unbind() -> BodyRequest[None]:
    return BodyRequest("Unbind", bytes(4) + _NO_AUXILIARY, _codes_only)


RESOLVED = 2


class ResolvedNames(NamedTuple):
    """A result per name, `RESOLVED` or not (MS-OXNSPI section 2.2.1.9), and the entries of resolved names."""

    results: tuple[int, ...]
    entries: Sequence[tuple[Value, ...]]


def resolve_names(columns: Sequence[int], names: Sequence[str]) -> BodyRequest[ResolvedNames]:
    """Return a ResolveNames. Entries must have values for these columns, or the response is malformed."""

    def read(reader: Reader) -> ResolvedNames:
        results = reader.numbers("I", "I") if reader.number("4x?") else ()  # after CodePage
        entries: list[tuple[Value, ...]] = []
        if reader.number("?"):
            if reader.numbers("I", "I") != tuple(columns):
                raise malformed("the columns that were asked for", reader.at)
            entries += [row(reader, columns, address_book=True) for _ in range(reader.number("I"))]
        reader.sized("I")
        return ResolvedNames(results, entries)

    texts = pack("<BI", 1, len(names)) + b"".join(map(string, names))
    body = bytes(4) + _STATE + b"\1" + counted(columns, "I", "I") + texts + _NO_AUXILIARY
    return BodyRequest("ResolveNames", body, read)


def body_of(request: BodyRequest[R], data: bytes) -> R | ErrorCode:
    """Return a response's body, after its meta-tags; `ErrorCode` if StatusCode or ErrorCode is not 0.

    A successful Unbind has the ErrorCode 1 (MS-OXNSPI section 2.2.1.2).
    """
    reader = Reader(data)
    code = reader.number("I") or reader.number("I")
    if code not in (0, ERRORS_RETURNED) and not (code == 1 and request.request_type == "Unbind"):
        return ErrorCode(code)
    body = request.read(reader)
    reader.end()
    return body


def split_response(data: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return the header fields, by lower-case name, and the body after a response's meta-tags (section 2.2.2.2).

    The last meta-tag is DONE.
    """
    head, blank, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n") if len(head) <= LONGEST_HEADER_BYTES else []
    if not blank or "DONE" not in lines:
        raise malformed("meta-tags, DONE, header fields and a blank line", 0)
    done = lines.index("DONE") + 1
    named = [line.partition(":") for line in lines[done:]]
    return {name.strip().lower(): value.strip() for name, _, value in named}, body
