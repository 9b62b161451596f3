"""Parsing takes time in proportion to what was sent: ten times the bytes, about ten times the processor's time.

A quadratic parser takes a hundred times as long; the tests refuse thirty times. It is the process's own time, the
least of some tries, so that a busy machine changes nothing.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.grammar import numbers_of
from loadsim.protocols.imap.names import decode_name
from loadsim.protocols.imap.reading import evidence_of, header_of, structure_of, text_of
from loadsim.protocols.imap.responses import Envelope, Fetched, Leaf, Multipart
from loadsim.protocols.imap.wire import Wire

pytestmark = pytest.mark.slow

SIZES = (10_000, 100_000, 1_000_000)
MOST_TIMES_AS_LONG = 30
NEGLIGIBLE_S = 0.002
"""Less than this is not compared: it is the clock's and the allocator's."""


def cpu_s(work: Callable[[], object], tries: int) -> float:
    """The least processor time of some tries."""
    took = []
    for _ in range(tries):
        since = time.process_time()
        work()
        took.append(time.process_time() - since)
    return min(took)


def check_linear(make: Callable[[int], Callable[[], object]], tries: int = 3) -> None:
    """The work for each size takes at most thirty times as long as for a tenth of it."""
    gc.disable()  # its time depends on all that other tests hold
    try:
        times = [max(NEGLIGIBLE_S, cpu_s(make(size), tries)) for size in SIZES]
    finally:
        gc.enable()
    for less, more in pairwise(times):
        assert more < MOST_TIMES_AS_LONG * less, times


def fed(stream: bytes, piece_bytes: int) -> Callable[[], None]:
    """Feed a stream in pieces to a new wire, until it ends or is refused."""
    pieces = [stream[at : at + piece_bytes] for at in range(0, len(stream), piece_bytes)]

    def work() -> None:
        wire = Wire()
        try:
            for piece in pieces:
                for _ in wire.feed(piece):
                    pass
        except ProtocolError:
            pass

    return work


def repeated(before: bytes, piece: bytes, after: bytes = b"") -> Callable[[int], bytes]:
    """A stream of about this size, of one response with a part that is repeated."""
    return lambda size: before + piece * (size // len(piece)) + after + b"\r\n"


ENVELOPE = b"* 1 FETCH (ENVELOPE (NIL %b %b NIL NIL NIL NIL NIL NIL NIL))"
STREAMS: dict[str, Callable[[int], bytes]] = {
    "line": repeated(b"* OK ", b"x"),
    "literal": lambda size: b"* 1 FETCH (BODY[1] {%d}\r\n%b)\r\n" % (size, b"\r\n{9}" * (size // 5)),
    "literals": repeated(b"* 1 FETCH (", b"BODY[1] {3}\r\nabc ", b"UID 1)"),
    "empty literals": repeated(b"* 1 FETCH (X (", b"{0}\r\n ", b"x))"),
    "literals behind a long word": lambda size: b"a" * (size // 2) + b"{0}\r\n" * (size // 10) + b"\r\n",
    "literals behind many words": lambda size: b"a b " * (size // 8) + b"{0}\r\n" * (size // 10) + b"\r\n",
    "responses": repeated(b"", b"* 12345 EXISTS\r\n", b"* 1 EXISTS"),
    "tagged responses": repeated(b"", b"t1 OK [ALERT] done\r\n", b"t1 OK"),
    "unknown responses": repeated(b"", b"* X\r\n", b"* X"),
    "carriage returns": repeated(b"* OK ", b"\r"),
    "braces": repeated(b"* 1 FETCH (X ", b"{1", b")"),
    "closing braces": repeated(b"* OK ", b"{1}"),
    "spaces": repeated(b"* 1 FETCH (", b" ", b"x"),
    "spaces in a list": repeated(b"* 1 FETCH (X (", b" ", b"]))"),
    "brackets": repeated(b"* OK [A ", b"[A "),
    "codes": repeated(b"* OK ", b"[A] "),
    "closing brackets": repeated(b"* OK [A ", b"]"),
    "lists in a row": repeated(b"* 1 FETCH (X (", b"()", b"))"),
    "lists in lists": lambda size: b"* 1 FETCH (X " + b"(" * (size // 2) + b")" * (size // 2) + b")\r\n",
    "atoms": repeated(b"* 1 FETCH (X (", b"a ", b"))"),
    "open list": repeated(b"* 1 FETCH (X (", b"a (b) "),
    "quoted strings": repeated(b"* 1 FETCH (X (", b'"a" ', b"))"),
    "open quoted string": repeated(b"* 1 FETCH (X (", b'"a" ', b'"))'),
    "escapes": repeated(b'* 1 FETCH (X "', b'\\"', b'")'),
    "open escapes": repeated(b'* 1 FETCH (X "', b"\\\\"),
    "items": repeated(b"* 1 FETCH (", b"UID 1 ", b"UID 1)"),
    "sections": repeated(b"* 1 FETCH (", b"BODY[1] NIL ", b"UID 1)"),
    "open sections": repeated(b"* 1 FETCH (", b"BODY[1", b"UID 1)"),
    "flags": repeated(b"* 1 FETCH (FLAGS (", b"ab ", b"))"),
    "subject": lambda size: ENVELOPE % (b'"' + b"=?" * (size // 2) + b'"', b"NIL") + b"\r\n",
    "escaped subject": lambda size: ENVELOPE % (b'"' + b"\\\\" * (size // 2) + b'"', b"NIL") + b"\r\n",
    "addresses": lambda size: ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "a" "b")' * (size // 17) + b")") + b"\r\n",
    "escaped addresses": lambda size: (
        ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "\\"" "b")' * (size // 18) + b")") + b"\r\n"
    ),
    "open addresses": lambda size: ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "a" "b")' * (size // 17) + b"(") + b"\r\n",
    "parts": lambda size: (
        b"* 1 FETCH (BODYSTRUCTURE (" + b'("a" "b" NIL NIL NIL "7bit" 1)' * (size // 30) + b' "mixed"))\r\n'
    ),
    "parameters": repeated(b'* 1 FETCH (BODYSTRUCTURE ("a" "b" (', b'"a" "b" ', b') NIL NIL "7bit" 1))'),
    "disposition": repeated(b'* 1 FETCH (BODYSTRUCTURE ("a" "b" NIL NIL NIL "7bit" 1 NIL "', b";a=b", b'"))'),
    "open disposition": lambda size: (
        b'* 1 FETCH (BODYSTRUCTURE ("a" "b" NIL NIL NIL "7bit" 1 NIL {%d}\r\n' % (size // 4 * 4)
        + b';a="' * (size // 4)
        + b"))\r\n"
    ),
    "found": repeated(b"* SEARCH", b" 12345"),
    "found set": repeated(b"* ESEARCH ALL 1", b",3:5"),
    "found sets": repeated(b"* ESEARCH", b" ALL 1:999999"),
    "capabilities": repeated(b"* CAPABILITY", b" X"),
    "folder": repeated(b'* LIST () "/" "', b"&", b'"'),
    "status": repeated(b"* STATUS x (", b"MESSAGES 1 ", b"UIDNEXT 1)"),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("piece_bytes", [1000, 65536])
def test_a_stream_is_read_in_linear_time(name: str, piece_bytes: int) -> None:
    """Each kind of response and of nonsense, as the network cuts it."""
    check_linear(lambda size: fed(STREAMS[name](size), piece_bytes))


@pytest.mark.parametrize("name", ["line", "literal", "literals", "literals behind a long word", "responses"])
def test_a_stream_of_single_bytes_is_read_in_linear_time(name: str) -> None:
    """A server that sends byte by byte costs no more than a step for each."""
    check_linear(lambda size: fed(STREAMS[name](size), 1), tries=1)


def envelope(subject: bytes) -> Fetched:
    """A message with this subject."""
    return Fetched(1, 1, None, 1, Envelope(None, subject, (), (), (), (), (), (), None, subject), None, {})


def part(parameters: dict[str, bytes]) -> Leaf:
    """An attachment with these parameters."""
    return Leaf("image/png", parameters, "base64", 1, "attachment", parameters)


READERS: dict[str, Callable[[int], Callable[[], object]]] = {
    "subject": lambda size: lambda: text_of(b"=?" * (size // 2)),
    "words": lambda size: lambda: text_of(b"=?utf-8?q?a?= " * (size // 14)),
    "open words": lambda size: lambda: text_of(b"=?utf-8?q?" * (size // 10)),
    "header": lambda size: lambda: header_of(envelope(b"=?utf-8?b?w6Q=?=" * (size // 16)), 1, "loadsim.test"),
    "evidence": lambda size: (
        lambda: evidence_of(
            Fetched(1, 1, None, None, None, None, {"HEADER.FIELDS (X-LOADSIM)": b"X-LoadSim: " + b"a=b;" * (size // 4)})
        )
    ),
    "parts": lambda size: lambda: structure_of(Multipart("mixed", (part({"filename": b"x"}),) * (size // 30))),
    "file name": lambda size: lambda: structure_of(part({"filename*": b"utf-8''" + b"%41" * (size // 3)})),
    "file name in pieces": lambda size: (
        lambda: structure_of(part({f"filename*{number}*": b"''%41" for number in range(size // 20)}))
    ),
    "empty pieces": lambda size: lambda: structure_of(part({f"name*{number}": b"" for number in range(size // 10)})),
    "folder": lambda size: lambda: decode_name("&" * size),
    "shifted folder": lambda size: lambda: decode_name("&AOQ-" * (size // 5)),
    "set": lambda size: lambda: numbers_of("1," * min(size // 2, 90_000) + "1"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_was_sent_is_decoded_in_linear_time(name: str) -> None:
    """Each function that makes values of a response."""
    check_linear(READERS[name])
