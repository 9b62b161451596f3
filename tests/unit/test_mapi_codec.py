"""The MAPI codec: the documents' examples, the embedded server as its oracle, and hostile input."""

from __future__ import annotations

import inspect
import struct
from dataclasses import MISSING, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapi_examples import EVENTS, EXAMPLES, NOT_FOUND, Example, buffer_of

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi import bodies, rops
from loadsim.protocols.mapi.codes import ErrorCode
from loadsim.protocols.mapi.layout import (
    Number,
    Reader,
    Sequential,
    Several,
    Sized,
    StructureLayout,
    Terminated,
    encode,
    layout_of,
)
from loadsim.protocols.mapi.properties import Named, PropertyName, PropertyRow, TaggedValue, time_of
from loadsim.protocols.mapi.rop_buffer import CREATED, NEW_MAIL, NO_HANDLE, Notified, executed, rop_buffer
from loadsim.servers.embedded_mapi import wire
from loadsim.servers.embedded_mapi.rops import OPERATIONS

quick = settings(deadline=None, max_examples=50)

SENT = [each for each in EXAMPLES if each.sent]
RECEIVED = [each for each in EXAMPLES if each.received]


@pytest.mark.parametrize("example", SENT, ids=[each.section for each in SENT])
def test_requests_of_the_documents(example: Example) -> None:
    """RopId, LogonId, and the rest."""
    sent = bytes.fromhex(example.sent)
    assert example.request.rop.number == sent[0]
    assert encode(example.request) == sent[2:]


@pytest.mark.parametrize("example", RECEIVED, ids=[each.section for each in RECEIVED])
def test_responses_of_the_documents(example: Example) -> None:
    found = executed(buffer_of(bytes.fromhex(example.received), (7, NO_HANDLE)), [example.request])
    assert found.answer(example.request) == example.answer
    assert found.handles == (7, NO_HANDLE) and not found.notifications


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


