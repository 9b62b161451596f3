"""Whole messages, for mail programs that fetch them: their structure and parts, and a small store of them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.model.ports import Header, Structure
from loadsim.protocols.imap.reading import leaves_of, structure_of
from loadsim.protocols.imap.requests import LONGEST_FIELDS_BYTES, fields_of
from loadsim.protocols.imap.responses import Leaf, Multipart
from loadsim.protocols.imap.values import field_value

DEEPEST = 20
"""The deepest nesting of multiparts; anything deeper is one part. Each level costs another search of the message."""

MOST_PARTS = 1000
"""The most parts of a multipart."""

STORED_BYTES = 1 << 20
"""The most bytes of messages that a user keeps. Mail programs keep all of them on disk; a generator has many users."""


@dataclass(frozen=True, slots=True)
class WholeMessage:
    """A message as it was sent, its structure, and its parts' positions by name."""

    raw: bytes
    structure: Structure
    places: Mapping[str, tuple[int, int]]

    def part(self, name: str) -> bytes | None:
        place = self.places.get(name)
        return None if place is None else self.raw[place[0] : place[1]]


@dataclass(slots=True)
class MessageStore:
    """The messages that a user fetched most recently, at least one."""

    limit_bytes: int = STORED_BYTES
    _messages: dict[Hashable, WholeMessage] = field(default_factory=dict)
    _stored_bytes: int = 0

    def get(self, ref: Hashable) -> WholeMessage | None:
        return self._messages.get(ref)

    def fitting(self, headers: Sequence[Header]) -> list[Header]:
        """Return the first messages, as many as fit into the store together."""
        fitting, left_bytes = [], self.limit_bytes
        for header in headers:
            left_bytes -= header.size_bytes
            if left_bytes < 0:
                break
            fitting.append(header)
        return fitting

    def take(self, ref: Hashable, raw: bytes | None) -> None:
        """Keep a fetched message, unless the server sent none of it."""
        if raw:
            self.add(ref, message_of(raw))

    def add(self, ref: Hashable, message: WholeMessage) -> None:
        """Keep a message, and drop the oldest ones beyond the limit."""
        self.drop(ref)
        self._messages[ref] = message
        self._stored_bytes += len(message.raw)
        while self._stored_bytes > self.limit_bytes and len(self._messages) > 1:
            self.drop(next(iter(self._messages)))

    def clear(self) -> None:
        self._messages.clear()
        self._stored_bytes = 0

    def drop(self, ref: Hashable) -> None:
        message = self._messages.pop(ref, None)
        if message is not None:
            self._stored_bytes -= len(message.raw)


def message_of(raw: bytes) -> WholeMessage:
    """Return a message (RFC 5322, CRLF) with its structure (RFC 2046 section 5.1)."""
    body, places = _entity(raw, 0, len(raw), 0)
    named = zip(leaves_of(body), places, strict=True)
    return WholeMessage(raw, structure_of(body), {name: place for (name, _, _), place in named})


def _entity(raw: bytes, begin: int, end: int, within: int) -> tuple[Leaf | Multipart, list[tuple[int, int]]]:
    """Return the part between two offsets, nested in `within` multiparts, and its leaves' positions in order."""
    # Split header and body.
    if raw[begin : begin + 2] == b"\r\n":
        header_end = begin
    else:
        blank_line = raw.find(b"\r\n\r\n", begin, end)
        header_end = blank_line + 2 if blank_line >= 0 else end
    fields = fields_of(raw[begin : min(header_end, begin + LONGEST_FIELDS_BYTES)])
    body_at = min(header_end + 2, end)
    kind, parameters = field_value(fields.get("content-type", b""))
    content_type = kind if "/" in kind else "text/plain"

    # Split the body of a multipart at its boundary.
    boundary = parameters.get("boundary")
    if content_type.startswith("multipart/") and boundary and within < DEEPEST:
        parts, places = [], []
        for part_at, part_end in _between(raw, boundary, body_at, end):
            part, of_part = _entity(raw, part_at, part_end, within + 1)
            parts.append(part)
            places += of_part
        return Multipart(content_type.removeprefix("multipart/"), tuple(parts)), places

    encoding = fields.get("content-transfer-encoding", b"7bit").decode("ascii", "replace").strip().lower()
    shown, shown_parameters = field_value(fields.get("content-disposition", b""))
    leaf = Leaf(content_type, parameters, encoding, end - body_at, shown or None, shown_parameters)
    return leaf, [(body_at, end)]


def _between(raw: bytes, boundary: bytes, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the positions between boundary lines; the end of the message stands for a missing last line."""
    delimiter = re.compile(rb"(?:\A|\r\n)--" + re.escape(boundary) + rb"(--)?[ \t]*+(?:\r\n|\Z)")
    places: list[tuple[int, int]] = []
    since: int | None = None
    at = max(0, begin - 2)  # a delimiter's line end may be the one before the body
    while len(places) < MOST_PARTS and (match := delimiter.search(raw, at, end)) is not None:
        if since is not None:
            places.append((since, max(since, match.start())))
        if match[1]:
            return places
        since = min(match.end(), end)
        at = max(match.end() - 2, match.start() + 1)
    if since is not None and len(places) < MOST_PARTS:
        places.append((since, end))
    return places
