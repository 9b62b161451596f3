"""Whole responses from the server's stream of bytes, in pieces of any size (RFC 9051 sections 2.2.2 and 4.3).

No I/O. Time is linear in the number of bytes for pieces of any size: no byte is searched twice for a line end, a
literal is skipped by its length, and incomplete data is never copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import Response
from loadsim.protocols.lines import KEPT_BYTES

LONGEST_LINE_BYTES = 1 << 20
"""The most bytes of one response without its literals; RFC 9051 sets no limit. An ENVELOPE with 10,000 recipients has
about as many, and so has a SEARCH result with 150,000 messages. Parsing one takes 0.1 s.
"""

LARGEST_LITERAL_BYTES = 64 << 20
"""The most bytes in all literals of one response: an attachment of 46 MB in Base64."""

LINE_WEIGHT = 4
"""The weight of a byte outside literals: flags, addresses and parts take ten times their size, text only its size."""

RESPONSE_BYTES = 256
"""A response's weight on top of its bytes: a short one takes more memory than its size."""

_LITERAL_AT_END = re.compile(rb"\{(\d+)\+?\}\Z")
_LONGEST_MARK = 24
_HAS_NO_LITERAL = re.compile(rb"\+|\* (?:OK|NO|BAD|BYE|PREAUTH)\b|[^*+ \r\n]{1,20}+ (?:OK|NO|BAD)\b", re.IGNORECASE)
"""Responses without literals, whose text may end like one. Only their beginning is matched, as this runs at every
literal.
"""
_CLOSING_BRACE = ord("}")


@dataclass(slots=True, eq=False, repr=False)
class ImapWire:
    """Turns pieces of the stream into whole responses. After a `ProtocolError` it must not be used again."""

    longest_line_bytes: int = LONGEST_LINE_BYTES
    largest_literal_bytes: int = LARGEST_LITERAL_BYTES
    read: Callable[[bytes], Response | None] = parse
    response_bytes: int = RESPONSE_BYTES
    keep: Callable[[bytes], None] | None = None  # gets the beginning of each response
    taken_bytes: int = field(default=0, init=False)  # of the stream, to the end of the last complete response
    taken_literal_bytes: int = field(default=0, init=False)  # those of them in literals
    taken_responses: int = field(default=0, init=False)
    held_bytes: int = field(default=0, init=False)  # after the last response yielded
    malformed: bytes = field(default=b"", init=False)  # the response being parsed, or the one that did not parse
    _held: bytearray = field(default_factory=bytearray, init=False)  # the beginning of an incomplete response
    _searched: int = field(default=0, init=False)  # the offset in it before which no line ends
    _line: int = field(default=0, init=False)  # the offset of its current line
    _literal_bytes: int = field(default=0, init=False)  # of its literals before this line

    @property
    def weight(self) -> int:
        """The weight of all complete responses, an estimate of their memory."""
        line_bytes = self.taken_bytes - self.taken_literal_bytes
        return self.taken_literal_bytes + line_bytes * LINE_WEIGHT + self.taken_responses * self.response_bytes

    @property
    def unfinished(self) -> bytes:
        """The beginning of the incomplete response, up to a bare LF, which does not end a line (RFC 3501 2.2)."""
        at = self._held.find(b"\n")
        is_bare = at >= 0 and self._held[at - 1 : at] != b"\r"  # else the CRLF after a literal's length
        return bytes(self._held[: at + 1] if is_bare else self._held[:KEPT_BYTES])

    def feed(self, data: bytes) -> Iterable[Response]:
        """Take a piece of the stream. Return an iterable that parses each response only when the caller asks for it.

        Exhaust it before feeding again. Raises `ProtocolError` if a response does not parse or is too large.
        """
        # Most pieces are one line.
        if 0 <= data.find(b"\r\n") == len(data) - 2 <= self.longest_line_bytes and not (
            self._held or data.endswith(b"}\r\n")
        ):
            self.taken_bytes += len(data)
            self.taken_responses += 1
            whole = data[:-2]
            if self.keep is not None:
                self.keep(whole[:KEPT_BYTES])
            self.malformed = whole
            response = self.read(whole)
            self.malformed = b""
            return () if response is None else (response,)
        return self._responses(data)

    def _responses(self, data: bytes) -> Iterator[Response]:
        stream: bytes | bytearray = data
        if self._held:
            self._held += data
            stream = self._held
        begin = 0  # of the next response
        length = len(stream)
        while begin < length:
            end = stream.find(b"\r\n", self._searched)
            if end < 0 or stream[end - 1] == _CLOSING_BRACE or end - begin > self.longest_line_bytes:
                end = self._end(stream, begin, end)
                if end < 0:
                    break
            if stream is data:
                whole = data[begin:end]
            else:
                with memoryview(stream) as view:
                    whole = bytes(view[begin:end])
            self.taken_bytes += end + 2 - begin
            self.taken_responses += 1
            begin = self._searched = self._line = end + 2
            self.taken_literal_bytes += self._literal_bytes
            self._literal_bytes = 0
            self.held_bytes = length - begin
            if self.keep is not None:
                self.keep(whole[:KEPT_BYTES])
            self.malformed = whole
            response = self.read(whole)
            self.malformed = b""
            if response is not None:
                yield response
        if stream is data:
            self._held += data[begin:]
        elif begin:
            del self._held[:begin]
        self.held_bytes = length - begin
        self._searched -= begin
        self._line -= begin

    def _end(self, stream: bytes | bytearray, begin: int, at: int) -> int:
        """Return the offset of the CRLF that ends the response at `begin`; -1 if missing. `at` is the next CRLF."""
        while True:
            end = at if at >= 0 else len(stream)
            if end - begin - self._literal_bytes > self.longest_line_bytes:
                raise ProtocolError("IMAP line too long", f"more than {self.longest_line_bytes} bytes")
            if at < 0:
                # A CR at the end may be the first half of a CRLF; a literal may reach beyond the end.
                self._searched = max(self._searched, end - 1)
                return -1
            if stream[at - 1] != _CLOSING_BRACE:
                return at
            mark = _LITERAL_AT_END.search(stream, max(self._line, at - _LONGEST_MARK), at)
            if mark is None or _HAS_NO_LITERAL.match(stream, begin):
                return at
            literal_bytes = int(mark[1])
            if self._literal_bytes + literal_bytes > self.largest_literal_bytes:
                raise ProtocolError("IMAP literal too large", f"more than {self.largest_literal_bytes} bytes")
            self._literal_bytes += literal_bytes
            self._searched = self._line = at + 2 + literal_bytes
            at = stream.find(b"\r\n", self._searched)
