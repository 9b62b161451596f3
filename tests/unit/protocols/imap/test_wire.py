"""The IMAP wire: bytes in, typed responses out; on any split, in linear time, with one kind of error."""

from __future__ import annotations

import imaplib
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imap_dialogue import DIALOGUE, cut

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.commands import LONGEST_SET_BYTES, Literal, astring, date_time, encode, mailbox, number_sets
from loadsim.protocols.imap.grammar import numbers_of, parse
from loadsim.protocols.imap.names import decode_name, encode_name
from loadsim.protocols.imap.responses import Address, Envelope, Exists, Fetched, ListEntry, Response, Tagged
from loadsim.protocols.imap.values import DEEPEST
from loadsim.protocols.imap.wire import ImapWire

quick = settings(deadline=None, max_examples=50)


# The answers of RFC 9051 section 8 and of the sections that the comments name, in this project's values.

MALFORMED = [
    b"",
    b"*",
    b"*1 EXISTS",
    b"a1 MAYBE so",
    b'* LIST "/" x',
    b"* LIST () NIL",
    b'* LIST () "/" "open',
    b"* STATUS x (MESSAGES)",
    b"* SEARCH 1 two",
    b'* ESEARCH (TAG "a") ALL 1:4294967296',
    b"* 1 FETCH",
    b"* 1 FETCH (UID 4",
    b"* 1 FETCH (UID four)",
    b"* 1 FETCH (UID " + b"9" * 5000 + b")",
    b"* 1 FETCH (FLAGS \\Seen)",
    b"* 1 FETCH (BODY[] atom)",
    b"* 1 FETCH (BODY[] {9}\r\nshort)",
    b"* 1 FETCH (ENVELOPE (NIL))",
    b"* 1 FETCH (ENVELOPE (NIL NIL ((NIL NIL)) NIL NIL NIL NIL NIL NIL NIL))",
    b'* 1 FETCH (BODYSTRUCTURE ("text" "plain"))',
    b'* 1 FETCH (BODYSTRUCTURE ("text" "plain" NIL NIL NIL "7bit" big 1))',
    b"* 1 FETCH (X " + b"(" * (DEEPEST + 2),
    b"* 1 FETCH (X " + b"(" * 100_000 + b")" * 100_000 + b")",
]


def responses(pieces: Sequence[bytes]) -> list[Response]:
    """Return the responses that a new wire parses from a stream in these pieces."""
    wire = ImapWire()
    return [response for piece in pieces for response in wire.feed(piece)]


@pytest.mark.parametrize(("raw", "expected"), DIALOGUE, ids=range(len(DIALOGUE)))
def test_each_response_is_parsed_into_its_type(raw: bytes, expected: Response | None) -> None:
    """Each kind of answer has its type and its values, also when it comes byte by byte."""
    found = [] if expected is None else [expected]
    stream = raw + b"\r\n"
    assert responses([stream]) == found
    assert responses([stream[at : at + 1] for at in range(len(stream))]) == found
    assert [type(response) for response in responses([stream])] == [type(response) for response in found]


@quick
@given(st.lists(st.sampled_from(DIALOGUE), max_size=8), st.lists(st.integers(0, 4000), max_size=30))
def test_any_split_gives_the_same_responses(sent: list[tuple[bytes, Response | None]], places: list[int]) -> None:
    """However the network cuts the stream, the same responses come out, and nothing is held back."""
    stream = b"".join(raw + b"\r\n" for raw, _ in sent)
    wire = ImapWire()
    found = [response for piece in cut(stream, places) for response in wire.feed(piece)]
    assert found == [expected for _, expected in sent if expected is not None]
    assert wire.held_bytes == 0
    assert wire.taken_bytes == len(stream)


@quick
@given(
    st.dictionaries(st.from_regex(r"\A[1-9](\.[1-9]){0,3}\Z"), st.none() | st.binary(max_size=300), max_size=4),
    st.lists(st.integers(0, 2000)),
)
def test_any_bytes_survive_a_literal(sections: dict[str, bytes | None], places: list[int]) -> None:
    """Literals with any bytes are parsed unchanged, on any split."""
    items = [
        b"BODY[%b] " % name.encode() + (b"NIL" if data is None else b"{%d}\r\n%b" % (len(data), data))
        for name, data in sections.items()
    ]
    stream = b"* 7 FETCH (" + b" ".join(items) + b")\r\na OK\r\n"
    found = responses(cut(stream, places))
    assert found == [Fetched(7, None, None, None, None, None, sections), Tagged("a", "OK", None, "")]


@quick
@given(st.binary(max_size=200).filter(lambda raw: b"\r" not in raw and b"\n" not in raw))
def test_any_bytes_survive_quoting(raw: bytes) -> None:
    """Quoted strings come out unescaped (RFC 9051 section 4.3)."""
    quoted = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    assert responses([b'* 7 FETCH (BODY[1] "' + quoted + b'")\r\n'])[0].sections == {"1": raw}  # type: ignore[union-attr]


