"""The library's output reassembled into responses, and parsed with the parser of the driver `imap`."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from email.utils import getaddresses

from loadsim.model.message_tag import HEADER, MessageTag, vouched
from loadsim.model.ports import Header, flags_among
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.reading import text_of
from loadsim.protocols.imap.responses import Fetched, Response

HEADER_FIELDS = f"HEADER.FIELDS (FROM TO SUBJECT MESSAGE-ID {HEADER.upper()})"
"""Fetched in place of ENVELOPE, whose quoted strings the library alters; it does not alter literals."""

LONGEST_FIELD_BYTES = 8192
"""The parsed length of FROM and TO: Python takes a tenth of a second for 64 KB of unusual addresses."""

_LITERAL_FOLLOWS = re.compile(rb"\{\d+\+?\}\Z")
_USED = re.compile(rb"\* (?:\d|OK\b|NO\b|BAD\b)", re.IGNORECASE)
_FOLD = re.compile(rb"\r?\n(?=[ \t])")


def parsed(lines: Iterable[bytes | bytearray], prefix: bytes = b"* ") -> Iterator[Response]:
    """Yield the responses in the library's lines. Raises `ProtocolError` for malformed ones.

    Without a name in `prefix`, only status responses and numbered responses are parsed; others are not part of the
    answer.

    The library mostly removes "* " from a line, and for some commands the response's name, which `prefix` restores. A
    literal is a bytearray of its own, behind the line that announced it.
    """
    raw = b""
    for line in lines:
        if isinstance(line, bytearray):
            raw += b"\r\n" + line
            continue
        raw = raw + line if raw else prefix + line.removeprefix(b"* ")
        if not _LITERAL_FOLLOWS.search(line):
            response = parse(raw) if prefix != b"* " or _USED.match(raw) else None
            raw = b""
            if response is not None:
                yield response


def header_of(fetched: Fetched, ref: Hashable, domain: str) -> Header | None:
    """Return the header of one message, from FLAGS, RFC822.SIZE and its header fields; None for other data of it.

    Evidence that was copied into another message, or is of another domain, is left out.
    """
    block = next((block for name, block in fetched.sections.items() if name.startswith("HEADER.FIELDS")), None)
    if block is None:
        return None
    fields = dict(_fields(block))
    marked = fields.get(HEADER.lower())
    evidence = None if marked is None else MessageTag.parse(text_of(marked))
    sender, message_id = next(iter(_addresses(fields.get("from"))), ""), text_of(fields.get("message-id"))
    return Header(
        ref=ref,
        flags=flags_among(fetched.flags),
        size_bytes=fetched.size_bytes or 0,
        sender=sender,
        to=tuple(_addresses(fields.get("to"))),
        subject=text_of(fields.get("subject")),
        message_id=message_id,
        evidence=evidence if evidence and vouched(evidence, sender, message_id, domain) else None,
    )


def _fields(block: bytes | bytearray) -> Iterator[tuple[str, bytes]]:
    """Yield names in lower case, and unfolded values (RFC 5322 section 2.2.3), from the last field to the first."""
    for line in reversed(_FOLD.sub(b"", block).splitlines()):
        name, colon, value = line.partition(b":")
        if colon:
            yield name.strip().lower().decode("ascii", "replace"), value.strip()


def _addresses(value: bytes | None) -> list[str]:
    if value is None:
        return []
    try:
        found = getaddresses([value[:LONGEST_FIELD_BYTES].decode("utf-8", "replace")])
    except RecursionError:  # the sender chooses how deep comments nest
        return []
    return [address for _, address in found if address]
