"""FETCH responses as the port's values: headers, structures, tags."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import islice
from sys import intern

from loadsim.model.content.headers import one_line
from loadsim.model.message_tag import HEADER, MessageTag, vouched
from loadsim.model.ports import Header, Part, Structure, flags_among
from loadsim.protocols.imap.responses import Address, Fetched, Leaf, Multipart

TAG_ITEM = f"BODY.PEEK[HEADER.FIELDS ({HEADER.upper()})]".encode()
LISTING_ITEMS = b"(UID FLAGS ENVELOPE " + TAG_ITEM + b")"

LONGEST_TEXT_BYTES = 1000
"""The longest subject, file name or section with a tag; a line of mail has at most 998 (RFC 5322 section 2.1.1)."""

MOST_ADDRESSES = 1000
"""The most recipients of a message that are kept; loadsim's own messages have a few dozen."""


def header_of(fetched: Fetched, ref: Hashable, domain: str) -> Header | None:
    """Return a message's header; None for a response with other data, such as a changed flag.

    A tag that was copied from another message, or belongs to another domain, is left out.
    """
    envelope = fetched.envelope
    if envelope is None:
        return None
    tag = tag_of(fetched)
    sender, message_id = next(_addresses(envelope.sent_by), ""), text_of(envelope.message_id)
    return Header(
        ref=ref,
        flags=flags_among(fetched.flags),
        size_bytes=fetched.size_bytes or 0,
        sender=sender,
        to=tuple(islice(_addresses(envelope.to), MOST_ADDRESSES)),
        subject=text_of(envelope.subject),
        message_id=message_id,
        tag=tag if tag and vouched(tag, sender, message_id, domain) else None,
    )


def origin_of(fetched: Fetched) -> tuple[str, str, str]:
    """Return the sender's address, the Message-ID and In-Reply-To; "" for each that is missing."""
    envelope = fetched.envelope
    if envelope is None:
        return "", "", ""
    return next(_addresses(envelope.sent_by), ""), text_of(envelope.message_id), text_of(envelope.in_reply_to)


def tag_of(fetched: Fetched) -> MessageTag | None:
    """Return the tag in the message's X-LoadSim header; None if it is missing or malformed."""
    for name, section in fetched.sections.items():
        if section and name.startswith("HEADER.FIELDS"):
            if len(section) > LONGEST_TEXT_BYTES:
                return None
            field, _, value = section.decode("utf-8", "replace").strip().partition(":")
            return MessageTag.parse(value) if field.strip().upper() == HEADER.upper() else None
    return None


def has_tag_section(fetched: Fetched) -> bool:
    """Return True if this answers a FETCH of the X-LoadSim header, even if the message has none."""
    return any(name.startswith("HEADER.FIELDS") for name in fetched.sections)


def structure_of(body: Leaf | Multipart) -> Structure:
    """Return the text to show, and the attachments.

    The text is the first text/plain part that is not an attachment, else the first text/html. Everything else is
    attached or embedded, except the other forms of the text in a multipart/alternative.
    """
    leaves = list(leaves_of(body))
    shown = next(
        (
            leaf
            for wanted in ("text/plain", "text/html")
            for leaf in leaves
            if leaf[1].content_type == wanted and leaf[1].disposition != "attachment"
        ),
        None,
    )
    return Structure(
        _part(*shown[:2]) if shown else None,
        tuple(
            _part(name, leaf)
            for name, leaf, alternative in leaves
            if (shown is None or name != shown[0]) and not (alternative and leaf.content_type.startswith("text/"))
        ),
    )


def text_of(raw: bytes | None) -> str:
    """Return a header's text on one line, at most `LONGEST_TEXT_BYTES` of it; encoded words (RFC 2047) stay encoded."""
    return "" if raw is None else one_line(raw[:LONGEST_TEXT_BYTES].decode("utf-8", "replace"))


def _addresses(addresses: tuple[Address, ...]) -> Iterator[str]:
    """Yield the addresses; all users share one string per address."""
    for address in addresses:
        if address.host is not None and address.mailbox is not None:  # else it opens or closes a group
            yield intern(f"{address.mailbox.decode('utf-8', 'replace')}@{address.host.decode('utf-8', 'replace')}")


def leaves_of(body: Leaf | Multipart) -> Iterator[tuple[str, Leaf, bool]]:
    """Yield the leaves with their part numbers (RFC 9051 section 6.4.5.1): a body without parts is its own part 1.

    Not recursive, since the sender chooses the depth.
    """
    waiting: list[tuple[str, Leaf | Multipart, bool]] = [("", body, False)]
    while waiting:
        name, part, alternative = waiting.pop()
        if isinstance(part, Leaf):
            yield name or "1", part, alternative
            continue
        within, alternative = f"{name}." if name else "", part.subtype == "alternative"
        numbered = [(f"{within}{number}", inner, alternative) for number, inner in enumerate(part.parts, 1)]
        waiting += reversed(numbered)


def _part(name: str, leaf: Leaf) -> Part:
    filename = leaf.disposition_parameters.get("filename", leaf.parameters.get("name"))
    return Part(
        name, leaf.content_type, leaf.size_bytes, None if filename is None else text_of(filename), leaf.encoding
    )