@pytest.mark.parametrize("raw", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_input_is_a_protocol_error(raw: bytes) -> None:
    """Malformed input is refused, and the error shows nothing of it."""
    with pytest.raises(ProtocolError) as caught:
        parse(raw)
    assert caught.value.kind == "IMAP syntax"
    assert len(str(caught.value)) < 120


texts = st.none() | st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=12)


@quick
@given(
    st.lists(texts, min_size=4, max_size=4),
    st.lists(st.lists(st.tuples(texts, texts, texts, texts), max_size=3), min_size=6, max_size=6),
)
def test_an_envelope_is_the_same_in_any_encoding(
    fields: list[str | None], lists: list[list[tuple[str | None, ...]]]
) -> None:
    """Quoted strings or literals, the fast way or the thorough one: the same envelope."""

    def spelled(text: str | None, as_literal: bool) -> bytes:
        if text is None:
            return b"NIL"
        if as_literal:
            return b"{%d}\r\n%b" % (len(text), text.encode())
        return b'"%b"' % text.replace("\\", "\\\\").replace('"', '\\"').encode()

    def envelope(as_literals: bool) -> bytes:
        head, tail = ([spelled(each, as_literals) for each in half] for half in (fields[:2], fields[2:]))
        middle = [
            b"(%b)"
            % b"".join(b"(%b)" % b" ".join(spelled(each, as_literals) for each in address) for address in addresses)
            if addresses
            else b"NIL"
            for addresses in lists
        ]
        return b"* 1 FETCH (ENVELOPE (" + b" ".join([*head, *middle, *tail]) + b") UID 7)\r\n"

    raw = [None if each is None else each.encode() for each in fields]
    expected = [
        tuple(Address(*((each or "").encode() or None for each in one)) for one in addresses) for addresses in lists
    ]
    for as_literals in (False, True):
        (found,) = responses([envelope(as_literals)])
        assert isinstance(found, Fetched)
        assert found.envelope == (*raw[:2], *expected, *raw[2:])
        assert isinstance(found.envelope, Envelope)
        assert found.uid == 7


class CountingBuffer(bytearray):
    """A buffer that counts the bytes that are looked at or copied."""

    worked = 0

    def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]
        found = super().find(sub, start)
        self.worked += max(0, (len(self) if found < 0 else found + len(sub)) - start)
        return found

    def __getitem__(self, place):  # type: ignore[no-untyped-def]
        found = super().__getitem__(place)
        self.worked += len(found) if isinstance(place, slice) else 1
        return found

    def __iadd__(self, data: bytes) -> CountingBuffer:  # type: ignore[override]
        self.worked += len(data)
        return super().__iadd__(data)  # type: ignore[return-value]

    def __delitem__(self, place) -> None:  # type: ignore[no-untyped-def]
        super().__delitem__(place)
        self.worked += len(self)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_tag_ends_at_the_end_of_its_line(cut: int) -> None:
    """Bytes behind a literal's mark are not read as the end of a tag: that would depend on the network's cuts."""
    stream = b"{3}\r\n1 OK x"
    wire = ImapWire()
    assert [*wire.feed(stream[:cut]), *wire.feed(stream[cut:])] == []
    assert wire.held_bytes == len(stream)
    with pytest.raises(ProtocolError):
        list(wire.feed(b"\r\n"))


