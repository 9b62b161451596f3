"""Targets without I/O: responses of a server of MAPI over HTTP."""

from __future__ import annotations

import struct
from copy import copy

from mapi_examples import AT, EVENTS, EXAMPLES, buffer_of, table_of

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi import rops
from loadsim.protocols.mapi.bodies import (
    bind,
    body_of,
    connect,
    execute,
    notification_wait,
    resolve_names,
    split_response,
)
from loadsim.protocols.mapi.rop_buffer import executed

from .mutate import mutated
from .target import Target

_ANSWERED = [each for each in EXAMPLES if each.received]
_RECIPIENTS = (b"\x0b\2a\0b\0\0\0\1\0\0" + struct.pack("<i", 6), b"\x11\0\1\0/o=x\0b\0\0\0\0")
_OPENED = b"\3\1\0\0\0\0\1\4R\0E\0\0\0\1" + struct.pack("<HHIIB", 2, 2, 0x0FFE0003, 0x5FFE001F, 2)
_OPENED += b"".join(struct.pack("<BHHH", 1, 1252, 0, len(row)) + row for row in _RECIPIENTS)
_REQUESTS = (
    *([each.request] for each in _ANSWERED),
    [each.request for each in _ANSWERED],
    [rops.open_message(AT[0], 1, 2)],
)
_BUFFERS = (
    *(buffer_of(bytes.fromhex(each.received), (1, 2)) for each in _ANSWERED),
    buffer_of(bytes.fromhex("".join(each.received for each in _ANSWERED) + "".join(EVENTS.values()) + "6E0000")),
    buffer_of(_OPENED, (1, 2)),
)
BUFFERS = tuple(bytes([number]) + buffer for number, buffer in enumerate(_BUFFERS))
ROP_WORDS = (
    *(bytes([number]) for number in (0x02, 0x2A, 0x6E, 0xF9, 0xFF, 0x0A)),
    *(struct.pack("<I", code) for code in (0, 1, 0x8004010F, 0x503, 0x40380, 0xFFFFFFFF)),
    *(struct.pack("<H", number) for number in (0, 1, 9, 0x7FFF, 0xFFFF)),
    bytes(8),
    b"\0\0",
    b"a\0\x00\xd8\0\0",
)  # fmt: skip

_ASKED = (connect("x"), execute(b""), notification_wait(), bind(), resolve_names((0x3001001F, 0x0FFF0102), ()))
_ROWS = b"\0\1A\0\0\0\1" + struct.pack("<I3s", 3, b"key") + b"\1\0\0\x0a\x0f\1\4\x80"
BODIES = (
    b"\0" + struct.pack("<IIIII", 0, 0, 60_000, 6, 10_000) + b"/o=x\0A\0\0\0" + bytes(4),
    b"\1" + struct.pack("<IIII4sI", 0, 0, 3, 4, b"rops", 0),
    b"\2" + struct.pack("<IIII", 0, 0, 1, 0),
    b"\3" + struct.pack("<II16sI", 0, 0, b"g" * 16, 0),
    b"\4" + struct.pack("<IIIBIIIBIIII", 0, 0, 1252, 1, 2, 2, 0, 1, 2, 0x3001001F, 0x0FFF0102, 2) + _ROWS + bytes(4),
    b"HPROCESSING\r\nPENDING\r\nDONE\r\nX-ResponseCode: 0\r\n\r\n\2" + struct.pack("<IIII", 0, 0, 1, 0),
)


def _buffer(data: bytes) -> None:
    """The first byte says which requests the buffer answers."""
    requests = [copy(each) for each in _REQUESTS[data[0] % len(_REQUESTS) if data else 0]]
    table = table_of(*requests)
    for each in _ANSWERED:
        table |= each.table
    executed(data[1:], requests, table)
    assert all((each.failed is None) == hasattr(each, "answer") for each in requests)


def _body(data: bytes) -> None:
    """The first byte says which request the body answers; "H" begins a response with a head."""
    if data[:1] == b"H":
        named, data = split_response(data[1:])
        assert all(name == name.lower() for name in named)
    body_of(_ASKED[data[0] % len(_ASKED) if data else 0], data[1:])


TARGETS = (
    Target("mapi-buffer", mutated(BUFFERS, ROP_WORDS), _buffer, (ProtocolError,), 2),
    Target("mapi-body", mutated(BODIES, (*ROP_WORDS, b"DONE\r\n", b"\r\n\r\n", b"H")), _body, (ProtocolError,)),
)
