"""The MAPI codec: the documents' examples, the embedded server as its oracle, and hostile input."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapi_examples import AT, EVENTS, EXAMPLES, NOT_FOUND, Example, buffer_of, table_of

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi import bodies, rops
from loadsim.protocols.mapi.codes import ErrorCode
from loadsim.protocols.mapi.rop_buffer import CREATED, NEW_MAIL, Notified, executed, rop_buffer
from loadsim.protocols.mapi.rops import NO_HANDLE, Request
from loadsim.protocols.mapi.wire import PropertyName, Reader, row, time_of
from loadsim.servers.embedded_mapi import wire
from loadsim.servers.embedded_mapi.rops import OPERATIONS

quick = settings(deadline=None, max_examples=50)

SENT = [each for each in EXAMPLES if each.sent]
RECEIVED = [each for each in EXAMPLES if each.received]


@pytest.mark.parametrize("example", SENT, ids=[each.section for each in SENT])
def test_requests_are_those_of_the_documents(example: Example) -> None:
    """RopId, LogonId, the places of its objects, and the rest."""
    sent, request, table = bytes.fromhex(example.sent), example.request, table_of(example.request)
    assert request.number == sent[0]
    assert bytes([table[each] for each in request.objects]) + request.body == sent[2:]


@pytest.mark.parametrize("example", RECEIVED, ids=[each.section for each in RECEIVED])
def test_responses_of_the_documents_are_parsed(example: Example) -> None:
    request = copy(example.request)
    assert executed(buffer_of(bytes.fromhex(example.received)), [request], example.table) == []
    assert (request.answer, request.failed) == (example.answer, None)


# What the driver writes, the embedded server reads, and the reverse: two readings of the documents.

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TYPES: dict[int, st.SearchStrategy[Any]] = {
    0x0003: st.integers(-(2**31), 2**31 - 1),
    0x000B: st.booleans(),
    0x0014: st.integers(0, 2**63 - 1),
    0x001F: TEXTS,
    0x0040: st.integers(0, 2**64 - 1),
    0x0102: st.binary(max_size=30),
}
IDENTIFIERS = st.integers(0, 0xFFFF)
NAMES = st.builds(PropertyName, st.uuids(), st.integers(0, 2**32 - 1) | TEXTS)


@st.composite
def tagged(draw: st.DrawFn) -> tuple[int, Any]:
    type_ = draw(st.sampled_from(sorted(TYPES)))
    return draw(IDENTIFIERS) << 16 | type_, draw(TYPES[type_])


U8, U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("handle", "source", "target", "message"), st.sampled_from(AT)),
    **dict.fromkeys(("flags", "mode", "origin"), U8),
    **dict.fromkeys(("folder_id", "message_id"), U64),
    **dict.fromkeys(("tag", "number"), U32),
    **dict.fromkeys(("count", "most_bytes", "events"), U16),
    **dict.fromkeys(("copy", "notify"), st.booleans()),
    "rows": st.integers(-(2**31), 2**31 - 1),
    "mailbox_dn": st.text(st.sampled_from("aZ 9_\u00e9\u20ac"), max_size=20),
    "name": TEXTS,
    "addresses": st.lists(TEXTS, max_size=4),
    "names": st.lists(NAMES, max_size=4),
    "message_ids": st.lists(U64, max_size=4),
    "columns": st.lists(U32, max_size=4),
    "texts": st.lists(U16.map(lambda number: number << 16 | 0x001F), max_size=4),
    "words": TEXTS,
    "keys": st.lists(st.tuples(U32, U8), max_size=4),
    "properties": st.lists(tagged(), max_size=4),
    "data": st.binary(max_size=50),
}
"""Values of the arguments of requests, by their names."""

OPERATION_FUNCTIONS = [
    each
    for name, each in inspect.getmembers(rops, inspect.isfunction)
    if each.__module__ == rops.__name__ and not name.startswith("_")
]


@settings(quick, max_examples=20)
@given(st.data())
@pytest.mark.parametrize("make", OPERATION_FUNCTIONS, ids=[each.__name__ for each in OPERATION_FUNCTIONS])
def test_the_server_parses_the_drivers_requests(make: Callable[..., Request[Any]], data: st.DataObject) -> None:
    """All of it, with the same places, numbers and lists."""
    arguments = {name: data.draw(ARGUMENTS[name], name) for name in inspect.signature(make).parameters}
    request = make(**arguments)
    sent = wire.Reader(request.body)
    if request.number == rops.RELEASE:
        assert request.objects == (arguments["handle"],)
    else:
        operation = OPERATIONS[request.number]
        assert len(request.objects) == len(operation.indexes) and request.opens == ("o" in operation.indexes)
        found = [sent.one(each) for each in operation.fields]
        for name, value in arguments.items():
            if name in ("flags", "mode", "origin", "folder_id", "message_id", "tag", "number", "count", "rows", "copy"):
                assert value in found
            elif name == "message_ids" or (name == "columns" and "T" in operation.fields):
                assert tuple(value) in found
            elif name in ("name", "data"):
                assert value in found
    sent.end()


@quick
@given(st.lists(tagged(), max_size=8), st.randoms())
def test_server_and_driver_encode_values_alike(pairs: list[tuple[int, Any]], random: Any) -> None:
    """Rows, of which some lack values, and properties to set."""
    columns = tuple(dict(pairs))
    values = {tag: value for tag, value in dict(pairs).items() if random.choice([True, True, False])}
    reader = Reader(wire.encode_row(values, columns))
    assert row(reader, columns) == tuple([values.get(tag, NOT_FOUND) for tag in columns])
    reader.end()
    sent = wire.Reader(rops.set_properties(AT[0], tuple(values.items())).body[2:])
    assert [sent.tagged_value() for _ in range(sent.one("H"))] == list(values.items())
    sent.end()


def test_a_one_off_recipient_is_encoded_as_documented() -> None:
    """MS-OXCDATA section 2.8.3: type SMTP, address and name in Unicode, no properties."""
    row = struct.pack("<H", 0x0200 | 0x0010 | 0x0008 | 3) + 2 * "a@b\0".encode("utf-16-le") + b"\0\0\0"
    expected = struct.pack("<HHIBH", 0, 1, 0, 1, len(row)) + row
    assert rops.modify_recipients(AT[2], ["a@b"]).body == expected


def test_times_and_names_have_their_published_values() -> None:
    """FILETIME counts from 1601; a GUID's first parts are little-endian (MS-DTYP section 2.3.4.2)."""
    moment = datetime(2025, 11, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    since_1601 = moment - datetime(1601, 1, 1, tzinfo=UTC)
    microseconds = since_1601.days * 86_400_000_000 + since_1601.seconds * 10**6 + since_1601.microseconds
    assert time_of(round(moment.timestamp() * 1e6)) == microseconds * 10
    set_ = UUID("00020386-0000-0000-C000-000000000046")
    names = PropertyName(set_, "ab"), PropertyName(set_, 0x820D)
    assert rops.get_property_ids_from_names(AT[0], names).body == bytes.fromhex(
        "02 02 00 01 86 03 02 00 00 00 00 00 C0 00 00 00 00 00 00 46 06 61 00 62 00 00 00"
        "00 86 03 02 00 00 00 00 00 C0 00 00 00 00 00 00 46 0D 82 00 00"
    )


# Buffers of several responses.


def open_folder() -> Request[None]:
    return rops.open_folder(AT[0], 5)


def query() -> Request[rops.Rows]:
    return rops.query_rows(AT[2], 9, (0x0037001F,))


def answers_to(responses: str, *requests: Request[Any]) -> list[object]:
    """Return the answers to the requests, or their failures; None for a Release."""
    executed(buffer_of(bytes.fromhex(responses)), requests, table_of(*requests))
    return [getattr(each, "answer", None) if each.failed is None else each.failed for each in requests]


def test_several_requests_share_a_buffer() -> None:
    """MS-OXCROPS section 2.2.1, in one RPC_HEADER_EXT (MS-OXCRPC section 2.2.2.1)."""
    opening = rops.open_folder(rops.Handle(3), 5)
    opened = opening.opened
    requests = [opening, rops.get_contents_table(opened, 0), rops.release(opened)]
    buffer, table = rop_buffer(requests)
    rops_bytes = bytes.fromhex("02 00 00 01 05 00 00 00 00 00 00 00 00" + "05 00 01 02 00" + "01 00 01")
    handles = struct.pack("<III", 3, NO_HANDLE, NO_HANDLE)
    assert buffer == struct.pack("<HHHHH", 0, 4, 35, 35, 23) + rops_bytes + handles
    responses = bytes.fromhex("02 01 00 00 00 00 00 00" + "05 02 00 00 00 00 07 00 00 00")
    executed(buffer_of(responses, (3, 8, 9)), requests, table)
    assert [each.number for each in table] == [3, 8, 9]


def test_answers_are_matched_to_requests() -> None:
    """A Release has no response, and a failure only a code."""
    requests = [rops.release(AT[4]), open_folder(), rops.release(AT[5]), query()]
    responses = "02 01 0F 01 04 8015 02 00 00 00 00 02 01 00 00 61 00 00 00"
    assert answers_to(responses, *requests) == [None, NOT_FOUND, None, (2, [("a",)])]
    assert NOT_FOUND.name == "ecNotFound" and ErrorCode(0xAB).name == "0x000000AB"


def test_partial_completion_is_a_failure() -> None:
    """PartialCompletion, a property that was not set, and a part of a stream that was not written."""
    problems = "0A 00 00000000 0100 0300 1F003700 0F010480"
    requests = rops.set_read_flags(AT[0], 1, (5,)), rops.set_properties(AT[0], ()), rops.write_stream(AT[0], b"abc")
    answers = answers_to("66 00 00000000 01" + problems + "2D 00 00000000 0200", *requests)
    assert [answer.code for answer in answers if isinstance(answer, ErrorCode)] == [0x40680, 0x8004010F, 0x40380]


@pytest.mark.parametrize("trailer", ["", "00", "01"])
def test_fields_of_failures_are_skipped(trailer: str) -> None:
    """PartialCompletion follows a failure by the documents, but not by all servers."""
    failed = f"66 00 05 40 00 80 {trailer}"
    marking = rops.set_read_flags(AT[0], 1, (5,))
    assert answers_to(failed + "02 01 00 00 00 00 00 00", marking, open_folder()) == [ErrorCode(0x80004005), None]
    assert answers_to(failed, marking) == [ErrorCode(0x80004005)]


def test_special_fields_of_failures_are_read() -> None:
    """NullDestinationObject, a redirected logon, and names without an identifier, which is a warning."""
    moving = rops.move_copy_messages(AT[0], AT[1], (5,))
    responses = "33 00 03 05 00 00 07 00 00 00 0102 01 00 00 00 00 01 00"
    assert answers_to(responses, moving, open_folder()) == [ErrorCode(0x503), None]
    assert answers_to("FE 01 78 04 00 00 01 03 61 62 00", rops.logon("/o=x")) == [ErrorCode(0x478)]
    names = rops.get_property_ids_from_names(AT[0], ())
    assert answers_to("56 00 80 03 04 00 02 00 00 00 01 80", names) == [(0, 0x8001)]


@pytest.mark.parametrize(("number", "code"), [(0xFF, 0x47D), (0xF9, 0x480)])
def test_unprocessed_requests_are_returned(number: int, code: int) -> None:
    """RopBufferTooSmall and RopBackoff are the last responses (MS-OXCROPS section 2.2.15)."""
    responses = f"02 01 00 00 00 00 00 00 {number:02X} 00 80 15 00 02"
    assert answers_to(responses, open_folder(), query(), rops.release(AT[1]), open_folder()) == [
        *(None, ErrorCode(code), None, ErrorCode(code))
    ]


def test_events_come_with_any_response() -> None:
    """RopNotify and RopPending (MS-OXCNOTIF sections 2.2.1.4.1 and 2.2.1.3.4), before and behind responses."""
    new_mail = "2A 07 00 00 00 00 02 80 0100000000000012 0100000000000013 01 00 00 00 00" + b"IPM.Note\0".hex()
    response, pending = "02 01 00 00 00 00 00 00", "6E 00 00"
    expected = Notified(NEW_MAIL, 0x1200000000000001, 0x1300000000000001)
    opening = open_folder()
    found = executed(buffer_of(bytes.fromhex(new_mail + response + new_mail + pending)), [opening], table_of(opening))
    assert (found, opening.failed) == ([expected] * 2, None)


KNOWN = {
    "folder created": Notified(CREATED, 0x0100000000000001, None),
    "message created": Notified(CREATED, 0x0100000000000001, 0x0200000000000001),
    "new mail": Notified(NEW_MAIL, 0x0100000000000001, 0x0200000000000001),
    "new mail in Unicode": Notified(NEW_MAIL, 0x0100000000000001, 0x0200000000000001),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events_are_parsed_with_all_fields(name: str) -> None:
    """All fields that MS-OXCNOTIF section 2.2.1.4.1.2 gives to each event are read, and no more."""
    buffer = buffer_of(bytes.fromhex(EVENTS[name] + EVENTS["folder created"]))
    assert executed(buffer, [], {}) == [KNOWN[name], KNOWN["folder created"]]


STRINGS = (b"\0", b"\1", b"\2a\0", b"\3\xe9\0", b"\4\xe9\0\0\0")


@pytest.mark.parametrize("string", STRINGS)
def test_an_opened_message_is_parsed_to_its_end(string: bytes) -> None:
    """MS-OXCROPS section 2.2.6.1.2, with a subject of each type of string: all is read, and what follows it."""
    recipient = struct.pack("<H", 0x0208 | 3) + "b@c\0".encode("utf-16-le") + b"\1\0\0" + struct.pack("<i", 6)
    response = b"\3\1\0\0\0\0\1" + string + b"\4R\0\0\0" + struct.pack("<HHIIB", 3, 2, 0x0FFE0003, 0x5FFE001F, 1)
    response += struct.pack("<BHHH", 2, 1252, 0, len(recipient)) + recipient
    requests = rops.open_message(AT[0], 1, 2), query()
    buffer = buffer_of(response + bytes.fromhex("15 02 00000000 02 0000"))
    executed(buffer, requests, table_of(*requests))
    assert (requests[0].failed, requests[1].answer) == (None, (2, []))


MALFORMED = {
    "a type of string": (rops.open_message(AT[0], 1, 2), "03 01 00 00 00 00 01 05"),
    "a flag of a row": (query(), "15 02 00 00 00 00 02 01 00 02 61 00 00 00"),
    "a flag of a value": (query(), "15 02 00 00 00 00 02 01 00 01 02 61 00 00 00"),
    "a recipient": (
        rops.open_message(AT[0], 1, 2),
        "03 01 00 00 00 00 01 00 00 01 00 00 00 01 01 E4 04 00 00 06 00 03 00 01 00 00",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_fields_are_protocol_errors(name: str) -> None:
    request, responses = MALFORMED[name]
    with pytest.raises(ProtocolError):
        answers_to(responses, request)


# Bodies of HTTP.


def test_bodies_of_requests_are_encoded_as_documented() -> None:
    """MS-OXCMAPIHTTP sections 2.2.4.1.1, 2.2.4.2.1 and 2.2.5.13.1."""
    assert bodies.connect("/o=x").body == b"/o=x\0" + struct.pack("<IIIII", 0, 1252, 1033, 1033, 0)
    assert bodies.execute(b"rops").body == struct.pack("<II4sII", 3, 4, b"rops", 0x10008, 0)
    stat = struct.pack("<IIIiIIIII", 0, 0, 0, 0, 0, 0, 1252, 1033, 1033)
    names = struct.pack("<BI", 1, 2) + "a\0é\0".encode("utf-16-le")
    expected = bytes(4) + b"\1" + stat + struct.pack("<BII", 1, 1, 0x3001001F) + names + bytes(4)
    assert bodies.resolve_names((0x3001001F,), ("a", "é")).body == expected


def test_bodies_of_responses_are_parsed() -> None:
    """Section 2.2.4.1.2, 2.2.4.2.2 and 2.2.5.13.2; a failure has no fields but its code."""
    connected = struct.pack("<IIIII", 0, 0, 60_000, 6, 10_000) + b"/o=x\0" + "Ann\0".encode("utf-16-le") + bytes(4)
    assert bodies.body_of(bodies.connect("x"), connected) is None
    assert bodies.body_of(bodies.notification_wait(), struct.pack("<IIIIB", 0, 0, 1, 1, 9)) == 1
    assert bodies.body_of(bodies.execute(b""), struct.pack("<4I4sI", 0, 0, 3, 4, b"rops", 0)) == b"rops"
    for failed in ((5, 0), (0, 0x80040115, 0, 0, 0)):
        code = next(filter(None, failed))
        assert bodies.body_of(bodies.connect("x"), struct.pack(f"<{len(failed)}I", *failed)) == ErrorCode(code)

    row = b"\0\xff" + "Ann\0".encode("utf-16-le") + b"\xff" + struct.pack("<I3si", 3, b"key", -1)
    lacking = b"\1" + b"\0\0" + b"\x0a" + struct.pack("<I", 0x8004010F) + b"\1"
    columns = (0x3001001F, 0x0FFF0102, 0x39000003)
    resolved = struct.pack("<IIIBIIIBIIIII", 0, 0, 1252, 1, 2, 2, 0, 1, 3, *columns, 2) + row + lacking + bytes(4)
    request = bodies.resolve_names(columns, ("ann", "x"))
    assert bodies.body_of(request, resolved) == ((2, 0), [("Ann", b"key", -1), (None, NOT_FOUND, None)])


def test_the_head_of_a_response_is_parsed() -> None:
    """MS-OXCMAPIHTTP section 2.2.2.2, with the keep-alives of section 2.2.7."""
    head = b"PROCESSING\r\nPENDING\r\nPENDING\r\nDONE\r\nX-ResponseCode: 0\r\nX-ElapsedTime:7\r\n\r\n\0\r\n\r\n"
    assert bodies.split_response(head) == ({"x-responsecode": "0", "x-elapsedtime": "7"}, b"\0\r\n\r\n")


# Hostile input.


@pytest.mark.parametrize(
    "wire",
    [
        "",
        "0000 0500 0200 0200 0200",  # compressed
        "0000 0600 0200 0200 0200",  # obfuscated
        "0000 0000 0200 0200 0200",  # another buffer follows
        "0100 0400 0200 0200 0200",
        "0000 0400 0300 0300 0200",  # the size of the buffer
        "0000 0400 0200 0200 0100",
        "0000 0400 0200 0200 0300",
        "0000 0400 0300 0300 0200 00",  # a part of a handle
    ],
)
def test_malformed_headers_are_protocol_errors(wire: str) -> None:
    with pytest.raises(ProtocolError):
        executed(bytes.fromhex(wire), [], {})


@pytest.mark.parametrize(
    "responses",
    [
        "",  # none
        "03 01 00 00 00 00 00 00",  # to another request
        "02 00 00 00 00 00 00 00",  # of another place
        "02 01 00 00 00 00 00 00 02 01 00 00 00 00 00 00",  # one more
        "02 01 00 00 00 00 00 01 01 00 00 00",  # a public folder
        "02 01 00 00 00 00 00",
        "2A 07 00 00 00 00 02 80",
        "2A 07 00 00 00 00 08 80" + "00" * 16,  # an event that no one subscribed to
        "00",
    ],
)
def test_malformed_responses_are_protocol_errors(responses: str) -> None:
    with pytest.raises(ProtocolError):
        answers_to(responses, open_folder())


@pytest.mark.parametrize("example", RECEIVED, ids=[each.section for each in RECEIVED])
def test_every_truncation_is_an_error(example: Example) -> None:
    wire = bytes.fromhex(example.received)
    for length in range(len(wire)):
        with pytest.raises(ProtocolError):
            executed(buffer_of(wire[:length]), [copy(example.request)], example.table)


def test_counts_beyond_the_input_are_rejected() -> None:
    """Numbers of values beyond the input, of columns beyond reason, and types that no document has."""
    many = struct.pack("<IIIBI", 0, 0, 1252, 1, 0xFFFFFFFF)
    columns = struct.pack("<IIIBBI2000II", 0, 0, 1252, 0, 1, 2000, *[0x3001001F] * 2000, 1) + bytes(5000)
    unknown = struct.pack("<IIIBBIII", 0, 0, 1252, 0, 1, 1, 0x30010099, 1) + bytes(50)
    request = bodies.resolve_names((), ())
    for body in (many, columns, unknown):
        with pytest.raises(ProtocolError):
            bodies.body_of(request, body)
    for head in (b"DONE\r\n", b"PROCESSING\r\n\r\n", b"x" * 20_000 + b"\r\nDONE\r\n\r\n"):
        with pytest.raises(ProtocolError):
            bodies.split_response(head)


def test_undecodable_texts_stay_texts() -> None:
    """Half a surrogate pair is replaced, and a null character in what is sent does not end it."""
    assert row(Reader(b"\0a\0\x00\xd8b\0\0\0"), (0x0037001F,)) == ("a\ufffdb",)
    sent = rops.set_properties(AT[0], ((0x0037001F, "a\0b"),)).body
    assert sent == struct.pack("<HHI", 12, 1, 0x0037001F) + "ab\0".encode("utf-16-le")
    assert bodies.connect("€\u4e00\0").body.startswith(b"\x80?\0\0")
