"""Bodies of requests and responses (MS-OXCMAPIHTTP sections 2.2.2, 2.2.4 and 2.2.5).

The mailbox takes Connect, Execute, NotificationWait and Disconnect, the address book Bind, ResolveNames and Unbind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from loadsim.protocols.mapi.codes import ERRORS_RETURNED, ErrorCode
from loadsim.protocols.mapi.layout import (
    I32,
    U32,
    Ansi,
    Maybe,
    Reader,
    Several,
    Sized,
    layout_of,
    malformed,
    structure,
    uint32,
    unicode,
)
from loadsim.protocols.mapi.properties import PropertyRow

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

Data = Annotated[bytes, Sized(uint32)]

LONGEST_HEADER_BYTES = 16384
"""The most bytes of meta-tags and header fields before a response's body."""

PLAIN = 0x3
"""The flags of an Execute: neither compression nor obfuscation (section 2.2.4.2.1)."""


class BodyRequest(Protocol[R_co]):
    """A request whose response's body is `R_co`."""

    @property
    def response(self) -> type[R_co]: ...

    @property
    def request_type(self) -> str: ...


class Rest:
    """All bytes that are left."""

    def read(self, reader: Reader) -> bytes:
        return reader.take(reader.left)


@structure
class AcceptedBody:
    """A response of which only the codes matter."""

    rest: Annotated[bytes, Rest()]


@structure
class Connect:
    request_type: ClassVar[str] = "Connect"
    response: ClassVar = AcceptedBody
    user_dn: Ansi
    flags: U32 = 0
    code_page: U32 = 1252
    sort_locale: U32 = 1033
    string_locale: U32 = 1033
    auxiliary: Data = b""


@structure
class ExecuteResponse:
    flags: U32
    rop_buffer: Data
    auxiliary: Data


@structure
class Execute:
    request_type: ClassVar[str] = "Execute"
    response: ClassVar = ExecuteResponse
    _: KW_ONLY
    flags: U32 = PLAIN
    rop_buffer: Data
    most_bytes: U32 = 0x10008
    auxiliary: Data = b""


@structure
class Disconnect:
    request_type: ClassVar[str] = "Disconnect"
    response: ClassVar = AcceptedBody
    auxiliary: Data = b""


@structure
class Waited:
    """An event is pending if `event_pending` is 1: an Execute returns it."""

    event_pending: U32
    auxiliary: Data


@structure
class NotificationWait:
    request_type: ClassVar[str] = "NotificationWait"
    response: ClassVar = Waited
    flags: U32 = 0
    auxiliary: Data = b""


@structure
class Stat:
    """A position in an address book (MS-OXNSPI section 2.2.8)."""

    sort_type: U32 = 0
    container: U32 = 0
    current: U32 = 0
    delta: I32 = 0
    position: U32 = 0
    total: U32 = 0
    code_page: U32 = 1252
    template_locale: U32 = 1033
    sort_locale: U32 = 1033


State = Annotated[Stat, Maybe(layout_of(Stat))]


@structure
class Bind:
    request_type: ClassVar[str] = "Bind"
    response: ClassVar = AcceptedBody
    flags: U32 = 0
    state: State = Stat()
    auxiliary: Data = b""


@structure
class Unbind:
    request_type: ClassVar[str] = "Unbind"
    response: ClassVar = AcceptedBody
    reserved: U32 = 0
    auxiliary: Data = b""


class ColumnTags:
    """Property tags, which are the columns of the rows behind them."""

    def read(self, reader: Reader) -> tuple[int, ...]:
        reader.columns = tags = Several(uint32, uint32).read(reader)
        return tags


@structure
class Entries:
    """The entries of names that were resolved, in the names' order: their values in the order of the columns."""

    columns: Annotated[tuple[int, ...], ColumnTags()]
    rows: Annotated[tuple[tuple[Any, ...], ...], Several(uint32, PropertyRow(address_book=True))]


UNRESOLVED, AMBIGUOUS, RESOLVED = range(3)


@structure
class ResolvedNames:
    """For each name `RESOLVED` or not (MS-OXNSPI section 2.2.1.9), and the entries of those that are."""

    code_page: U32
    results: Annotated[tuple[int, ...] | None, Maybe(Several(uint32, uint32))]
    entries: Annotated[Entries | None, Maybe(layout_of(Entries))]
    auxiliary: Data


@structure
class ResolveNames:
    request_type: ClassVar[str] = "ResolveNames"
    response: ClassVar = ResolvedNames
    _: KW_ONLY
    reserved: U32 = 0
    state: State = Stat()
    columns: Annotated[tuple[int, ...], Maybe(Several(uint32, uint32))]
    names: Annotated[tuple[str, ...], Maybe(Several(uint32, unicode))]
    auxiliary: Data = b""


def body_of(request: BodyRequest[R], data: bytes) -> R | ErrorCode:
    """Return the body of a response, behind its meta-tags; `ErrorCode` if StatusCode or ErrorCode is not 0.

    An Unbind that succeeds has the ErrorCode 1 (MS-OXNSPI section 2.2.1.2).
    """
    reader = Reader(data)
    code = uint32.read(reader) or uint32.read(reader)
    if code not in (0, ERRORS_RETURNED) and not (code == 1 and isinstance(request, Unbind)):
        return ErrorCode(code)
    body: R = layout_of(request.response).read(reader)
    reader.end()
    return body


def split_response(data: bytes) -> tuple[Mapping[str, str], bytes]:
    """Return header fields with lower-case names, and body, behind the meta-tags of a response (section 2.2.2.2).

    The last meta-tag is DONE.
    """
    head, blank, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n") if len(head) <= LONGEST_HEADER_BYTES else []
    if not blank or "DONE" not in lines:
        raise malformed("meta-tags, DONE, header fields and a blank line", 0)
    done = lines.index("DONE") + 1
    named = [line.partition(":") for line in lines[done:]]
    return {name.strip().lower(): value.strip() for name, _, value in named}, body
