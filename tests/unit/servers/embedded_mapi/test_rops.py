"""Remote operations of the embedded MAPI server: it answers or rejects any buffer."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.servers.embedded_mapi.folders import Table
from loadsim.servers.embedded_mapi.messages import OpenAttachment, OpenMessage, Stream
from loadsim.servers.embedded_mapi.rops import OPERATIONS, Rops
from loadsim.servers.embedded_mapi.store import DOMAIN_DN, Folder, Mailbox, Store
from loadsim.servers.embedded_mapi.wire import MalformedError

pytestmark = pytest.mark.slow

FOLDER, MESSAGE = 5, 30
"""Numbers of a folder that exists, and of a message that is created."""

FLAGS = st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"\4", b"\5", b"\xff"])
NUMBERS = st.builds(lambda counter: b"\1\0" + counter.to_bytes(6, "big"), st.integers(1, MESSAGE))
TAGS = st.sampled_from([0x0037001F, 0x0037001E, 0x0E070003, 0x674A0014, 0x37010102, 0x0E06000D, 0x001F])
TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=3)
WIDE = TEXTS.map(lambda text: text.encode("utf-16-le") + b"\0\0")
ROW = st.builds(lambda flags, rest: struct.pack("<H", flags) + rest, st.integers(0, 0xFFFF), st.binary(max_size=20))
VALUES = st.binary(max_size=12) | st.builds(lambda tag, text: struct.pack("<HI", 1, tag) + text, TAGS, WIDE)


def sized(content: bytes) -> bytes:
    return struct.pack("<H", len(content)) + content


def counted(parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(parts, max_size=3).map(lambda each: struct.pack("<H", len(each)) + b"".join(each))


def joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(b"".join)


ENCODED_TAGS = TAGS.map(lambda tag: struct.pack("<I", tag))
FIELDS: dict[str, st.SearchStrategy[bytes]] = {
    "B": FLAGS,
    "H": st.integers(0, 0xFFFF).map(lambda number: struct.pack("<H", number)),
    "I": ENCODED_TAGS | st.integers(0, 3).map(lambda number: struct.pack("<I", number)),
    "i": st.integers(-5, 5).map(lambda number: struct.pack("<i", number)),
    "Q": NUMBERS,
    "D": (VALUES | ROW).map(sized),
    "T": counted(ENCODED_TAGS),
    "M": counted(NUMBERS),
    "N": counted(joined(st.just(b"\1" + bytes(16)), WIDE.map(lambda text: bytes((len(text),)) + text))),
    "S": counted(joined(ENCODED_TAGS, FLAGS)).map(lambda orders: orders[:2] + bytes(4) + orders[2:]),
    "R": joined(counted(ENCODED_TAGS), counted(joined(st.just(bytes(4)), FLAGS, ROW.map(sized)))),
    "O": counted(joined(st.just(bytes.fromhex("0301000100") + 2 * struct.pack("<I", 0x0037001F)), WIDE)).map(
        lambda any_of: sized(b"\1" + any_of)
    ),
    "F": joined(st.sampled_from([b"\1\0\0", b"\1\1\0"]), WIDE, WIDE),
}
"""Fields by the letters of `Reader.one`."""


PLACES: dict[type, int] = {Mailbox: 0, Folder: 1, OpenMessage: 2, Table: 3, OpenAttachment: 4, Stream: 5}
"""The places of objects in the table of handles; there is room for two others."""


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Return a request that can be parsed, but for what is inside of sized fields; mostly for an object of its type."""
    number = draw(st.sampled_from(sorted(OPERATIONS)))
    operation = OPERATIONS[number]
    own = [PLACES[each] for each in operation.types if each in PLACES] or [0]
    places = {"i": st.sampled_from(own * 3 + [6]), "o": st.integers(6, 7), "d": st.integers(0, 1), "r": st.just(1)}
    indexes = [draw(places[each]) for each in operation.indexes]
    return bytes((number, 0, *indexes)) + b"".join(draw(FIELDS[each]) for each in operation.fields)


def buffer_of(rops: bytes, handles: list[int]) -> bytes:
    payload = struct.pack("<H", len(rops) + 2) + rops + struct.pack(f"<{len(handles)}I", *handles)
    return struct.pack("<4H", 0, 4, len(payload), len(payload)) + payload


@given(st.lists(requests(), max_size=8), st.integers(0, 0x8000))
def test_any_requests_are_answered_or_refused(wanted: list[bytes], most_bytes: int) -> None:
    store = Store([("user1", "user1@example.test", "")], {})
    mailbox = store.mailboxes["user1"]
    rops = Rops(store, mailbox, lambda: None)
    dn = DOMAIN_DN.encode() + b"user1\0"
    logon = bytes.fromhex("fe 00 00 01 00 00 00 01 00 00 00 00") + struct.pack("<H", len(dn)) + dn
    folder = mailbox.special[FOLDER].number
    made = logon + struct.pack("<BBBBQB", 2, 0, 0, 1, folder, 0) + struct.pack("<BBBBHQB", 6, 0, 0, 2, 0, folder, 0)
    made += bytes.fromhex("05 00 01 03 00  12 00 03 00 0200 1f003700 14004a67  23 00 02 04  2b 00 04 05 02010137 02")
    rops.execute(buffer_of(made, [0] * 8), 0x8000)
    try:
        answer = rops.execute(buffer_of(b"".join(wanted), [1, 2, 3, 4, 5, 6, 0, 0]), most_bytes)
    except MalformedError:
        return
    version, flags, size, actual, rops_size = struct.unpack_from("<5H", answer)
    assert (version, flags, size, actual) == (0, 4, len(answer) - 8, len(answer) - 8)
    assert size - rops_size == 4 * 8


@given(st.binary(max_size=60))
def test_any_bytes_are_answered_or_refused(buffer: bytes) -> None:
    store = Store([("user1", "user1@example.test", "")], {})
    rops = Rops(store, store.mailboxes["user1"], lambda: None)
    try:
        rops.execute(buffer, 0x8000)
    except MalformedError:
        return
    assert buffer[:4] == b"\0\0\4\0"
