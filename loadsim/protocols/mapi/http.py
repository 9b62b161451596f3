"""HTTP/1.1 responses (RFC 9112) with the content of MAPI over HTTP, parsed without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from loadsim.errors import ProtocolError
from loadsim.protocols.mapi.bodies import split_response

MAPI_CONTENT = "application/mapi-http"

LONGEST_HEAD_BYTES = 65536
LARGEST_BODY_BYTES = 1 << 20
"""A response to Execute without chaining has at most 32 KiB of ROPs (MS-OXCRPC section 3.1.4.2.1)."""

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: ([^\r\n]*))?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")
_LONGEST_SIZE_LINE = 1024


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its header fields by names in lower case, its cookies by name, its body.

    Of a body with meta-tags (MS-OXCMAPIHTTP section 2.2.7) the fields behind DONE are among `fields`, and `body` is the
    rest.
    """

    status: int
    reason: str
    fields: dict[str, str]
    cookies: dict[str, str]
    body: bytes = b""


@dataclass(slots=True)
class ResponseParser:
    """Parses one response from the pieces in which it arrives. Any violation raises `ProtocolError`.

    `head` is the response without its body, as soon as this is known; `response` is the whole, once it has ended.
    """

    head: Response | None = field(default=None, init=False)
    response: Response | None = field(default=None, init=False)
    _held: bytearray = field(default_factory=bytearray, init=False)
    _body: bytearray = field(default_factory=bytearray, init=False)
    _left_bytes: int = field(default=0, init=False)  # of the body, or of its chunk
    _step: Callable[[ResponseParser], bool] | None = field(default=None, init=False)  # None: the head

    @property
    def keeps_connection(self) -> bool:
        """True if the connection can serve another request after this response."""
        head = self.head
        ends = head is None or "close" in head.fields.get("connection", "").lower()
        return self.response is not None and not ends and self._step is not ResponseParser._until_close

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises `ProtocolError`, also for bytes behind the end."""
        self._held += data
        while self.response is None and (ResponseParser._head if self._step is None else self._step)(self):
            pass
        if self.response is not None and self._held:
            raise ProtocolError("HTTP response", "bytes behind its end")

    def end(self) -> None:
        """Take the end of the connection. Raises `ProtocolError` if the response is not whole."""
        if self._step is ResponseParser._until_close:
            self._finish()
        if self.response is None:
            raise ProtocolError("HTTP response", "truncated")

    # --- steps: each returns True if it got on ---

    def _head(self) -> bool:
        """Parse status line and fields (RFC 9112 sections 4 and 5); choose the length of the body (section 6.3)."""
        end = self._held.find(b"\r\n\r\n")
        if end < 0 or end > LONGEST_HEAD_BYTES:
            if len(self._held) > LONGEST_HEAD_BYTES:
                raise ProtocolError("HTTP response", f"a header of more than {LONGEST_HEAD_BYTES} bytes")
            return False
        first, *lines = bytes(self._held[:end]).split(b"\r\n")
        del self._held[: end + 4]
        status = _STATUS.fullmatch(first)
        if status is None:
            raise ProtocolError("HTTP response", "expected a status line of HTTP/1.1")
        fields: dict[str, str] = {} if first.startswith(b"HTTP/1.1") else {"connection": "close"}
        cookies: dict[str, str] = {}
        for name, value in map(_field, lines):
            if name == "set-cookie":
                key, _, content = value.partition(";")[0].partition("=")
                cookies[key.strip()] = content.strip()
            elif name == "content-length" and fields.get(name, value) != value:
                raise ProtocolError("HTTP response", "two lengths")
            else:
                fields[name] = f"{fields[name]}, {value}" if name == "www-authenticate" and name in fields else value
        number = int(status[1])
        if number < 200:  # RFC 9110 section 15.2: the final response follows
            return True
        self.head = Response(number, (status[2] or b"").decode("latin-1"), fields, cookies)
        coding, length = fields.get("transfer-encoding"), fields.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError("HTTP response", "expected the transfer coding chunked, found another")
            self._step = ResponseParser._chunk_size
        elif number in (204, 304):
            self._finish()
        elif length is None:
            self._step = ResponseParser._until_close
        else:
            if not (length.isascii() and length.isdigit() and len(length) < 10):
                raise ProtocolError("HTTP response", "expected a length in bytes")
            self._expect(int(length))
            self._step = ResponseParser._content
        return True

    def _expect(self, size_bytes: int) -> None:
        if len(self._body) + size_bytes > LARGEST_BODY_BYTES:
            raise ProtocolError("HTTP response", f"more than {LARGEST_BODY_BYTES} bytes")
        self._left_bytes = size_bytes

    def _content(self) -> bool:
        if len(self._held) < self._left_bytes:
            return False
        self._body += self._held[: self._left_bytes]
        del self._held[: self._left_bytes]
        self._finish()
        return True

    def _until_close(self) -> bool:
        self._expect(len(self._held))
        self._body += self._held
        self._held.clear()
        return False

    def _chunk_size(self) -> bool:
        """Parse the line in front of a chunk (RFC 9112 section 7.1)."""
        end = self._held.find(b"\r\n")
        if end < 0 or end > _LONGEST_SIZE_LINE:
            if len(self._held) > _LONGEST_SIZE_LINE:
                raise ProtocolError("HTTP response", "expected the size of a chunk")
            return False
        size = _CHUNK_SIZE.fullmatch(self._held, 0, end)
        if size is None:
            raise ProtocolError("HTTP response", "expected the size of a chunk")
        self._expect(int(size[1], 16))
        if self._left_bytes:
            del self._held[: end + 2]
            self._step = ResponseParser._chunk
        else:
            del self._held[:end]  # the line end stays: it may be the first of two
            self._step = ResponseParser._trailer
        return True

    def _chunk(self) -> bool:
        size = self._left_bytes
        if len(self._held) < size + 2:
            return False
        if self._held[size : size + 2] != b"\r\n":
            raise ProtocolError("HTTP response", "a chunk of another size")
        self._body += self._held[:size]
        del self._held[: size + 2]
        self._step = ResponseParser._chunk_size
        return True

    def _trailer(self) -> bool:
        """Drop the trailer fields, if any, up to the empty line (RFC 9112 section 7.1.2)."""
        end = self._held.find(b"\r\n\r\n")
        if end < 0:
            if len(self._held) > LONGEST_HEAD_BYTES:
                raise ProtocolError("HTTP response", f"a trailer of more than {LONGEST_HEAD_BYTES} bytes")
            return False
        del self._held[: end + 4]
        self._finish()
        return True

    def _finish(self) -> None:
        head = self.head
        assert head is not None
        fields, body = head.fields, bytes(self._body)
        if head.status == 200 and fields.get("content-type", "").partition(";")[0].strip().lower() == MAPI_CONTENT:
            more, body = split_response(body)
            fields = {**fields, **more}
        self.response = Response(head.status, head.reason, fields, head.cookies, body)


def _field(line: bytes) -> tuple[str, str]:
    """Return a field's name in lower case, and its value."""
    found = _FIELD.fullmatch(line)
    if found is None:
        raise ProtocolError("HTTP response", "expected a header field")
    return found[1].decode("ascii").lower(), found[2].decode("latin-1")
