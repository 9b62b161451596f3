"""The server's stream of bytes cut into whole responses for aioimaplib, within limits. No I/O.

By itself the library copies its buffer at each packet, recurses over lines, and accepts any size of a literal. So this
module passes it one whole response at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadsim.errors import ProtocolError

SMALL_BYTES = 256 * 1024
"""The most bytes from one command to the next, except behind the commands in `_LARGE`."""

LARGE_BYTES = 1024 * 1024
"""The most bytes behind a command in `_LARGE`: a batch of headers, 100,000 UIDs, or a piece of a part."""

_LARGE = frozenset({"FETCH", "SEARCH", "LIST", "IDLE"})

MOST_RESPONSES = 10_000
"""The most responses from one command to the next, except behind IDLE."""

MOST_RESPONSES_IDLE = 100_000
"""The most responses behind IDLE, which lasts for half an hour; the library keeps none of them."""

MOST_LITERALS = 100
"""The most literals in one response: the library recurses over them."""

_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")  # the library knows no other form


class Framing:
    """Turns pieces of the stream into whole responses. After a `ProtocolError` it must not be used again."""

    __slots__ = ("_largest_bytes", "_line", "_literals", "_missing", "_most", "_response", "_responses", "_taken_bytes")

    def __init__(self) -> None:
        self._response = bytearray()  # the beginning of an incomplete response
        self._line = 0  # where its present line begins, behind any literal
        self._missing = 0  # bytes of the literal that are still to come
        self._literals = 0
        self.begin("")

    def begin(self, command: str) -> None:
        """Set the limits for the answer to a command that is sent now."""
        words = command.split(" ", 3)[1:3]
        name = words[-1] if words[:1] == ["UID"] else "".join(words[:1])
        self._largest_bytes = LARGE_BYTES if name in _LARGE else SMALL_BYTES
        self._most = MOST_RESPONSES_IDLE if name == "IDLE" else MOST_RESPONSES
        self._taken_bytes = self._responses = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take a piece of the stream; yield the responses that it completes, with their literals and line ends.

        Exhaust it before feeding again. Raises `ProtocolError` above a limit, or for a CR or LF within a line.
        """
        self._taken_bytes += len(data)
        if self._taken_bytes > self._largest_bytes:
            raise ProtocolError("IMAP answer too long", f"more than {self._largest_bytes} bytes")
        at = 0
        while at < len(data):
            if self._missing:
                piece = data[at : at + self._missing]
                self._response += piece
                self._missing -= len(piece)
                self._line = len(self._response)
                at += len(piece)
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._response += data[at:end]
            at = end
            if data[end - 1] == _LF and self._ends():
                yield self._whole()

    @property
    def held_bytes(self) -> int:
        """The bytes of an incomplete response."""
        return len(self._response)

    def _ends(self) -> bool:
        """Return whether the line that has just ended is the last of its response. Else a literal follows."""
        line = bytes(self._response[self._line :])
        if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise ProtocolError("IMAP line", "CR or LF within it")
        mark = _LITERAL.search(line)
        if mark is None:
            return True
        self._literals += 1
        if self._literals > MOST_LITERALS:
            raise ProtocolError("IMAP literals", f"more than {MOST_LITERALS} in one response")
        if len(mark[1]) > len(str(LARGE_BYTES)) or int(mark[1]) > self._largest_bytes:
            raise ProtocolError("IMAP literal too large", f"more than {self._largest_bytes} bytes")
        self._missing = int(mark[1])
        self._line = len(self._response)
        return False

    def _whole(self) -> bytes:
        self._responses += 1
        if self._responses > self._most:
            raise ProtocolError("IMAP answer too long", f"more than {self._most} responses")
        response = bytes(self._response)
        self._response.clear()
        self._line = self._literals = 0
        return response


_LF = ord("\n")
