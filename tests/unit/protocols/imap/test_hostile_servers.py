"""Hostile servers and e-mails against the IMAP driver: documented failures, in bounded time and memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.grammar import LONGEST_WORDS_BYTES, MOST_MESSAGES, MOST_TOKENS, numbers_of, parse
from loadsim.protocols.imap.reading import LONGEST_TEXT_BYTES, structure_of, tag_of, text_of
from loadsim.protocols.imap.responses import Exists, Fetched, Leaf, MailboxStatus, Multipart, Search
from loadsim.protocols.imap.sets import MOST_LISTED, NumberSet
from loadsim.protocols.imap.values import DEEPEST, Value, body_of
from loadsim.protocols.imap.wire import ImapWire


class Steps:
    """Counts the calls of functions, those in C included: a measure of work that no busy machine changes."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> Steps:
        sys.setprofile(self._step)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _step(self, _frame: object, event: str, _about: object) -> None:
        self.taken += event in ("call", "c_call")


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(ProtocolError):
        work()


def test_a_server_text_is_one_short_line() -> None:
    """Encoded words of any character set stay encoded."""
    assert text_of(b"=?idna?q?x?=\r\n \xff\0 y") == "=?idna?q?x?= \ufffd y"
    assert text_of(b"x" * 60_000) == "x" * LONGEST_TEXT_BYTES


def test_only_a_short_section_is_searched_for_a_tag() -> None:
    """Our header has fewer than 200 characters: what is much longer is not ours, and not taken apart."""
    section = b"X-LoadSim: run=r; from=1; id=n1.1; kind=k; sent=5; body=b"
    for data, ours in ((section, True), (section + b";" * 5_000_000, False)):
        fetched = Fetched(1, 1, None, None, None, None, {"HEADER.FIELDS (X-LOADSIM)": data})
        with Steps() as steps:
            assert (tag_of(fetched) is not None) is ours
        assert steps.taken < 100


def nested(depth: int) -> Value:
    value: Value = [b"text", b"plain", None, None, None, b"7bit", b"1", b"1"]
    for _ in range(depth):
        value = [value, b"mixed"]
    return value


def test_deep_structures_raise_no_recursion_error() -> None:
    """Neither when they are read nor when they are gone through; what Dovecot makes (100 levels) is read."""
    leaf = b'("text" "plain" NIL NIL NIL "7bit" 1 1)'
    for depth in (DEEPEST * 2, 10_000, 100_000):
        with pytest.raises(ProtocolError):
            parse(b"* 1 FETCH (BODYSTRUCTURE " + b"(" * depth + leaf + b' "mixed")' * depth + b")")
        with pytest.raises(ProtocolError):
            body_of(nested(depth), 0)
        body: Leaf | Multipart = Leaf("text/plain", {}, "7bit", 1, None, {})
        for _ in range(min(depth, 10_000)):
            body = Multipart("mixed", (body,))
        assert structure_of(body).text is not None
        for part in (b"", b"x"):  # an atom on each level, or none
            with pytest.raises(ProtocolError):
                parse(b"* 1 FETCH (X " + (b"(" + part) * depth + b")" * depth + b")")
    found = parse(b"* 1 FETCH (BODYSTRUCTURE " + b"(" * 100 + leaf + b' "mixed")' * 100 + b")")
    assert isinstance(found, Fetched)
    assert found.structure is not None
    text = structure_of(found.structure).text
    assert text is not None
    assert text.name == ".".join(["1"] * 100)


@pytest.mark.parametrize(
    "raw",
    [
        b"* %d EXISTS" % (MOST_MESSAGES + 1),
        b"* 0 EXPUNGE",
        b"* 0 FETCH (UID 1)",
        b"* 1 FETCH (UID 0)",
        b"* 1 FETCH (UID 4294967296)",
        b"* 1 FETCH (RFC822.SIZE 9223372036854775808)",
        b"* 0 FETCH (BODY[1] {1}\r\nx)",
        b"* 1 FETCH (BODY[1] ~{999999999999999}\r\nx)",
        b'* 1 FETCH (BODYSTRUCTURE ("a" "b" NIL NIL NIL "7bit" 9223372036854775808))',
        b"* 1 FETCH (BODYSTRUCTURE NIL)",
        b"* 1 FETCH (FLAGS (" + b"ab " * LONGEST_WORDS_BYTES + b"))",
        b"* 1 FETCH (" + b"".join(b"BODY[%d] NIL " % number for number in range(2000)) + b")",
        b"* 1 FETCH (X (" + b"()" * MOST_TOKENS + b"))",
        b"* SEARCH 0",
        b"* ESEARCH ALL 1:*",
        b"* ESEARCH ALL " + b"1," * 400_000 + b"1",
        b"* STATUS INBOX (MESSAGES 9223372036854775808)",
        b'* LIST () "/" "' + b"x" * LONGEST_WORDS_BYTES + b'"',
        b"* CAPABILITY" + b" X1" * LONGEST_WORDS_BYTES,
    ],
    ids=lambda raw: raw[:40].decode(),
)
def test_invalid_responses_are_protocol_errors(raw: bytes) -> None:
    """Numbers out of bounds, NIL where a value must stand, words without end: the protocol error and no more."""
    refused(lambda: parse(raw))


