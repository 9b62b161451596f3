"""Commands and their arguments as bytes (RFC 9051 sections 6 and 9)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from loadsim.protocols.imap.names import encode_name
from loadsim.protocols.imap.sets import NumberSet

LONGEST_SET_BYTES = 4000
"""The longest set of numbers: RFC 7162 section 4 asks clients to keep a command line below 8192 octets."""

_ATOM = re.compile(rb'[^\x00-\x20\x7f-\xff(){%*"\\\]]+')
_QUOTABLE = re.compile(rb"[^\x00\r\n\x80-\xff]*")


class Literal(NamedTuple):
    """An argument sent after its length (RFC 9051 section 4.3)."""

    data: bytes


Argument = bytes | Literal


def astring(text: str) -> Argument:
    """Return a string in its shortest form: atom, quoted string or literal (RFC 9051 section 9, astring)."""
    raw = text.encode()
    if _ATOM.fullmatch(raw) and raw.upper() != b"NIL":
        return raw
    if _QUOTABLE.fullmatch(raw):
        return b'"' + raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    return Literal(raw)


@lru_cache(maxsize=1024)
def mailbox(name: str) -> bytes:
    """Return a mailbox's name in modified UTF-7, which is ASCII and needs no literal."""
    argument = astring(encode_name(name).decode())
    assert isinstance(argument, bytes)
    return argument


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
"""Unlike `strftime`'s names, these do not depend on the locale."""


def date_time(at_us: int) -> bytes:
    """Return an instant, in microseconds since 1970, as a date-time (RFC 9051 section 9) in UTC, to the second.

    The day has two digits, as Courier 6.0.5 refuses the other valid form, a space and a digit.
    """
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return f'"{at.day:02}-{_MONTHS[at.month - 1]}-{at.year:04} {at:%H:%M:%S} +0000"'.encode("ascii")


def flag_list(flags: Iterable[str]) -> bytes:
    return b"(%b)" % b" ".join(flag.encode() for flag in flags)


def append_arguments(message: bytes, flags: Iterable[str], received_us: int | None = None) -> list[Argument]:
    """Return the arguments of APPEND after the mailbox (RFC 9051 section 6.3.12)."""
    date = [] if received_us is None else [date_time(received_us)]
    return [*([flag_list(flags)] if flags else []), *date, Literal(message)]


def number_sets(numbers: Iterable[int]) -> Iterator[bytes]:
    """Yield these numbers as sets, each short enough for one command; neighbours become ranges."""
    pieces: list[bytes] = []
    length = 0
    for first, last in NumberSet.of([(number, number) for number in numbers]).ranges:
        piece = b"%d" % first if first == last else b"%d:%d" % (first, last)
        if length + len(piece) > LONGEST_SET_BYTES:
            yield b",".join(pieces)
            pieces, length = [], 0
        pieces.append(piece)
        length += len(piece) + 1
    if pieces:
        yield b",".join(pieces)


def encode(tag: bytes, name: bytes, arguments: Iterable[Argument], free_literal_bytes: int) -> list[bytes]:
    """Return a command as pieces to write; all but the first must wait for a continuation.

    Literals of up to `free_literal_bytes` need no wait (RFC 7888: no bound for LITERAL+, 4096 for LITERAL-).
    """
    pieces: list[bytes] = []
    line = [tag, b" ", name]
    for argument in arguments:
        line.append(b" ")
        if isinstance(argument, bytes):
            line.append(argument)
            continue
        size = len(argument.data)
        if size <= free_literal_bytes:
            line += [b"{%d+}\r\n" % size, argument.data]
        else:
            line.append(b"{%d}\r\n" % size)
            pieces.append(b"".join(line))
            line = [argument.data]
    line.append(b"\r\n")
    pieces.append(b"".join(line))
    return pieces
