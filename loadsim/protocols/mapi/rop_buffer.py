"""The buffer of an Execute: requests with their handles out, responses and notifications in.

MS-OXCROPS section 2.2.1, within one RPC_HEADER_EXT (MS-OXCRPC section 2.2.2.1), neither compressed nor obfuscated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from struct import Struct
from typing import Any, NamedTuple, TypeVar, cast

from loadsim.protocols.mapi.codes import (
    BUFFER_TOO_SMALL,
    ERRORS_RETURNED,
    NULL_DESTINATION,
    SERVER_BUSY,
    WRONG_SERVER,
    ErrorCode,
)
from loadsim.protocols.mapi.layout import (
    Reader,
    Several,
    Sized,
    ansi,
    encode,
    malformed,
    uint8,
    uint16,
    uint32,
    uint64,
    unicode,
)
from loadsim.protocols.mapi.rops import GetPropertyIdsFromNames, Logon, MoveCopyMessages, Release, Request

R = TypeVar("R")

NO_HANDLE = 0xFFFFFFFF
"""The handle in a place where an operation puts one."""

_HEADER = Struct("<HHHHH")  # Version, Flags, Size, SizeActual, RopSize
_LAST = 0x0004
_RESULT = Struct("<BI")
_NOTIFY, _PENDING = 0x2A, 0x6E
_UNREACHED = {0xF9: SERVER_BUSY, 0xFF: BUFFER_TOO_SMALL}  # RopBackoff and RopBufferTooSmall end the responses

NEW_MAIL, CREATED = 0x0002, 0x0004
"""The events that the driver subscribes to."""

_OF_MESSAGE = 0x8000


class Notified(NamedTuple):
    """An event of a folder, or of a message in it."""

    event: int
    folder_id: int
    message_id: int | None


@dataclass(frozen=True, slots=True)
class Executed:
    """The answers to requests, and what the server appended.

    An answer is the response, or `ErrorCode`; of a Release, None. Requests that the server did not reach, because its
    buffer was full or it was busy, failed with `BUFFER_TOO_SMALL` or `SERVER_BUSY`.
    """

    requests: Sequence[Request[Any]]
    answers: Sequence[object]
    handles: tuple[int, ...]
    notifications: Sequence[Notified] = ()

    def answer_if_any(self, request: Request[R]) -> R | None:
        """Return the answer to this very request; None if it failed."""
        answer = next(answer for each, answer in zip(self.requests, self.answers, strict=True) if each is request)
        return None if isinstance(answer, ErrorCode) else cast("R", answer)

    def answer(self, request: Request[R]) -> R:
        """Return the answer to this very request, which did not fail and has a response."""
        answer = self.answer_if_any(request)
        assert answer is not None
        return answer


def rop_buffer(requests: Sequence[Request[Any]], handles: Sequence[int]) -> bytes:
    """Return the buffer with these requests and this handle table. Raises `struct.error` above 64 KiB."""
    rops = b"".join([bytes((each.rop.number, 0)) + encode(each) for each in requests])
    size_bytes = 2 + len(rops) + 4 * len(handles)
    header = _HEADER.pack(0, _LAST, size_bytes, size_bytes, 2 + len(rops))
    return header + rops + Struct(f"<{len(handles)}I").pack(*handles)


def executed(buffer: bytes, requests: Sequence[Request[Any]]) -> Executed:
    """Return the contents of a buffer that answers these requests."""
    whole = Reader(buffer)
    version, flags, size_bytes, actual_bytes, rops_bytes = whole.unpack(_HEADER)
    if version or flags != _LAST or not size_bytes == actual_bytes == len(buffer) - 8 >= rops_bytes >= 2:
        raise malformed("the header of one plain buffer", 0)
    reader = Reader(whole.take(rops_bytes - 2))
    handles = Several(whole.left // 4, uint32).read(whole)
    whole.end()

    answers: list[object] = []
    notifications: list[Notified] = []
    unreached = None
    for request in requests:
        notifications += _events(reader)
        if isinstance(request, Release):  # it has no response
            answers.append(None)
            continue
        if unreached is None:
            number = uint8.read(reader)
            if number == request.rop.number:
                answers.append(_answer(reader, request))
                continue
            if number not in _UNREACHED:
                raise malformed("the response to the next request", reader.at - 1)
            unreached = ErrorCode(_UNREACHED[number])
            reader.at = len(reader.data)
        answers.append(unreached)
    notifications += _events(reader)
    reader.end()
    return Executed(requests, answers, handles, notifications)


def _events(reader: Reader) -> list[Notified]:
    """Return the notifications in front of a response, or of the end."""
    found = []
    while reader.left and reader.data[reader.at] in (_NOTIFY, _PENDING):
        if uint8.read(reader) == _NOTIFY:
            found.append(_notified(reader))
        else:
            reader.take(2)  # SessionIndex; the next NotificationWait ends at once
    return found


def _answer(reader: Reader, request: Request[Any]) -> object:
    """Return the answer to a request, from behind its RopId."""
    place, code = reader.unpack(_RESULT)
    if place != _place(type(request))(request):
        raise malformed("the place of the request", reader.at - 5)
    if code and not (code == ERRORS_RETURNED and isinstance(request, GetPropertyIdsFromNames)):
        if code == NULL_DESTINATION and isinstance(request, MoveCopyMessages):
            reader.take(4)  # DestHandleIndex
        elif code == WRONG_SERVER and isinstance(request, Logon):
            reader.take(1)
            Sized(uint8).read(reader)  # the server's name
        # Some documents and servers put PartialCompletion or a size of 0 here, others nothing; no RopId is 0 or 1.
        while reader.left and reader.data[reader.at] <= 1:
            reader.at += 1
        return ErrorCode(code)
    reader.columns = getattr(request, "columns", ())
    answer: object = request.rop.response.read(reader)
    return answer


@cache
def _place(request: type) -> Callable[[Any], int]:
    """Return the function that takes the place that a response repeats: that of the opened object, or the first."""
    names = [each.name for each in fields(request)]
    return attrgetter("output" if "output" in names else names[0])


def _notified(reader: Reader) -> Notified:
    """Return a notification (MS-OXCNOTIF section 2.2.1.4), without details, from behind its RopId."""
    reader.take(5)  # NotificationHandle, LogonId
    flags = uint16.read(reader)
    event, of_message = flags & ~_OF_MESSAGE, bool(flags & _OF_MESSAGE)
    if event not in (NEW_MAIL, CREATED):
        raise malformed("an event that was subscribed to", reader.at - 2)
    folder_id = uint64.read(reader)
    message_id = uint64.read(reader) if of_message else None
    if event == NEW_MAIL:
        reader.take(4)  # MessageFlags
        (unicode if uint8.read(reader) else ansi).read(reader)  # MessageClass
    else:
        if not of_message:
            reader.take(8)  # ParentFolderId
        count = uint16.read(reader)
        reader.take(0 if count == 0xFFFF else 4 * count)  # Tags
    return Notified(event, folder_id, message_id)
