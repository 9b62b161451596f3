"""The server's stream of bytes into whole responses, however the network cuts it (RFC 9051 sections 2.2.2 and 4.3).

No I/O. The time is linear in the bytes, whatever their pieces: what was searched for a line's end is not searched
again, a literal is skipped by its length, and what waits for its end is never copied. A large literal is gathered
beside the response it belongs to, so that its end costs no more than its other pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import Cut, Response

LONGEST_LINE_BYTES = 1 << 20
"""The most bytes of one response without its literals; RFC 9051 sets no limit. An ENVELOPE of 10,000 recipients is as
long, and so is a SEARCH of 150,000 messages. Parsing it takes 0.1 s."""

LARGEST_LITERAL_BYTES = 64 << 20
"""The most bytes in all literals of one response: an attachment of 46 MB in Base64."""

LARGE_BYTES = 1 << 20
"""From this size on, a literal that does not arrive at once is gathered by itself."""

_LITERAL_AT_END = re.compile(rb"\{(\d+)\+?\}\Z")
_LONGEST_MARK = 24
_HAS_NO_LITERAL = re.compile(rb"\+|\* (?:OK|NO|BAD|BYE|PREAUTH)\b|[^*+ \r\n]{1,20}+ (?:OK|NO|BAD)\b", re.IGNORECASE)
"""Of a tagged answer only the beginning is looked at: this is tried at the end of each line before a literal."""
_CLOSING_BRACE = ord("}")


class _Beside:
    """The large literals of the response that is arriving."""

    __slots__ = ("arriving", "at", "missing", "total_bytes", "whole")

    def __init__(self) -> None:
        self.whole: dict[int, bytearray] = {}  # by where they would begin in the response
        self.arriving = bytearray()  # the one that is not whole ...
        self.at = 0  # ... where it would begin
        self.missing = 0  # ... and how many bytes it lacks
        self.total_bytes = 0

    def begin(self, at: int, size_bytes: int, arrived: bytes | bytearray) -> None:
        """A literal has begun, of which this has arrived."""
        self.arriving, self.at, self.missing = bytearray(arrived), at, size_bytes - len(arrived)
        self.total_bytes += size_bytes

    def gather(self, data: bytes) -> bytes:
        """Take what belongs to the literal; the rest."""
        with memoryview(data) as view:
            self.arriving += view[: self.missing]
        rest = data[self.missing :]
        self.missing -= len(data) - len(rest)
        if not self.missing:
            self.whole[self.at], self.arriving = self.arriving, bytearray()
        return rest


class Wire:
    """Takes what arrived, gives the responses that it completed. After a `ProtocolError` it is of no more use."""

    __slots__ = (
        "_beside",
        "_held",
        "_largest_literal_bytes",
        "_line",
        "_literal_bytes",
        "_longest_line_bytes",
        "_searched",
        "taken_bytes",
        "taken_literal_bytes",
    )

    def __init__(
        self, longest_line_bytes: int = LONGEST_LINE_BYTES, largest_literal_bytes: int = LARGEST_LITERAL_BYTES
    ) -> None:
        self.taken_bytes = 0  # of the stream, up to the end of the last response that was given out ...
        self.taken_literal_bytes = 0  # ... and those of them in literals
        self._longest_line_bytes = longest_line_bytes
        self._largest_literal_bytes = largest_literal_bytes
        self._held = bytearray()  # the beginning of a response that is not complete
        self._searched = 0  # no line ends before this place in it ...
        self._line = 0  # ... where its present line begins ...
        self._literal_bytes = 0  # ... after literals of this many bytes
        self._beside: _Beside | None = None  # the large ones among them

    @property
    def held_bytes(self) -> int:
        """How much has arrived that is no whole response yet."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterable[Response]:
        """Take what arrived; the responses that it completed, each before anybody looks at what follows it.

        Exhaust it before feeding again. Raises `ProtocolError` when a response does not parse or is too large.
        """
        # What arrives is mostly one line.
        if 0 <= data.find(b"\r\n") == len(data) - 2 <= self._longest_line_bytes and not (
            self._held or data.endswith(b"}\r\n")
        ):
            self.taken_bytes += len(data)
            response = parse(data[:-2])
            return () if response is None else (response,)
        return self._responses(data)

    def _responses(self, data: bytes) -> Iterator[Response]:
        if self._beside is not None and self._beside.missing:
            data = self._beside.gather(data)
            if self._beside.missing:
                return
        stream: bytes | bytearray = data
        if self._held:
            self._held += data
            stream = self._held
        begin = 0  # of the response that is looked for
        length = len(stream)
        while begin < length:
            end = stream.find(b"\r\n", self._searched)
            if end < 0 or stream[end - 1] == _CLOSING_BRACE or end - begin > self._longest_line_bytes:
                end = self._end(stream, begin, end)
                if end < 0:
                    break
            if stream is data:
                whole = data[begin:end]
            else:
                with memoryview(stream) as view:
                    whole = bytes(view[begin:end])
            self.taken_bytes += end + 2 - begin
            if self._beside is not None:
                self.taken_bytes += self._beside.total_bytes
                self.taken_literal_bytes += self._beside.total_bytes
                whole = Cut(whole)
                whole.beside, self._beside = self._beside.whole, None
            begin = self._searched = self._line = end + 2
            self.taken_literal_bytes += self._literal_bytes
            self._literal_bytes = 0
            response = parse(whole)
            if response is not None:
                yield response
        if self._beside is not None and self._beside.missing:
            length = begin + self._beside.at  # what follows has been set aside
        if stream is data:
            self._held += data[begin:length]
        else:
            if length < len(stream):
                del self._held[length:]
            if begin:
                del self._held[:begin]
        self._searched -= begin
        self._line -= begin

    def _end(self, stream: bytes | bytearray, begin: int, at: int) -> int:
        """Where the CRLF stands that ends the response at `begin`, `at` being the next; -1 when it has not arrived."""
        while True:
            end = at if at >= 0 else len(stream)
            if end - begin - self._literal_bytes > self._longest_line_bytes:
                raise ProtocolError("IMAP line too long", f"more than {self._longest_line_bytes} bytes")
            if at < 0:
                # A CR at the end may be the first half of what is looked for; a literal may reach beyond the end.
                self._searched = max(self._searched, end - 1)
                return -1
            if stream[at - 1] != _CLOSING_BRACE:
                return at
            mark = _LITERAL_AT_END.search(stream, max(self._line, at - _LONGEST_MARK), at)
            if mark is None or _HAS_NO_LITERAL.match(stream, begin):
                return at
            literal_bytes = int(mark[1])
            beside_bytes = 0 if self._beside is None else self._beside.total_bytes
            if self._literal_bytes + beside_bytes + literal_bytes > self._largest_literal_bytes:
                raise ProtocolError("IMAP literal too large", f"more than {self._largest_literal_bytes} bytes")
            self._searched = self._line = at + 2
            if literal_bytes >= LARGE_BYTES and at + 2 + literal_bytes > len(stream):
                self._beside = self._beside or _Beside()
                self._beside.begin(at + 2 - begin, literal_bytes, stream[at + 2 :])
                return -1
            self._literal_bytes += literal_bytes
            self._searched = self._line = at + 2 + literal_bytes
            at = stream.find(b"\r\n", self._searched)
