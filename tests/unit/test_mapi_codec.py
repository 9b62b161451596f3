"""The MAPI codec: the documents' examples in both directions, round trips, and hostile input."""

from __future__ import annotations

import inspect
import struct
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapi_examples import EVENTS, EXAMPLES, NOT_FOUND, Example, buffer_of

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi import bodies, rops
from loadsim.protocols.mapi.codes import Failed
from loadsim.protocols.mapi.layout import (
    Layout,
    Maybe,
    Number,
    Optional,
    Reader,
    Several,
    Sized,
    Terminated,
    decode,
    encode,
    layout_of,
)
from loadsim.protocols.mapi.notifications import NEW_MAIL, Notified
from loadsim.protocols.mapi.properties import Columns, Named, PropertyName, Tagged, row_bytes, row_from, time_of
from loadsim.protocols.mapi.recipients import ModifiedRecipient, RecipientRow, StoredRecipient, smtp_recipient
from loadsim.protocols.mapi.rop_buffer import NO_HANDLE, executed, rop_buffer

quick = settings(deadline=None, max_examples=50)

SENT = [each for each in EXAMPLES if each.sent]
RECEIVED = [each for each in EXAMPLES if each.received]


@pytest.mark.parametrize("example", SENT, ids=[each.section for each in SENT])
def test_requests_of_the_documents(example: Example) -> None:
    """RopId, LogonId, and the rest in both directions."""
    wire = bytes.fromhex(example.sent)
    assert example.request.rop.number == wire[0]
    assert encode(example.request) == wire[2:]
    assert decode(type(example.request), wire[2:]) == example.request


@pytest.mark.parametrize("example", RECEIVED, ids=[each.section for each in RECEIVED])
def test_responses_of_the_documents(example: Example) -> None:
    found = executed(buffer_of(bytes.fromhex(example.received), (7, NO_HANDLE)), [example.request])
    assert found.answer(example.request) == example.answer
    assert found.handles == (7, NO_HANDLE) and not found.notifications and not found.pending


# Values of the kinds of fields, for requests of any content.

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ANSI_TEXTS = st.text(st.sampled_from("aZ 9_é€"), max_size=20)
TYPES: dict[int, st.SearchStrategy[Any]] = {
    0x0002: st.integers(-(2**15), 2**15 - 1),
    0x0003: st.integers(-(2**31), 2**31 - 1),
    0x0004: st.floats(width=32, allow_nan=False),
    0x0005: st.floats(allow_nan=False),
    0x0006: st.integers(-(2**63), 2**63 - 1),
    0x0007: st.floats(allow_nan=False),
    0x000A: st.builds(Failed, st.integers(0, 2**32 - 1)),
    0x000B: st.booleans(),
    0x0014: st.integers(-(2**63), 2**63 - 1),
    0x001E: ANSI_TEXTS,
    0x001F: TEXTS,
    0x0040: st.integers(0, 2**64 - 1),
    0x0048: st.binary(min_size=16, max_size=16),
    0x00FB: st.binary(max_size=30),
    0x0102: st.binary(max_size=30),
}
TYPES |= {
    0x1000 | each: st.lists(TYPES[each], max_size=4).map(tuple) for each in TYPES if each not in (0x000A, 0x000B, 0xFB)
}
IDENTIFIERS = st.integers(0, 0xFFFF)
NAMES = st.builds(PropertyName, st.uuids(), st.integers(0, 2**32 - 1) | TEXTS)


@st.composite
def tagged(draw: st.DrawFn) -> tuple[int, Any]:
    type_ = draw(st.sampled_from(sorted(TYPES)))
    return draw(IDENTIFIERS) << 16 | type_, draw(TYPES[type_])