EVERYTHING = NumberSet(((1, 4_294_967_295),))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"* 10000000 EXISTS", Exists(10_000_000)),
        (
            b"* 1 FETCH (UID 4294967295 RFC822.SIZE 9223372036854775807)",
            Fetched(1, 4_294_967_295, None, 9_223_372_036_854_775_807, None, None, {}),
        ),
        (b"* ESEARCH ALL 1:4294967295", Search(EVERYTHING)),
        (b"* ESEARCH UID ALL 4294967295", Search(NumberSet(((4_294_967_295, 4_294_967_295),)))),
        (b"* ESEARCH" + b" ALL 1:999999" * 60, Search(NumberSet(((1, 999_999),)))),
        (b"* VANISHED (EARLIER) 1:4294967295", None),
        (
            b"* STATUS INBOX (MESSAGES 4294967295 HIGHESTMODSEQ 9223372036854775807)",
            MailboxStatus("INBOX", {"MESSAGES": 4_294_967_295, "HIGHESTMODSEQ": 9_223_372_036_854_775_807}),
        ),
    ],
    ids=lambda value: value[:40].decode() if isinstance(value, bytes) else "",
)
def test_a_long_set_in_few_bytes_takes_little_memory(raw: bytes, found: object) -> None:
    """The largest numbers of the protocol are read; a range is held as its ends, however long it is."""
    assert parse(raw) == found


@pytest.mark.parametrize("mark", [b"{4294967295}", b"~{4294967295}", b"{999999999999999}", b"{67108865}"])
def test_a_too_large_literal_is_refused_when_announced(mark: bytes) -> None:
    """Without waiting for it; of one within the limit, as many bytes are held as have arrived."""
    refused(lambda: list(ImapWire().feed(b"* 1 FETCH (BODY[1] " + mark + b"\r\n")))
    wire = ImapWire()
    assert list(wire.feed(b"* 1 FETCH (BODY[1] {67108864}\r\nabc")) == []
    assert wire.held_bytes == len(b"* 1 FETCH (BODY[1] {67108864}\r\nabc")


def test_an_empty_literal_is_a_text() -> None:
    for mark in (b"{0}", b"{0+}", b"~{0}"):
        (found,) = ImapWire().feed(b"* 1 FETCH (BODY[1] " + mark + b"\r\n)\r\n")
        assert isinstance(found, Fetched)
        assert found.sections == {"1": b""}


pairs = st.tuples(st.integers(1, 60), st.integers(1, 60))


@settings(deadline=None, max_examples=50)
@given(st.lists(pairs, min_size=1, max_size=12))
def test_a_set_of_ranges_is_the_set_of_its_numbers(ranges: Sequence[tuple[int, int]]) -> None:
    """It has the same members, size and order as the numbers written out."""
    numbers = {number for pair in ranges for number in range(min(pair), max(pair) + 1)}
    found = numbers_of(",".join(f"{first}:{last}" for first, last in ranges))
    assert list(found) == sorted(numbers)
    assert found.size == len(numbers)
    assert [number in found for number in range(70)] == [number in numbers for number in range(70)]
    assert found == NumberSet.union(NumberSet.of([pair]) for pair in ranges)
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(found.ranges))


def test_a_large_set_is_not_enumerated() -> None:
    """Its size and members cost nothing; to go through it is refused."""
    everything = numbers_of("1:4294967295")
    assert everything.size == 4_294_967_295
    assert 4_294_967_295 in everything
    assert 0 not in everything
    refused(lambda: list(everything))
    assert len(list(numbers_of(f"1:{MOST_LISTED}"))) == MOST_LISTED
