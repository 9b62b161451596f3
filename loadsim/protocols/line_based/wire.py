"""Whole responses from the server's stream of bytes, in pieces of any size (RFC 1939, RFC 3977, section 3). No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from loadsim.errors import ProtocolError

LONGEST_LINE_BYTES = 8192
"""The longest first line. RFC 2449 section 4 and RFC 3977 section 3.1 allow 512 bytes; challenges may be longer."""

OK, ERROR, CHALLENGE = b"+OK", b"-ERR", b"+"
"""Status indicators: POP3's (RFC 1939 section 3, RFC 5034 section 4), into which other protocols' are translated."""

_END = b"\r\n.\r\n"


class LineResponse(NamedTuple):
    """A response: its indicator, the text of its first line, and the further lines, without stuffed dots."""

    status: bytes
    text: bytes
    lines: bytes


@dataclass(frozen=True, slots=True)
class LineDialect:
    """A protocol of lines: its name, and the meaning of a response's first line.

    `status` returns the indicator and the text; None if the line is not the protocol's. `kind` returns the kind of
    failure of a command that was refused with this text. A text that begins with `farewell` ends the connection.
    """

    name: str
    status: Callable[[bytes], tuple[bytes, bytes] | None]
    kind: Callable[[str, str], str]
    farewell: str | None = None


class LineWire:
    """Turns pieces of the stream into responses, one at a time. After a `ProtocolError` it must not be used again."""

    def __init__(self, dialect: LineDialect) -> None:
        self._status, self._not_ours = dialect.status, f"no {dialect.name}"
        self._held = bytearray()
        self._most_bytes: int | None = None  # of further lines; 0: there are none; None: no response is due
        self._first: tuple[bytes, bytes] | None = None  # a first line that precedes others
        self._searched = 0

    @property
    def surplus_bytes(self) -> int:
        """The bytes that follow the last response, although no other is due."""
        return len(self._held) if self._most_bytes is None else 0

    def expect(self, most_bytes: int) -> None:
        """Begin a response with at most so many bytes behind its first line if that is +OK; 0: it has no others."""
        self._most_bytes = most_bytes

    def feed(self, data: bytes) -> LineResponse | None:
        """Take a piece of the stream; return the response that it completes."""
        if self._most_bytes is None:
            raise ProtocolError("unasked response")
        self._held += data
        if self._first is None:
            end = self._held.find(b"\n", self._searched)
            if (len(self._held) if end < 0 else end) > LONGEST_LINE_BYTES:
                raise ProtocolError(self._not_ours, f"a line of more than {LONGEST_LINE_BYTES} bytes")
            if end < 0:
                self._searched = len(self._held)
                return None
            self._first = self._status(bytes(self._held[:end]).rstrip(b"\r"))
            if self._first is None:
                raise ProtocolError(self._not_ours, "expected the status of a response")
            del self._held[: end + 1]
            self._searched = 0
            if self._first[0] != OK or not self._most_bytes:
                return self._whole(b"", 0)
        if self._held.startswith(_END[2:]):
            return self._whole(b"", len(_END) - 2)
        end = self._held.find(_END, self._searched)
        if (len(self._held) if end < 0 else end) > self._most_bytes:
            raise ProtocolError(self._not_ours, f"more than {self._most_bytes} bytes")
        if end < 0:
            self._searched = max(0, len(self._held) - len(_END) + 1)
            return None
        return self._whole(_unstuffed(bytes(self._held[: end + 2])), end + len(_END))

    def _whole(self, lines: bytes, size_bytes: int) -> LineResponse:
        assert self._first is not None
        response = LineResponse(*self._first, lines)
        del self._held[:size_bytes]
        self._first, self._most_bytes, self._searched = None, None, 0
        return response


def _unstuffed(lines: bytes) -> bytes:
    """Remove the first of each line's leading dots (RFC 1939 section 3)."""
    lines = lines.removeprefix(b".")
    return lines.replace(b"\r\n.", b"\r\n") if b"\r\n." in lines else lines