TAGS = st.integers(0, 2**32 - 1)
NUMBERS = {
    "B": st.integers(0, 255),
    "H": st.integers(0, 2**16 - 1),
    "I": st.integers(0, 2**32 - 1),
    "Q": st.integers(0, 2**64 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}


def values_of(kind: object) -> st.SearchStrategy[Any]:
    """Return values of a kind of field."""
    match kind:
        case Number(code=code):
            return NUMBERS[code]
        case Terminated(encoding="cp1252"):
            return ANSI_TEXTS
        case Terminated():
            return TEXTS
        case Sized(kind=None):
            return st.binary(max_size=50)
        case Sized(kind=inner):
            return values_of(inner)
        case Several(count=int() as count, kind=inner):
            return st.lists(values_of(inner), min_size=count, max_size=count).map(tuple)
        case Several(kind=inner):
            return st.lists(values_of(inner), max_size=4).map(tuple)
        case Maybe(kind=inner) | Optional(kind=inner):
            return st.none() | values_of(inner)
        case Layout(structure=structure):
            return structures(structure)
        case Columns():
            return st.lists(TAGS, max_size=4).map(tuple)
        case Tagged():
            return tagged()
        case Named():
            return NAMES
        case rops.Scope():
            return st.none() | st.tuples(NUMBERS["Q"], NUMBERS["Q"])
    raise AssertionError(f"expected a known kind, found {kind!r}")


def structures(structure: type) -> st.SearchStrategy[Any]:
    return st.builds(structure, **{name: values_of(kind) for name, kind in layout_of(structure).kinds.items()})


REQUESTS = [
    each
    for module in (rops, bodies)
    for _, each in inspect.getmembers(module, inspect.isclass)
    if (hasattr(each, "rop") or hasattr(each, "request_type")) and each.__module__ == module.__name__
    if each not in (rops.Request, rops.ModifyRecipients, bodies.BodyRequest)
]


@settings(quick, max_examples=20)
@given(st.data())
@pytest.mark.parametrize("structure", REQUESTS, ids=[each.__name__ for each in REQUESTS])
def test_requests_survive_a_round_trip(structure: type, data: st.DataObject) -> None:
    request = data.draw(structures(structure))
    assert decode(structure, encode(request)) == request


def test_recipients_survive_a_round_trip() -> None:
    """Of each type of address, with the strings that the flags state, in Unicode or not."""
    columns = (0x0FFE0003, 0x3003001F)
    properties = ((columns[0], 6), (columns[1], None))
    rows = [
        RecipientRow(flags=0x0208 | 3, address="ann@sim.test"),
        RecipientRow(flags=0x0018 | 3, address="ann@sim.test", name="Ann", properties=properties),
        RecipientRow(flags=0x0011, dn="/o=x/cn=ann", dn_prefix_used=4, display_type=1, name="Ann"),
        RecipientRow(flags=0x0630 | 6, entry_id=b"e", search_key=b"k", name="A", simple_name="s", transmitted_name="t"),
        RecipientRow(flags=0x8008, address_type="FAX", address="12", properties=properties[:1]),
        smtp_recipient("bo@sim.test", "Bö"),
        None,
    ]
    recipients = tuple(ModifiedRecipient(number, 1, row) for number, row in enumerate(rows))
    request = rops.ModifyRecipients(0, columns, recipients)
    assert decode(rops.ModifyRecipients, encode(request)) == request


def test_a_one_off_recipient() -> None:
    """MS-OXCDATA section 2.8.3: type SMTP, address and name in Unicode, no properties."""
    request = rops.ModifyRecipients(2, (), (ModifiedRecipient(0, 1, smtp_recipient("a@b")),))
    row = struct.pack("<H", 0x0200 | 0x0010 | 0x0008 | 3) + 2 * "a@b\0".encode("utf-16-le") + b"\0\0\0"
    expected = struct.pack("<BHHIBH", 2, 0, 1, 0, 1, len(row)) + row
    assert encode(request) == expected


@quick
@given(st.lists(tagged(), max_size=8), st.randoms())
def test_rows_survive_a_round_trip(pairs: list[tuple[int, Any]], random: Any) -> None:
    """With values, and with the reasons of missing ones."""
    columns = tuple(each for each, _ in pairs)
    values = tuple(random.choice([value, value, None, NOT_FOUND]) for _, value in pairs)
    reader = Reader(row_bytes(columns, values))
    assert row_from(reader, columns) == values
    reader.end()


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
    assert found.answers == [rops.Done(), NOT_FOUND, rops.Done(), rops.Rows(2, (("a",),))]
    assert found.answer(QUERY) == rops.Rows(2, (("a",),))
    assert found.answer(OPEN) == NOT_FOUND and NOT_FOUND.name == "ecNotFound" and Failed(0xAB).name == "0x000000AB"


@pytest.mark.parametrize("trailer", ["", "00", "01"])
def test_failures_may_have_fields(trailer: str) -> None:
    """PartialCompletion follows a failure by the documents, but not by all servers."""
    failed = f"66 00 05 40 00 80 {trailer}"
    assert answers_to(failed + "02 01 00 00 00 00 00 00", READ, OPEN)[0] == Failed(0x80004005)
    assert answers_to(failed, READ) == [Failed(0x80004005)]


def test_failures_with_fields_of_their_own() -> None:
    """NullDestinationObject, a redirected logon, and names without an identifier, which is a warning."""
    assert answers_to("33 00 03 05 00 00 07 00 00 00 0102 01 00 00 00 00 01 00", MOVE, OPEN) == [
        Failed(0x503),
        rops.OpenedFolder(True, False),
    ]
    logon = rops.Logon(0, mailbox_dn="/o=x")
    assert answers_to("FE 00 78 04 00 00 01 03 61 62 00", logon) == [Failed(0x478)]
    names = rops.GetPropertyIdsFromNames(0, names=())
    assert answers_to("56 00 80 03 04 00 02 00 00 00 01 80", names) == [rops.PropertyIds((0, 0x8001))]


@pytest.mark.parametrize(("number", "code"), [(0xFF, 0x47D), (0xF9, 0x480)])
def test_requests_that_the_server_did_not_reach(number: int, code: int) -> None:
    """RopBufferTooSmall and RopBackoff are the last responses (MS-OXCROPS section 2.2.15)."""
    responses = f"02 01 00 00 00 00 00 00 {number:02X} 00 80 15 00 02"
    assert answers_to(responses, OPEN, QUERY, rops.Release(1)) == [
        rops.OpenedFolder(False, False),
        Failed(code),
        rops.Done(),
    ]


def test_events_come_with_any_response() -> None:
    """RopNotify and RopPending (MS-OXCNOTIF sections 2.2.1.4.1 and 2.2.1.3.4), before and behind responses."""
    new_mail = "2A 07 00 00 00 00 02 80 0100000000000012 0100000000000013 01 00 00 00 00" + b"IPM.Note\0".hex()
    response, pending = "02 01 00 00 00 00 00 00", "6E 00 00"
    expected = Notified(NEW_MAIL, 0x1200000000000001, 0x1300000000000001)
    found = executed(buffer_of(bytes.fromhex(new_mail + response + new_mail + pending)), [OPEN])
    assert (found.answers, found.notifications, found.pending) == (
        [rops.OpenedFolder(False, False)],
        [expected] * 2,
        True,
    )


KNOWN = {
    "folder created": (0x004, 1, None),
    "folder moved": (0x020, 1, None),
    "message copied": (0x040, 1, 2),
    "message deleted from a search folder": (0x008, 1, 2),
    "folder's counts modified": (0x010, 1, None),
    "row of a message added": (0x100, 1, 2),
    "row of a folder modified": (0x100, 1, None),
    "row of a folder deleted": (0x100, 1, None),
    "table changed": (0x100, None, None),
    "search completed": (0x080, 1, None),
    "new mail in Unicode": (0x002, 1, 2),
}


@pytest.mark.parametrize("name", EVENTS)
def test_events(name: str) -> None:
    """All fields that MS-OXCNOTIF section 2.2.1.4.1.2 gives to each event are read, and no more."""
    event, folder, message = KNOWN[name]
    expected = Notified(event, folder and folder << 56 | 1, message and message << 56 | 1)
    buffer = buffer_of(bytes.fromhex(EVENTS[name] + EVENTS["table changed"]))
    assert executed(buffer, []).notifications == [expected, Notified(0x100)]


OPEN_MESSAGE = rops.OpenMessage(0, 1, folder_id=1, message_id=2)
STRINGS = {b"\0": "", b"\1": "", b"\2a\0": "a", b"\3\xe9\0": "é", b"\4\xe9\0\0\0": "é"}


@pytest.mark.parametrize("string", STRINGS)
def test_an_opened_message(string: bytes) -> None:
    """MS-OXCROPS section 2.2.6.1.2, with a subject of each type of string."""
    row = struct.pack("<H", 0x0208 | 3) + "b@c\0".encode("utf-16-le") + b"\1\0\0" + struct.pack("<i", 6)
    response = b"\3\1\0\0\0\0\1" + string + b"\4R\0\0\0" + struct.pack("<HHIIB", 3, 2, 0x0FFE0003, 0x5FFE001F, 1)
    response += struct.pack("<BHHH", 2, 1252, 0, len(row)) + row
    recipient = RecipientRow(flags=0x020B, address="b@c", properties=((0x0FFE0003, 6),))
    assert executed(buffer_of(response), [OPEN_MESSAGE]).answers == [
        rops.OpenedMessage(
            True, STRINGS[string], "R", 3, (0x0FFE0003, 0x5FFE001F), (StoredRecipient(2, 1252, 0, recipient),)
        )
    ]


MALFORMED = {
    "a type of string": (OPEN_MESSAGE, "03 01 00 00 00 00 01 05"),
    "a flag of a row": (QUERY, "15 02 00 00 00 00 02 01 00 02 61 00 00 00"),
    "a flag of a value": (QUERY, "15 02 00 00 00 00 02 01 00 01 02 61 00 00 00"),
    "columns of a recipient": (
        OPEN_MESSAGE,
        "03 01 00 00 00 00 01 00 00 01 00 00 00 01 01 E4 04 00 00 05 00 03 00 01 00 00",
    ),
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
    names = struct.pack("<BI", 255, 2) + "a\0é\0".encode("utf-16-le")
    expected = bytes(4) + b"\xff" + stat + struct.pack("<BII", 255, 1, 0x3001001F) + names + bytes(4)
    request = bodies.ResolveNames(columns=(0x3001001F,), names=("a", "é"))
    assert encode(request) == expected.replace(b"\xff", b"\1")
    assert decode(bodies.ResolveNames, expected) == request, "any byte but 0 means that a field is there"


def test_bodies_of_responses() -> None:
    """Section 2.2.4.1.2, 2.2.4.2.2 and 2.2.5.13.2; a failure has no fields but its code."""
    connected = struct.pack("<IIIII", 0, 0, 60_000, 6, 10_000) + b"/o=x\0" + "Ann\0".encode("utf-16-le") + bytes(4)
    assert bodies.body_of(bodies.Connect("x"), connected) == bodies.Connected(60_000, 6, 10_000, "/o=x", "Ann", b"")
    assert bodies.body_of(bodies.NotificationWait(), struct.pack("<IIIIB", 0, 0, 1, 1, 9)) == bodies.Waited(1, b"\t")
    for failed in ((5, 0), (0, 0x80040115, 0, 0, 0)):
        code = next(filter(None, failed))
        assert bodies.body_of(bodies.Connect("x"), struct.pack(f"<{len(failed)}I", *failed)) == Failed(code)

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
    assert bodies.split_response(head) == (
        ("PROCESSING", "PENDING", "PENDING", "DONE"),
        {"x-responsecode": "0", "x-elapsedtime": "7"},
        b"\0\r\n\r\n",
    )


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
    reader = Reader(b"a\0\x00\xd8b\0\0\0")
    assert row_from(Reader(b"\0" + reader.data), (0x0037001F,)) == ("a\ufffdb",)
    sent = rops.SetProperties(0, ((0x0037001F, "a\0b"), (0x0037001E, "€\u4e00\0")))
    assert decode(rops.SetProperties, encode(sent)).properties == ((0x0037001F, "ab"), (0x0037001E, "€?"))
