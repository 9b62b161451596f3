"""Whole replies from the server's stream of bytes, in pieces of any size (RFC 5321 section 4.2). No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from loadsim.errors import ProtocolError

LONGEST_LINE_BYTES = 4096
"""The longest line of a reply. RFC 5321 section 4.5.3.1.5 allows 512 bytes; some servers send more."""

LONGEST_REPLY_BYTES = 1 << 16
"""The most bytes in one reply. Replies to EHLO have a few dozen lines."""

_CODES = {b"%d" % code: code for code in range(200, 600)}
_CR, _SPACE, _HYPHEN = b"\r -"


SERVICE_CLOSING = 421
"""The server is closing the connection. This may be the reply to any command (RFC 5321 section 4.2.1)."""

_CHANNEL_CLOSING = 221

# RFC 5321 section 4.2.3, RFC 7504, RFC 4954 section 6, RFC 3207 section 4, RFC 1985 (ETRN), RFC 5248 section 2.4.
_REGISTERED = frozenset(
    {421, 432, 450, 451, 452, 453, 454, 455, 458, 459, 500, 501, 502, 503, 504, 521, 523, 524, 525, 530, 534, 535, 538}
    | {550, 551, 552, 553, 554, 555, 556}
)


class Reply(NamedTuple):
    """One whole reply: its code, the text of each of its lines (enhanced status codes included), and its length."""

    code: int
    lines: tuple[bytes, ...]
    size_bytes: int

    @property
    def text(self) -> str:
        """The reply's lines joined, with its code once: "550 5.1.1 unknown user"."""
        return f"{self.code} {b' '.join(self.lines).decode('utf-8', 'replace')}"


class SmtpWire:
    """Turns pieces of the stream into whole replies. After a `ProtocolError` it must not be used again.

    A line may end with a bare LF, as some servers send; this changes no reply's meaning.
    """

    def __init__(self) -> None:
        self.held_bytes = 0  # after the last reply yielded
        self.rejected = b""  # the line at fault; it may repeat a command, and so the password
        self._held = b""  # an incomplete line
        self._begun: list[bytes] = []  # the lines of an incomplete reply
        self._code = 0  # its code
        self._size_bytes = 0  # its size so far

    def feed(self, data: bytes) -> Iterator[Reply]:
        """Take a piece of the stream; yield each reply that it completes, before parsing the next.

        Exhaust it before feeding again. Raises `ProtocolError` for malformed and overlong replies.
        """
        stream = self._held + data if self._held else data
        begin = 0
        while (end := stream.find(b"\n", begin)) >= 0:
            code = _CODES.get(stream[begin : begin + 3])
            if end - begin >= LONGEST_LINE_BYTES:
                raise self._refuse(stream[begin:end], f"a line of more than {LONGEST_LINE_BYTES} bytes")
            if code is None:
                raise self._refuse(stream[begin:end], "no reply code")
            last = end - 1 if stream[end - 1] == _CR else end
            mark = stream[begin + 3] if last > begin + 3 else _SPACE
            self.held_bytes = len(stream) - end - 1
            if mark == _SPACE and not self._begun:  # nearly all replies
                yield Reply(code, (stream[begin + 4 : last],), end + 1 - begin)
            elif mark in (_SPACE, _HYPHEN):
                self._add(code, stream[begin:last], end + 1 - begin)
                if mark == _SPACE:
                    yield self._whole()
            else:
                raise self._refuse(stream[begin:end], "no reply code")
            begin = end + 1
        self._held = stream[begin:]
        self.held_bytes = len(self._held) + self._size_bytes
        if len(self._held) > LONGEST_LINE_BYTES:
            raise self._refuse(self._held, f"a line of more than {LONGEST_LINE_BYTES} bytes")

    def _add(self, code: int, line: bytes, size_bytes: int) -> None:
        if self._begun and code != self._code:
            raise self._refuse(line, "different codes in one reply")
        self._code = code
        self._begun.append(line[4:])
        self._size_bytes += size_bytes
        if self._size_bytes > LONGEST_REPLY_BYTES:
            raise self._refuse(line, f"a reply of more than {LONGEST_REPLY_BYTES} bytes")

    def _whole(self) -> Reply:
        reply = Reply(self._code, tuple(self._begun), self._size_bytes)
        self._begun.clear()
        self._size_bytes = 0
        return reply

    def _refuse(self, line: bytes, fault: str) -> ProtocolError:
        self.rejected = line.removesuffix(b"\r")
        return ProtocolError("no SMTP", fault)


def accepts_message(code: int) -> bool:
    """Return True if this reply to the final dot accepts the message: any 2yz except 221, which only answers QUIT."""
    return code // 100 == 2 and code != _CHANNEL_CLOSING


def kind_of(code: int, verb: str) -> str:
    """Return the kind of a refusal, such as "550 RCPT"; codes that no RFC registers share "other 5yz RCPT".

    The server chooses the code, and each kind takes up a row in every snapshot.
    """
    return f"{code if code in _REGISTERED else f'other {code // 100}yz'} {verb}"
