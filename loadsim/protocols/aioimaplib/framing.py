"""The server's stream of bytes cut into whole responses for aioimaplib, within limits. No I/O.

The library by itself joins what arrived to what it holds with each packet, recurses over lines, and believes any size
of a literal. It gets one whole response at a time from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from loadsim.errors import ProtocolError

SMALL_BYTES = 256 * 1024
"""The most that may arrive from one command to the next ..."""

LARGE_BYTES = 1024 * 1024
"""... and behind these, whose answers are long: a batch of headers, 100,000 UIDs, a piece of a part."""

_LARGE = frozenset({"FETCH", "SEARCH", "LIST", "IDLE"})

MOST_RESPONSES = 10_000
"""From one command to the next. IDLE lasts for half an hour, and the library keeps nothing of it."""

MOST_RESPONSES_IDLE = 100_000

MOST_LITERALS = 100
"""In one response: the library recurses over them."""

_LITERAL = re.compile(rb"\{(\d+)\}\r\n\Z")  # what the library takes for one


class Framing:
    """Takes what arrived, gives the responses that it completed. After a `ProtocolError` it is of no more use."""

    __slots__ = ("_largest_bytes", "_line", "_literals", "_missing", "_most", "_response", "_responses", "_taken_bytes")

    def __init__(self) -> None:
        self._response = bytearray()  # the beginning of one that is not whole
        self._line = 0  # where its present line begins ...
        self._missing = 0  # ... unless so many bytes of a literal come first
        self._literals = 0
        self.begin("")

    def begin(self, command: str) -> None:
        """A command is sent: its answer may take as much as such an answer needs."""
        words = command.split(" ", 3)[1:3]
        name = words[-1] if words[:1] == ["UID"] else "".join(words[:1])
        self._largest_bytes = LARGE_BYTES if name in _LARGE else SMALL_BYTES
        self._most = MOST_RESPONSES_IDLE if name == "IDLE" else MOST_RESPONSES
        self._taken_bytes = self._responses = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take what arrived; yield the responses that it completed, with their literals and line ends.

        Exhaust it before feeding again. Raises `ProtocolError` for what is too much, or has a CR or LF in a line.
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

    def _ends(self) -> bool:
        """Whether the line that has just ended is the last of its response; if not, a literal follows."""
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