@pytest.mark.slow
@pytest.mark.parametrize("piece_bytes", [1, 7, 1000, 65536])
def test_work_is_linear_in_the_stream(piece_bytes: int) -> None:
    """Half a megabyte of literal, of line, or of many answers costs a few looks per byte, however small the pieces."""
    size = 1 << (19 if piece_bytes > 10 else 16)
    for stream in (
        b"* 1 FETCH (BODY[] {%d}\r\n%b)\r\n" % (size, b"\r\n{9}" * (size // 5) + b"." * (size % 5)),
        b'* 1 FETCH (BODY[] "%b")\r\n' % (b"x{5}\r" * (size // 8)).replace(b"\r", b"."),
        b"* 12345 EXISTS\r\n" * (size // 16),
        b"* 1 FETCH (BODY[1] {2}\r\nab BODY[2] {3}\r\nabc)\r\n" * (size // 48),
    ):
        wire = ImapWire()
        buffer = wire._held = CountingBuffer()
        # The first byte comes alone, so that there is always something to hold.
        edges = [0, *range(1, len(stream), piece_bytes), len(stream)]
        assert sum(1 for a, b in pairwise(edges) for _ in wire.feed(stream[a:b])) >= 1
        assert wire._held is buffer
        pieces = len(stream) // piece_bytes + 1
        assert 0 < buffer.worked < 4 * len(stream) + 4 * pieces


def test_memory_is_bounded() -> None:
    """Lines and literals beyond their limits are refused as soon as that shows, not when they have come."""
    wire = ImapWire(longest_line_bytes=100, largest_literal_bytes=1000)
    assert (
        len(list(wire.feed(b"* 1 FETCH (BODY[] {1000}\r\n" + b"x" * 1000 + b")\r\n" + b"* OK " + b"y" * 95 + b"\r\n")))
        == 2
    )
    with pytest.raises(ProtocolError, match="literal too large"):
        list(wire.feed(b"* 1 FETCH (BODY[1] {600}\r\n" + b"x" * 600 + b" BODY[2] {401}\r\n"))
    wire = ImapWire(longest_line_bytes=100)
    with pytest.raises(ProtocolError, match="line too long"):
        for _ in range(12):
            list(wire.feed(b"* OK 67890"))
    wire = ImapWire(longest_line_bytes=100)
    with pytest.raises(ProtocolError, match="line too long"):
        for _ in range(12):
            list(wire.feed(b"* 1 FETCH (BODY[1] {3}\r\nabc " + b"UID 1 " * 2 + b"BODY[2] {3}\r\nabc"))
    with pytest.raises(ProtocolError, match="literal too large"):
        list(ImapWire().feed(b"* 1 FETCH (BODY[] {99999999999999999999}\r\n"))


def test_responses_before_an_error_are_returned() -> None:
    found = []
    with pytest.raises(ProtocolError):
        for response in ImapWire().feed(b"* 1 EXISTS\r\na OK\r\nb PERHAPS\r\n"):
            found.append(response)
    assert found == [Exists(1), Tagged("a", "OK", None, "")]


@quick
@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_names_are_encoded_reversibly_in_modified_utf7(name: str) -> None:
    """A name comes back as it was, and goes over the wire in printable ASCII."""
    wire = encode_name(name)
    assert all(0x20 <= byte <= 0x7E for byte in wire)
    assert decode_name(wire.decode()) == name


def test_modified_utf7_agrees_with_the_rfcs_examples() -> None:
    """RFC 3501 section 5.1.3: its example; "&" stands as "&-"; a broken name is left alone."""
    assert encode_name("~peter/mail/台北/日本語") == b"~peter/mail/&U,BTFw-/&ZeVnLIqe-"
    assert encode_name("R&D") == b"R&-D"
    assert decode_name("R&D") == "R&D"
    assert decode_name("&AA-") == "&AA-"
    assert decode_name("&é-") == "&é-"


@quick
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30))
def test_an_encoded_argument_is_decoded_to_its_text(text: str) -> None:
    """Atom, quoted string or literal: a parser of strings gets the text back."""
    argument = astring(text)
    raw = b"{%d}\r\n%b" % (len(argument.data), argument.data) if isinstance(argument, Literal) else argument
    found = responses([b"* LIST () NIL " + raw.replace(b"&", b"&-") + b"\r\n"])
    if not isinstance(argument, Literal):
        assert found == [ListEntry(frozenset(), None, text)]
    else:
        assert argument.data == text.encode()
    assert mailbox(text)


@quick
@given(st.sets(st.integers(1, 5000), min_size=1, max_size=800))
def test_sets_name_each_number_once(numbers: set[int]) -> None:
    """Numbers compressed into ranges are expanded again, sorted; no set is longer than a command may be."""
    sets = list(number_sets(numbers))
    assert [number for each in sets for number in numbers_of(each.decode())] == sorted(numbers)
    assert all(len(each) <= LONGEST_SET_BYTES for each in sets)


def test_neighbours_become_ranges() -> None:
    """The sets that people would write; long ones are several."""
    assert list(number_sets([5, 3, 4, 9, 4])) == [b"3:5,9"]
    assert list(number_sets([])) == []
    assert len(list(number_sets(range(1, 9000, 2)))) > 2


def test_commands_wait_for_the_continuation_of_a_literal() -> None:
    """A command is one write where non-synchronizing literals are allowed, else one per continuation (RFC 7888)."""
    arguments = [b"x", Literal(b"ab"), b"()", Literal(b"12345")]
    assert encode(b"a", b"APPEND", arguments, 4096) == [b"a APPEND x {2+}\r\nab () {5+}\r\n12345\r\n"]
    assert encode(b"a", b"APPEND", arguments, -1) == [b"a APPEND x {2}\r\n", b"ab () {5}\r\n", b"12345\r\n"]
    assert encode(b"a", b"APPEND", arguments, 4) == [b"a APPEND x {2+}\r\nab () {5}\r\n", b"12345\r\n"]


@given(at_s=st.integers(0, 4_000_000_000))
def test_imaplib_reads_the_internal_date(at_s: int) -> None:
    written = date_time(at_s * 1_000_000)
    assert written[1:3].isdigit()  # Courier 6.0.5 refuses a space
    told = imaplib.Internaldate2tuple(b"INTERNALDATE " + written)
    assert told is not None
    assert time.mktime(told) == at_s
