"""An Execute's buffer: requests with their handles out, responses and notifications in.

MS-OXCROPS section 2.2.1, within one RPC_HEADER_EXT (MS-OXCRPC section 2.2.2.1), neither compressed nor obfuscated.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import Any, NamedTuple

from loadsim.protocols.mapi.codes import (
    BUFFER_TOO_SMALL,
    ERRORS_RETURNED,
    NULL_DESTINATION,
    SERVER_BUSY,
    WRONG_SERVER,
    ErrorCode,
)
from loadsim.protocols.mapi.rops import LOGON, MOVE_COPY_MESSAGES, PROPERTY_IDS, RELEASE, Handle, Request
from loadsim.protocols.mapi.wire import Reader, malformed

_LAST = 0x0004
_NOTIFY, _PENDING = 0x2A, 0x6E
_UNREACHED = {0xF9: SERVER_BUSY, 0xFF: BUFFER_TOO_SMALL}  # RopBackoff and RopBufferTooSmall end the responses

NEW_MAIL, CREATED = 0x0002, 0x0004
"""The events that the driver subscribes to."""

_OF_MESSAGE = 0x8000


class Notified(NamedTuple):
    """An event about a folder, or about a message in it."""

    event: int
    folder_id: int
    message_id: int | None


Table = dict[Handle, int]
"""A buffer's objects with their places in its handle table, in order."""


def rop_buffer(requests: Sequence[Request[Any]]) -> tuple[bytes, Table]:
    """Return a buffer with these requests, and its handle table. Raises `struct.error` above 64 KiB."""
    table: Table = {}
    rops = b""
    for request in requests:
        places = [table.setdefault(handle, len(table)) for handle in request.objects]
        rops += bytes((request.number, 0, *places)) + request.body
    size_bytes = 2 + len(rops) + 4 * len(table)
    header = pack("<HHHHH", 0, _LAST, size_bytes, size_bytes, 2 + len(rops))
    return header + rops + pack(f"<{len(table)}I", *[handle.number for handle in table]), table


def executed(buffer: bytes, requests: Sequence[Request[Any]], table: Table) -> list[Notified]:
    """Fill in the requests' answers and the objects' numbers from a buffer. Return the notifications.

    Requests that the server did not reach, as its buffer was full or it was busy, fail with `BUFFER_TOO_SMALL` or
    `SERVER_BUSY`.
    """
    whole = Reader(buffer)
    version, flags, size_bytes, actual_bytes, rops_bytes = whole.unpack("5H")
    if version or flags != _LAST or not size_bytes == actual_bytes == len(buffer) - 8 >= rops_bytes >= 2:
        raise malformed("the header of one plain buffer", 0)
    reader = Reader(whole.take(rops_bytes - 2))
    numbers = whole.unpack(f"{whole.left // 4}I")
    whole.end()
    if len(numbers) == len(table):
        for handle, number in zip(table, numbers, strict=True):
            handle.number = number

    notifications: list[Notified] = []
    unreached: ErrorCode | None = None
    for request in requests:
        notifications += _events(reader)
        if request.number == RELEASE:  # it has no response
            continue
        if unreached is None:
            rop_id = reader.number("B")
            if rop_id == request.number:
                _answer(reader, request, table[request.objects[-1 if request.opens else 0]])
                continue
            if rop_id not in _UNREACHED:
                raise malformed("the response to the next request", reader.at - 1)
            unreached = ErrorCode(_UNREACHED[rop_id])
            reader.take(reader.left)
        request.failed = unreached
    notifications += _events(reader)
    reader.end()
    return notifications


def _events(reader: Reader) -> list[Notified]:
    """Return the notifications before a response or the end."""
    events = []
    while reader.left and reader.data[reader.at] in (_NOTIFY, _PENDING):
        if reader.number("B") == _NOTIFY:
            events.append(_notified(reader))
        else:
            reader.take(2)  # SessionIndex; the next NotificationWait ends at once
    return events


def _answer(reader: Reader, request: Request[Any], expected_place: int) -> None:
    """Fill in a request's answer, which follows its RopId."""
    place, code = reader.unpack("BI")
    if place != expected_place:
        raise malformed("the place of the request", reader.at - 5)
    if code and not (code == ERRORS_RETURNED and request.number == PROPERTY_IDS):
        if code == NULL_DESTINATION and request.number == MOVE_COPY_MESSAGES:
            reader.take(4)  # DestHandleIndex
        elif code == WRONG_SERVER and request.number == LOGON:
            reader.take(1)
            reader.sized("B")  # the server's name
        # Some documents and servers put PartialCompletion or a size of 0 here, others nothing. No RopId is 0 or 1.
        while reader.left and reader.data[reader.at] <= 1:
            reader.at += 1
        request.failed = ErrorCode(code)
        return
    answer = request.read(reader)
    if isinstance(answer, ErrorCode):
        request.failed = answer
    else:
        request.answer = answer


def _notified(reader: Reader) -> Notified:
    """Return the notification after a RopId (MS-OXCNOTIF section 2.2.1.4), without its details."""
    flags = reader.number("5xH")  # after NotificationHandle and LogonId
    event, of_message = flags & ~_OF_MESSAGE, bool(flags & _OF_MESSAGE)
    if event not in (NEW_MAIL, CREATED):
        raise malformed("an event that was subscribed to", reader.at - 2)
    folder_id = reader.number("Q")
    message_id = reader.number("Q") if of_message else None
    if event == NEW_MAIL:
        is_unicode = reader.number("4x?")  # after MessageFlags
        reader.text(2 if is_unicode else 1)  # MessageClass
    else:
        if not of_message:
            reader.take(8)  # ParentFolderId
        count = reader.number("H")
        reader.take(0 if count == 0xFFFF else 4 * count)  # Tags
    return Notified(event, folder_id, message_id)
