"""Long responses of each kind, and long nonsense: steps, copies and memory stay in proportion to the bytes."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from .all_targets import TARGETS
from .oracle import judge

TARGET = replace(TARGETS["imap-wire"], base_steps=0, steps_per_byte=20)


def _repeated(before: bytes, piece: bytes, after: bytes = b"") -> Callable[[int], bytes]:
    """A stream of about this size, of one response with a part that is repeated."""
    return lambda size: before + piece * (size // len(piece)) + after + b"\r\n"


ENVELOPE = b"* 1 FETCH (ENVELOPE (NIL %b %b NIL NIL NIL NIL NIL NIL NIL))"
OF_MANY: dict[str, Callable[[int], bytes]] = {
    "literals": _repeated(b"* 1 FETCH (", b"BODY[1] {3}\r\nabc ", b"UID 1)"),
    "empty literals": _repeated(b"* 1 FETCH (X (", b"{0}\r\n ", b"x))"),
    "literals behind a long word": lambda size: b"a" * (size // 2) + b"{0}\r\n" * (size // 10) + b"\r\n",
    "literals behind many words": lambda size: b"a b " * (size // 8) + b"{0}\r\n" * (size // 10) + b"\r\n",
    "responses": _repeated(b"", b"* 12345 EXISTS\r\n", b"* 1 EXISTS"),
    "tagged responses": _repeated(b"", b"t1 OK [ALERT] done\r\n", b"t1 OK"),
    "unknown responses": _repeated(b"", b"* X\r\n", b"* X"),
    "lists in a row": _repeated(b"* 1 FETCH (X (", b"()", b"))"),
    "atoms": _repeated(b"* 1 FETCH (X (", b"a ", b"))"),
    "open list": _repeated(b"* 1 FETCH (X (", b"a (b) "),
    "quoted strings": _repeated(b"* 1 FETCH (X (", b'"a" ', b"))"),
    "open quoted string": _repeated(b"* 1 FETCH (X (", b'"a" ', b'"))'),
    "escapes": _repeated(b'* 1 FETCH (X "', b'\\"', b'")'),
    "items": _repeated(b"* 1 FETCH (", b"UID 1 ", b"UID 1)"),
    "sections": _repeated(b"* 1 FETCH (", b"BODY[1] NIL ", b"UID 1)"),
    "escaped subject": lambda size: ENVELOPE % (b'"' + b"\\\\" * (size // 2) + b'"', b"NIL") + b"\r\n",
    "addresses": lambda size: ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "a" "b")' * (size // 17) + b")") + b"\r\n",
    "escaped addresses": lambda size: (
        ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "\\"" "b")' * (size // 18) + b")") + b"\r\n"
    ),
    "open addresses": lambda size: ENVELOPE % (b"NIL", b"(" + b'(NIL NIL "a" "b")' * (size // 17) + b"(") + b"\r\n",
    "parts": lambda size: (
        b"* 1 FETCH (BODYSTRUCTURE (" + b'("a" "b" NIL NIL NIL "7bit" 1)' * (size // 30) + b' "mixed"))\r\n'
    ),
    "parameters": _repeated(b'* 1 FETCH (BODYSTRUCTURE ("a" "b" (', b'"a" "b" ', b') NIL NIL "7bit" 1))'),
    "disposition": _repeated(b'* 1 FETCH (BODYSTRUCTURE ("a" "b" NIL NIL NIL "7bit" 1 NIL "', b";a=b", b'"))'),
    "open disposition": lambda size: (
        b'* 1 FETCH (BODYSTRUCTURE ("a" "b" NIL NIL NIL "7bit" 1 NIL {%d}\r\n' % (size // 4 * 4)
        + b';a="' * (size // 4)
        + b"))\r\n"
    ),
    "found": _repeated(b"* SEARCH", b" 12345"),
    "found set": _repeated(b"* ESEARCH ALL 1", b",3:5"),
    "found sets": _repeated(b"* ESEARCH", b" ALL 1:999999"),
}
"""Responses with many parts: each is a step or more."""

OF_ONE: dict[str, Callable[[int], bytes]] = {
    "line": _repeated(b"* OK ", b"x"),
    "literal": lambda size: b"* 1 FETCH (BODY[1] {%d}\r\n%b)\r\n" % (size, b"\r\n{9}" * (size // 5)),
    "carriage returns": _repeated(b"* OK ", b"\r"),
    "braces": _repeated(b"* 1 FETCH (X ", b"{1", b")"),
    "closing braces": _repeated(b"* OK ", b"{1}"),
    "spaces": _repeated(b"* 1 FETCH (", b" ", b"x"),
    "spaces in a list": _repeated(b"* 1 FETCH (X (", b" ", b"]))"),
    "brackets": _repeated(b"* OK [A ", b"[A "),
    "codes": _repeated(b"* OK ", b"[A] "),
    "closing brackets": _repeated(b"* OK [A ", b"]"),
    "lists in lists": lambda size: b"* 1 FETCH (X " + b"(" * (size // 2) + b")" * (size // 2) + b")\r\n",
    "open escapes": _repeated(b'* 1 FETCH (X "', b"\\\\"),
    "open sections": _repeated(b"* 1 FETCH (", b"BODY[1", b"UID 1)"),
    "flags": _repeated(b"* 1 FETCH (FLAGS (", b"ab ", b"))"),
    "subject": lambda size: ENVELOPE % (b'"' + b"=?" * (size // 2) + b'"', b"NIL") + b"\r\n",
    "capabilities": _repeated(b"* CAPABILITY", b" X"),
    "folder": _repeated(b'* LIST () "/" "', b"&", b'"'),
    "status": _repeated(b"* STATUS x (", b"MESSAGES 1 ", b"UIDNEXT 1)"),
}
"""Responses that few expressions match: they have few steps, but no end if an expression tries each pair of bytes."""


@pytest.mark.parametrize("name", OF_MANY)
def test_long_responses_of_many_parts_are_bounded(name: str) -> None:
    assert judge(TARGET, OF_MANY[name](50_000)) is None


@pytest.mark.parametrize("name", OF_ONE)
def test_long_responses_of_one_part_are_bounded(name: str) -> None:
    assert judge(TARGET, OF_ONE[name](1_000_000)) is None
