"""HTTP/1.1 responses (RFC 9112), parsed without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace

from loadsim.errors import ProtocolError

LONGEST_HEAD_BYTES = 65536
LARGEST_BODY_BYTES = 1 << 20
"""The largest body, unless the caller allows another size."""

_BUSY = (429, 503)
_SECONDS = re.compile(r"[0-9]{1,9}")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: ([^\r\n]*))?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?")


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its header fields by lower-case name, its cookies by name, its body."""

    status: int
    reason: str
    fields: dict[str, str]
    cookies: dict[str, str]
    body: bytes = b""

    @property
    def line(self) -> str:
        """The reason phrase, and Retry-After."""
        later = self.fields.get("retry-after")
        return f"{self.reason}; Retry-After: {later}" if later else self.reason

    @property
    def wait_s(self) -> int | None:
        """The seconds after which a busy server wants the request again (RFC 9110 section 10.2.3), at least 1.

        None if it states none; a date counts as none.
        """
        stated = self.fields.get("retry-after", "") if self.status in _BUSY else ""
        return max(1, int(stated)) if _SECONDS.fullmatch(stated) else None


@dataclass(slots=True)
class ResponseParser:
    """Parses one response from the pieces in which it arrives. Any violation raises `ProtocolError`.

    `head` is the response without its body, as soon as it is known; `response` is the whole response, once complete.
    `most_bytes` limits the body. With `take`, the body of a response with status 200 may be endless: `take` gets its
    bytes as they arrive, and `response` does not have them.
    """

    most_bytes: int = LARGEST_BODY_BYTES
    take: Callable[[bytes], None] | None = None
    head: Response | None = field(default=None, init=False)
    response: Response | None = field(default=None, init=False)
    _held: bytearray = field(default_factory=bytearray, init=False)
    _until_close: bool = field(default=False, init=False)  # the body ends with the connection
    _parsing: Iterator[None] = field(init=False)  # resumed with each piece

    def __post_init__(self) -> None:
        self._parsing = self._parse()

    @property
    def keeps_connection(self) -> bool:
        """True if the connection can serve another request after this response."""
        ends = self.head is None or "close" in self.head.fields.get("connection", "").lower()
        return self.response is not None and not ends and not self._until_close

    def feed(self, data: bytes) -> None:
        """Take the next piece. Raises `ProtocolError`, also for bytes after the end."""
        self._held += data
        next(self._parsing, None)
        if self.response is not None and self._held:
            raise ProtocolError("HTTP response", "bytes behind its end")

    def end(self) -> None:
        """Take the end of the connection. Raises `ProtocolError` if the response is incomplete."""
        if self._until_close and self.head is not None:
            self.response = replace(self.head, body=bytes(self._held))
        if self.response is None:
            raise ProtocolError("HTTP response", "truncated")

    def _parse(self) -> Generator[None, None, None]:
        """Parse head and body (RFC 9112 sections 6.3 and 7.1); yield whenever more bytes are needed."""
        head = None
        while head is None:
            head = _head((yield from self._line(b"\r\n\r\n", LONGEST_HEAD_BYTES, "a header")))
        self.head, body = head, bytearray()
        take = self.take if head.status == 200 else None
        coding, length = head.fields.get("transfer-encoding"), head.fields.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked":
                raise ProtocolError("HTTP response", "expected the transfer coding chunked, found another")
            while size_bytes := _chunk_size((yield from self._line(b"\r\n", 1024, "the size of a chunk"))):
                content = yield from self._bytes(size_bytes, len(body))
                if take is None:
                    body += content
                else:
                    take(content)
                if (yield from self._bytes(2)) != b"\r\n":
                    raise ProtocolError("HTTP response", "a chunk of another size")
            while (yield from self._line(b"\r\n", LONGEST_HEAD_BYTES, "a trailer")):
                pass
        elif length is not None and head.status not in (204, 304):
            if not (length.isascii() and length.isdigit() and len(length) < 10):
                raise ProtocolError("HTTP response", "expected a length in bytes")
            body += yield from self._bytes(int(length))
        elif length is None and head.status not in (204, 304):
            self._until_close = True
            while take is not None:
                take(self._cut(len(self._held), 0))
                yield
            yield from self._bytes(self.most_bytes + 1)  # more than allowed
        self.response = replace(head, body=bytes(body))

    def _bytes(self, size_bytes: int, before: int = 0) -> Generator[None, None, bytes]:
        """Return the next bytes of the body, after `before` earlier ones."""
        if before + size_bytes > self.most_bytes and (not self._until_close or len(self._held) >= size_bytes):
            raise ProtocolError("HTTP response", f"more than {self.most_bytes} bytes")
        while len(self._held) < size_bytes:
            yield
        return self._cut(size_bytes, 0)

    def _line(self, end: bytes, most_bytes: int, what: str) -> Generator[None, None, bytes]:
        """Return the bytes before this terminator, and skip it."""
        while (size_bytes := self._held.find(end)) < 0 or size_bytes > most_bytes:
            if len(self._held) > most_bytes:
                raise ProtocolError("HTTP response", f"expected {what} of at most {most_bytes} bytes")
            yield
        return self._cut(size_bytes, len(end))

    def _cut(self, size_bytes: int, more: int) -> bytes:
        data = bytes(self._held[:size_bytes])
        del self._held[: size_bytes + more]
        return data


def _head(head: bytes) -> Response | None:
    """Return the status line and fields (RFC 9112 sections 4 and 5); None for an interim response."""
    first, *lines = head.split(b"\r\n")
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
    return (
        Response(int(status[1]), (status[2] or b"").decode("latin-1"), fields, cookies) if status[1] >= b"2" else None
    )


def _chunk_size(line: bytes) -> int:
    size = _CHUNK_SIZE.fullmatch(line)
    if size is None:
        raise ProtocolError("HTTP response", "expected the size of a chunk")
    return int(size[1], 16)


def _field(line: bytes) -> tuple[str, str]:
    """Return a field's name in lower case, and its value."""
    match = _FIELD.fullmatch(line)
    if match is None:
        raise ProtocolError("HTTP response", "expected a header field")
    return match[1].decode("ascii").lower(), match[2].decode("latin-1")