NUMBERS = {
    "B": st.integers(0, 255),
    "H": st.integers(0, 2**16 - 1),
    "I": st.integers(0, 2**32 - 1),
    "Q": st.integers(0, 2**64 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "?": st.booleans(),
}


def values_of(kind: object) -> st.SearchStrategy[Any]:
    """Return values of a kind of field."""
    match kind:
        case Number(code=code):
            return NUMBERS[code]
        case Terminated(encoding="cp1252"):
            return st.text(st.sampled_from("aZ 9_é€"), max_size=20)
        case Terminated():
            return TEXTS
        case Sized(kind=None):
            return st.binary(max_size=50)
        case Sized(kind=inner):
            return values_of(inner)
        case Several(kind=inner):
            return st.lists(values_of(inner), max_size=4).map(tuple)
        case Sequential():
            return st.tuples(NUMBERS["Q"], NUMBERS["Q"])
        case StructureLayout(structure=structure):
            return structures(structure)
        case TaggedValue():
            return tagged()
        case Named():
            return NAMES
    raise AssertionError(f"expected a known kind, found {kind!r}")


def structures(structure: type) -> st.SearchStrategy[Any]:
    """Return structures with any values, but for the fields with a default."""
    kinds = layout_of(structure).kinds
    stated = [each.name for each in fields(structure) if each.default is MISSING]
    return st.builds(structure, **{name: values_of(kinds[name]) for name in stated if name in kinds})


REQUESTS = [
    each for _, each in inspect.getmembers(rops, inspect.isclass) if isinstance(getattr(each, "rop", 0), rops.Rop)
]


@settings(quick, max_examples=20)
@given(st.data())
@pytest.mark.parametrize("structure", REQUESTS, ids=[each.__name__ for each in REQUESTS])
def test_the_server_reads_what_the_driver_writes(structure: type, data: st.DataObject) -> None:
    """All of it, with the same numbers."""
    request = data.draw(structures(structure))
    sent = wire.Reader(encode(request))
    if structure is rops.Release:
        assert sent.one("B") == request.input
    else:
        operation = OPERATIONS[request.rop.number]
        values = [sent.one(each) for each in ("B" * len(operation.indexes) + operation.fields)]
        own = [getattr(request, name) for name in layout_of(structure).kinds]
        if len(values) == len(own):
            assert [each for each in values if isinstance(each, int)] == [each for each in own if isinstance(each, int)]
    sent.end()


@quick
@given(st.lists(tagged(), max_size=8), st.randoms())
def test_values_of_the_server_and_of_the_driver(pairs: list[tuple[int, Any]], random: Any) -> None:
    """Rows, of which some lack values, and properties to set."""
    columns = tuple(dict(pairs))
    values = {tag: value for tag, value in dict(pairs).items() if random.choice([True, True, False])}
    reader = Reader(wire.encode_row(values, columns, 0xFFFF), columns=columns)
    assert PropertyRow().read(reader) == tuple([values.get(tag, NOT_FOUND) for tag in columns])
    reader.end()
    sent = wire.Reader(encode(rops.SetProperties(0, tuple(values.items())))[3:])
    assert [sent.tagged_value() for _ in range(sent.one("H"))] == list(values.items())
    sent.end()


def test_a_one_off_recipient() -> None:
    """MS-OXCDATA section 2.8.3: type SMTP, address and name in Unicode, no properties."""
    request = rops.ModifyRecipients(2, (), (rops.ModifiedRecipient(0, 1, rops.smtp_recipient("a@b")),))
    row = struct.pack("<H", 0x0200 | 0x0010 | 0x0008 | 3) + 2 * "a@b\0".encode("utf-16-le") + b"\0\0\0"
    expected = struct.pack("<BHHIBH", 2, 0, 1, 0, 1, len(row)) + row
    assert encode(request) == expected


def test_times_and_names_have_their_published_values() -> None:
    """FILETIME counts from 1601; a GUID's first parts are little-endian (MS-DTYP section 2.3.4.2)."""
    moment = datetime(2025, 11, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    since_1601 = moment - datetime(1601, 1, 1, tzinfo=UTC)
    microseconds = since_1601.days * 86_400_000_000 + since_1601.seconds * 10**6 + since_1601.microseconds
    assert time_of(round(moment.timestamp() * 1e6)) == microseconds * 10
    set_ = UUID("00020386-0000-0000-C000-000000000046")
    wire = encode(rops.GetPropertyIdsFromNames(0, names=(PropertyName(set_, "ab"), PropertyName(set_, 0x820D))))
    assert wire == bytes.fromhex(
        "00 02 02 00 01 86 03 02 00 00 00 00 00 C0 00 00 00 00 00 00 46 06 61 00 62 00 00 00"
        "00 86 03 02 00 00 00 00 00 C0 00 00 00 00 00 00 46 0D 82 00 00"
    )


# Buffers of several responses.

OPEN = rops.OpenFolder(0, 1, 5)
QUERY = rops.QueryRows(2, count=9, columns=(0x0037001F,))
MOVE = rops.MoveCopyMessages(0, 1, (5,))
READ = rops.SetReadFlags(0, flags=1, message_ids=(5,))


def answers_to(responses: str, *requests: rops.Request[Any]) -> list[object]:
    return list(executed(buffer_of(bytes.fromhex(responses)), requests).answers)


def test_a_buffer_of_requests() -> None:
    """MS-OXCROPS section 2.2.1, in one RPC_HEADER_EXT (MS-OXCRPC section 2.2.2.1)."""
    buffer = rop_buffer([OPEN, rops.Release(2)], [3, NO_HANDLE, 4])
    rops_bytes = bytes.fromhex("02 00 00 01 05 00 00 00 00 00 00 00 0001 00 02")
    assert buffer == struct.pack("<HHHHH", 0, 4, 30, 30, 18) + rops_bytes + struct.pack("<III", 3, NO_HANDLE, 4)


def test_answers_belong_to_requests() -> None:
    """A Release has no response, a failure only a code, and an answer is found by its request."""
    requests = [rops.Release(4), OPEN, rops.Release(5), QUERY]
    buffer = buffer_of(bytes.fromhex("02 01 0F 01 04 8015 02 00 00 00 00 02 01 00 00 61 00 00 00"))
    found = executed(buffer, requests)
    assert found.answers == [None, NOT_FOUND, None, rops.Rows(2, (("a",),))]
    assert found.answer(QUERY) == rops.Rows(2, (("a",),))
    assert found.answer_if_any(OPEN) is None and NOT_FOUND.name == "ecNotFound" and ErrorCode(0xAB).name == "0x000000AB"


@pytest.mark.parametrize("trailer", ["", "00", "01"])
def test_failures_may_have_fields(trailer: str) -> None:
    """PartialCompletion follows a failure by the documents, but not by all servers."""
    failed = f"66 00 05 40 00 80 {trailer}"
    assert answers_to(failed + "02 01 00 00 00 00 00 00", READ, OPEN)[0] == ErrorCode(0x80004005)
    assert answers_to(failed, READ) == [ErrorCode(0x80004005)]


def test_failures_with_fields_of_their_own() -> None:
    """NullDestinationObject, a redirected logon, and names without an identifier, which is a warning."""
    assert answers_to("33 00 03 05 00 00 07 00 00 00 0102 01 00 00 00 00 01 00", MOVE, OPEN) == [
        ErrorCode(0x503),
        rops.OpenedFolder(True, False),
    ]
    logon = rops.Logon(0, mailbox_dn="/o=x")
    assert answers_to("FE 00 78 04 00 00 01 03 61 62 00", logon) == [ErrorCode(0x478)]
    names = rops.GetPropertyIdsFromNames(0, names=())
    assert answers_to("56 00 80 03 04 00 02 00 00 00 01 80", names) == [(0, 0x8001)]


@pytest.mark.parametrize(("number", "code"), [(0xFF, 0x47D), (0xF9, 0x480)])
def test_requests_that_the_server_did_not_reach(number: int, code: int) -> None:
    """RopBufferTooSmall and RopBackoff are the last responses (MS-OXCROPS section 2.2.15)."""
    responses = f"02 01 00 00 00 00 00 00 {number:02X} 00 80 15 00 02"
    assert answers_to(responses, OPEN, QUERY, rops.Release(1)) == [
        rops.OpenedFolder(False, False),
        ErrorCode(code),
        None,
    ]


def test_events_come_with_any_response() -> None:
    """RopNotify and RopPending (MS-OXCNOTIF sections 2.2.1.4.1 and 2.2.1.3.4), before and behind responses."""
    new_mail = "2A 07 00 00 00 00 02 80 0100000000000012 0100000000000013 01 00 00 00 00" + b"IPM.Note\0".hex()
    response, pending = "02 01 00 00 00 00 00 00", "6E 00 00"
    expected = Notified(NEW_MAIL, 0x1200000000000001, 0x1300000000000001)
    found = executed(buffer_of(bytes.fromhex(new_mail + response + new_mail + pending)), [OPEN])
    assert (found.answers, found.notifications) == ([rops.OpenedFolder(False, False)], [expected] * 2)


KNOWN = {
    "folder created": Notified(CREATED, 0x0100000000000001, None),
    "message created": Notified(CREATED, 0x0100000000000001, 0x0200000000000001),
    "new mail": Notified(NEW_MAIL, 0x0100000000000001, 0x0200000000000001),
    "new mail in Unicode": Notified(NEW_MAIL, 0x0100000000000001, 0x0200000000000001),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events(name: str) -> None:
    """All fields that MS-OXCNOTIF section 2.2.1.4.1.2 gives to each event are read, and no more."""
    buffer = buffer_of(bytes.fromhex(EVENTS[name] + EVENTS["folder created"]))
    assert executed(buffer, []).notifications == [KNOWN[name], KNOWN["folder created"]]


OPEN_MESSAGE = rops.OpenMessage(0, 1, folder_id=1, message_id=2)
STRINGS = {b"\0": "", b"\1": "", b"\2a\0": "a", b"\3\xe9\0": "é", b"\4\xe9\0\0\0": "é"}


@pytest.mark.parametrize("string", STRINGS)
def test_an_opened_message(string: bytes) -> None:
    """MS-OXCROPS section 2.2.6.1.2, with a subject of each type of string."""
    row = struct.pack("<H", 0x0208 | 3) + "b@c\0".encode("utf-16-le") + b"\1\0\0" + struct.pack("<i", 6)
    response = b"\3\1\0\0\0\0\1" + string + b"\4R\0\0\0" + struct.pack("<HHIIB", 3, 2, 0x0FFE0003, 0x5FFE001F, 1)
    response += struct.pack("<BHHH", 2, 1252, 0, len(row)) + row
    assert executed(buffer_of(response), [OPEN_MESSAGE]).answers == [
        rops.OpenedMessage(
            True, STRINGS[string], "R", 3, (0x0FFE0003, 0x5FFE001F), ([struct.pack("<BHH", 2, 1252, 0), row],)
        )
    ]


MALFORMED = {
    "a type of string": (OPEN_MESSAGE, "03 01 00 00 00 00 01 05"),
    "a flag of a row": (QUERY, "15 02 00 00 00 00 02 01 00 02 61 00 00 00"),
    "a flag of a value": (QUERY, "15 02 00 00 00 00 02 01 00 01 02 61 00 00 00"),
    "a recipient": (OPEN_MESSAGE, "03 01 00 00 00 00 01 00 00 01 00 00 00 01 01 E4 04 00 00 06 00 03 00 01 00 00"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_fields(name: str) -> None:
    request, responses = MALFORMED[name]
    with pytest.raises(ProtocolError):
        answers_to(responses, request)


# Bodies of HTTP.


def test_bodies_of_requests() -> None:
    """MS-OXCMAPIHTTP sections 2.2.4.1.1, 2.2.4.2.1 and 2.2.5.13.1."""
    assert encode(bodies.Connect("/o=x")) == b"/o=x\0" + struct.pack("<IIIII", 0, 1252, 1033, 1033, 0)
    assert encode(bodies.Execute(rop_buffer=b"rops")) == struct.pack("<II4sII", 3, 4, b"rops", 0x10008, 0)
    stat = struct.pack("<IIIiIIIII", 0, 0, 0, 0, 0, 0, 1252, 1033, 1033)
    names = struct.pack("<BI", 1, 2) + "a\0é\0".encode("utf-16-le")
    expected = bytes(4) + b"\1" + stat + struct.pack("<BII", 1, 1, 0x3001001F) + names + bytes(4)
    request = bodies.ResolveNames(columns=(0x3001001F,), names=("a", "é"))
    assert encode(request) == expected


def test_bodies_of_responses() -> None:
    """Section 2.2.4.1.2, 2.2.4.2.2 and 2.2.5.13.2; a failure has no fields but its code."""
    connected = struct.pack("<IIIII", 0, 0, 60_000, 6, 10_000) + b"/o=x\0" + "Ann\0".encode("utf-16-le") + bytes(4)
    assert bodies.body_of(bodies.Connect("x"), connected) == bodies.AcceptedBody(connected[8:])
    assert bodies.body_of(bodies.NotificationWait(), struct.pack("<IIIIB", 0, 0, 1, 1, 9)) == bodies.Waited(1, b"\t")
    for failed in ((5, 0), (0, 0x80040115, 0, 0, 0)):
        code = next(filter(None, failed))
        assert bodies.body_of(bodies.Connect("x"), struct.pack(f"<{len(failed)}I", *failed)) == ErrorCode(code)

    row = b"\0\xff" + "Ann\0".encode("utf-16-le") + b"\xff" + struct.pack("<I3si", 3, b"key", -1)
    lacking = b"\1" + b"\0\0" + b"\x0a" + struct.pack("<I", 0x8004010F) + b"\1"
    columns = (0x3001001F, 0x0FFF0102, 0x39000003)
    resolved = struct.pack("<IIIBIIIBIIIII", 0, 0, 1252, 1, 2, 2, 0, 1, 3, *columns, 2) + row + lacking + bytes(4)
    request = bodies.ResolveNames(columns=columns, names=("ann", "x"))
    assert bodies.body_of(request, resolved) == bodies.ResolvedNames(
        1252, (2, 0), bodies.Entries(columns, (("Ann", b"key", -1), (None, NOT_FOUND, None))), b""
    )


def test_the_head_of_a_response() -> None:
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
def test_malformed_headers(wire: str) -> None:
    with pytest.raises(ProtocolError):
        executed(bytes.fromhex(wire), [])


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
def test_malformed_responses(responses: str) -> None:
    with pytest.raises(ProtocolError):
        answers_to(responses, OPEN)


@pytest.mark.parametrize("example", RECEIVED, ids=[each.section for each in RECEIVED])
def test_every_truncation_is_an_error(example: Example) -> None:
    wire = bytes.fromhex(example.received)
    for length in range(len(wire)):
        with pytest.raises(ProtocolError):
            executed(buffer_of(wire[:length]), [example.request])


def test_no_count_is_believed() -> None:
    """Numbers of values beyond the input, of columns beyond reason, and types that no document has."""
    many = struct.pack("<IIIBI", 0, 0, 1252, 1, 0xFFFFFFFF)
    columns = struct.pack("<IIIBBI2000II", 0, 0, 1252, 0, 1, 2000, *[0x3001001F] * 2000, 1) + bytes(5000)
    unknown = struct.pack("<IIIBBIII", 0, 0, 1252, 0, 1, 1, 0x30010099, 1) + bytes(50)
    request = bodies.ResolveNames(columns=(), names=())
    for body in (many, columns, unknown):
        with pytest.raises(ProtocolError):
            bodies.body_of(request, body)
    for head in (b"DONE\r\n", b"PROCESSING\r\n\r\n", b"x" * 20_000 + b"\r\nDONE\r\n\r\n"):
        with pytest.raises(ProtocolError):
            bodies.split_response(head)


def test_texts_without_sense_stay_texts() -> None:
    """Half a surrogate pair is replaced, and a null character in what is sent does not end it."""
    assert PropertyRow().read(Reader(b"\0a\0\x00\xd8b\0\0\0", columns=(0x0037001F,))) == ("a\ufffdb",)
    sent = encode(rops.SetProperties(0, ((0x0037001F, "a\0b"),)))
    assert sent == struct.pack("<BHHI", 0, 12, 1, 0x0037001F) + "ab\0".encode("utf-16-le")
    assert encode(bodies.Connect("€\u4e00\0")).startswith(b"\x80?\0\0")
