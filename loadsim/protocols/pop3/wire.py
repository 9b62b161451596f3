"""Whole responses from the server's stream of bytes, in pieces of any size (RFC 1939 section 3). No I/O."""

from __future__ import annotations

from typing import NamedTuple

from loadsim.errors import ProtocolError

LONGEST_LINE_BYTES = 8192
"""The longest first line. RFC 2449 section 4 allows 512 bytes; challenges may be longer."""

OK, ERROR, CHALLENGE = b"+OK", b"-ERR", b"+"
"""Status indicators (RFC 1939 section 3, RFC 5034 section 4)."""

_END = b"\r\n.\r\n"


class Pop3Response(NamedTuple):
    """A response: its indicator, the rest of its first line, and the further lines, without stuffed dots."""

    status: bytes
    text: bytes
    lines: bytes


class Pop3Wire:
    """Turns pieces of the stream into responses, one at a time. After a `ProtocolError` it must not be used again."""

    def __init__(self) -> None:
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

    def feed(self, data: bytes) -> Pop3Response | None:
        """Take a piece of the stream; return the response that it completes."""
        if self._most_bytes is None:
            raise ProtocolError("unasked response")
        self._held += data
        if self._first is None:
            end = self._held.find(b"\n", self._searched)
            if (len(self._held) if end < 0 else end) > LONGEST_LINE_BYTES:
                raise ProtocolError("no POP3", f"a line of more than {LONGEST_LINE_BYTES} bytes")
            if end < 0:
                self._searched = len(self._held)
                return None
            status, _, text = bytes(self._held[:end]).rstrip(b"\r").partition(b" ")
            if status.upper() not in (OK, ERROR, CHALLENGE):
                raise ProtocolError("no POP3", "expected +OK or -ERR")
            del self._held[: end + 1]
            self._first, self._searched = (status.upper(), text), 0
            if status.upper() != OK or not self._most_bytes:
                return self._whole(b"", 0)
        if self._held.startswith(_END[2:]):
            return self._whole(b"", len(_END) - 2)
        end = self._held.find(_END, self._searched)
        if (len(self._held) if end < 0 else end) > self._most_bytes:
            raise ProtocolError("no POP3", f"more than {self._most_bytes} bytes")
        if end < 0:
            self._searched = max(0, len(self._held) - len(_END) + 1)
            return None
        return self._whole(_unstuffed(bytes(self._held[: end + 2])), end + len(_END))

    def _whole(self, lines: bytes, size_bytes: int) -> Pop3Response:
        assert self._first is not None
        response = Pop3Response(*self._first, lines)
        del self._held[:size_bytes]
        self._first, self._most_bytes, self._searched = None, None, 0
        return response


def _unstuffed(lines: bytes) -> bytes:
    """Remove the first of each line's leading dots (RFC 1939 section 3)."""
    lines = lines.removeprefix(b".")
    return lines.replace(b"\r\n.", b"\r\n") if b"\r\n." in lines else lines
