"""What aioimaplib hands out, put together again and read as the module `imap` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from email.message import Message
from email.utils import getaddresses

from loadsim.model.evidence import HEADER, Evidence
from loadsim.model.ports import Flag, Header, Part, Structure
from loadsim.protocols.imap.grammar import parse
from loadsim.protocols.imap.responses import Fetched, Leaf, Multipart, Response

_LITERAL_FOLLOWS = re.compile(rb"\{\d+\+?\}\Z")


def parsed(lines: Iterable[bytes | bytearray], prefix: bytes) -> Iterator[Response]:
    """Put together what the library took apart, and read it as the module `imap` does.

    The library gives lines without "* " and, where that was its own, without the response's name; a literal is a
    bytearray of its own, after the line that announced it.
    """
    raw = b""
    for line in lines:
        if isinstance(line, bytearray):
            raw += b"\r\n" + line
            continue
        raw = raw + line if raw else prefix + line.removeprefix(b"* ")
        if not _LITERAL_FOLLOWS.search(line):
            response = parse(raw)
            raw = b""
            if response is not None:
                yield response


def header_of(folder: str, fetched: Fetched) -> Header:
    """What a message list shows, from FLAGS, RFC822.SIZE and the header's fields as they stand in the message."""
    block = next(iter(fetched.sections.values())) or b""
    fields = message_from_bytes(block)
    marked = fields.get(HEADER)
    sender = next(iter(_addresses(fields, "From")), "")
    return Header(
        ref=(folder, fetched.uid),
        seen=Flag.SEEN.value.lower() in {flag.lower() for flag in fetched.flags or ()},
        size_bytes=fetched.size_bytes or 0,
        sender=sender,
        to=tuple(_addresses(fields, "To")),
        subject=_field(fields, "Subject"),
        message_id=_field(fields, "Message-ID"),
        evidence=None if marked is None else Evidence.parse(str(marked)),
    )


def _addresses(fields: Message, name: str) -> list[str]:
    return [address for _, address in getaddresses([str(value) for value in fields.get_all(name, [])]) if address]


def _field(fields: Message, name: str) -> str:
    """A field's value, unfolded (RFC 5322 section 2.2.3)."""
    return str(fields.get(name, "")).replace("\r", "").replace("\n", "").strip()


def structure_of(body: Leaf | Multipart) -> Structure:
    """The first text that is no attachment, and everything else with its place (RFC 9051 section 6.4.5)."""
    text: Part | None = None
    attachments: list[Part] = []
    for name, leaf in _leaves(body, ""):
        filename = leaf.disposition_parameters.get("filename") or leaf.parameters.get("name")
        shown = None if filename is None else filename.decode("utf-8", "replace")
        part = Part(name, leaf.content_type, leaf.size_bytes, shown, leaf.encoding)
        if text is None and leaf.content_type.startswith("text/") and leaf.disposition != "attachment":
            text = part
        else:
            attachments.append(part)
    return Structure(text, tuple(attachments))


def _leaves(body: Leaf | Multipart, at: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(body, Leaf):
        yield at or "1", body
        return
    for number, each in enumerate(body.parts, 1):
        yield from _leaves(each, f"{at}.{number}" if at else str(number))
