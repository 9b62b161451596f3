"""Emails (RFC 8621 section 4) as the ports' values: references, headers, structures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from sys import intern
from typing import NamedTuple

from loadsim.model.content.headers import one_line
from loadsim.model.content.templates import base64_lines, encoded_bytes, encoded_text
from loadsim.model.message_tag import HEADER, MessageTag, vouched
from loadsim.model.ports import Flag, Header, Part, Structure, flags_among
from loadsim.model.provisioning_ports import Stored
from loadsim.protocols.jmap.values import LONGEST_TEXT, Members

TAG = f"header:{HEADER}:asText"

STORED = ("id", "keywords", "receivedAt", "from", "messageId", "inReplyTo", TAG)
LISTED = ("id", "mailboxIds", "keywords", "size", "receivedAt", "from", "to", "subject", "messageId", TAG)
"""Properties that are asked for."""

SHOWN = {
    "properties": ("id", "textBody", "attachments", "bodyValues"),
    "bodyProperties": ("partId", "blobId", "size", "name", "type"),
    "fetchTextBodyValues": True,
}
"""The arguments of Email/get for a message to show."""

MOST_ADDRESSES = 1000
MOST_PARTS = 1000

KEYWORDS: dict[str, str] = {
    **{Flag.SEEN: "$seen", Flag.ANSWERED: "$answered", Flag.FORWARDED: "$forwarded", Flag.DRAFT: "$draft"},
    "\\Flagged": "$flagged",
}
"""Keywords (RFC 8621 section 4.1.1) by flag; \\Deleted has none."""

_FLAGS = {keyword: str(flag) for flag, keyword in KEYWORDS.items()}


class JmapRef(NamedTuple):
    """An Email in a folder. One Email may be in several: its copies there share keywords (RFC 8621 section 4)."""

    folder: str
    email: str


class ShownPart(NamedTuple):
    """A part of a message: the value of a text, or the blob of anything else."""

    blob: str
    text: str | None


def keywords_of(flags: Iterable[str]) -> dict[str, bool]:
    return {KEYWORDS[flag]: True for flag in flags if flag in KEYWORDS}


def flags_of(email: Members) -> frozenset[str]:
    return frozenset(_FLAGS.get(word.lower(), word.lower()) for word in email.names_in("keywords"))


def stored_of(folder: str, email: Members) -> Stored:
    tag = _tag(email)
    return Stored(
        JmapRef(folder, intern(email.id("id"))),
        frozenset([flag.lower() for flag in flags_of(email)]),
        tag,
        next(_addresses(email, "from"), ""),
        _message_id(email, "messageId"),
        _message_id(email, "inReplyTo"),
        tag is not None and tag.sent_us // 1_000_000 != _seconds(email.text("receivedAt", "")),
    )


def age_of(email: Members) -> tuple[str, int]:
    """Return by what to sort Emails: when they were received, a UTCDate, and within a second when they were sent."""
    tag = _tag(email)
    return email.text("receivedAt", ""), tag.sent_us if tag else 0


def _seconds(date: str) -> int | None:
    """Return a date in seconds since 1970; None if it cannot be read."""
    try:
        return int(datetime.fromisoformat(date).timestamp())
    except (ValueError, OverflowError):
        return None


def header_of(folder: str, email: Members, domain: str) -> Header:
    """Return a line of a message list; a tag that was copied, or belongs to another domain, is left out."""
    tag, sender, message_id = _tag(email), next(_addresses(email, "from"), ""), _message_id(email, "messageId")
    return Header(
        JmapRef(folder, email.id("id")),
        flags_among(flags_of(email)),
        email.number("size", 0),
        sender,
        tuple(_addresses(email, "to")),
        one_line(email.text("subject", "")[:LONGEST_TEXT]),
        message_id,
        tag if tag and vouched(tag, sender, message_id, domain) else None,
    )


def _tag(email: Members) -> MessageTag | None:
    value = email.text(TAG, "")
    return MessageTag.parse(value) if 0 < len(value) <= LONGEST_TEXT else None


def _addresses(email: Members, name: str) -> Iterator[str]:
    for address in email.objects(name)[:MOST_ADDRESSES]:
        yield intern(one_line(address.text("email", "")[:LONGEST_TEXT]))


def _message_id(email: Members, name: str) -> str:
    ids = email.texts(name)
    return f"<{one_line(ids[0][:LONGEST_TEXT])}>" if ids else ""


def structure_of(email: Members) -> tuple[Structure, dict[str, ShownPart]]:
    """Return the text to show and the attachments, and where to find each part by name.

    The text is the first of textBody: its value is decoded, so that the port's "as encoded" is loadsim's own encoding.
    """
    texts, values = email.objects("textBody"), email.by_name("bodyValues")
    found: dict[str, ShownPart] = {}
    shown: Part | None = None
    for body in texts[:1]:
        name = body.text("partId", "")
        if name in values and body.text("type", "").startswith("text/"):
            shown = Part(name, body.text("type").lower(), body.number("size", 0), None, "")
            found[name] = ShownPart(body.text("blobId", ""), values[name].text("value"))
    others = [*(texts if shown is None else texts[1:]), *email.objects("attachments")][:MOST_PARTS]
    attachments = []
    for body in others:
        name, kind = body.text("partId", ""), body.text("type", "application/octet-stream").lower()
        size_bytes, encoding = body.number("size", 0), "7bit"
        if not is_mail(kind):
            size_bytes, encoding = encoded_bytes(size_bytes), "base64"
        filename = one_line(body.text("name")[:LONGEST_TEXT]) if "name" in body else None
        attachments.append(Part(name, kind, size_bytes, filename, encoding))
        found[name] = ShownPart(body.text("blobId", ""), None)
    return Structure(shown, tuple(attachments)), found


def is_mail(content_type: str) -> bool:
    """Return True for a part of mail text, which has no transfer encoding of its own (RFC 2046 section 5.2)."""
    return content_type.startswith("message/") or content_type == "text/rfc822-headers"


def encoded_part(part: Part, blob: bytes) -> bytes:
    """Return a decoded part as loadsim encodes it."""
    return blob if is_mail(part.content_type) else base64_lines(blob)


def shown_text(value: str) -> bytes:
    """Return a body value (RFC 8621 section 4.1.4), whose line ends are LF, as loadsim encodes it."""
    return encoded_text(value.replace("\r\n", "\n").replace("\n", "\r\n"))


def header_section(message: bytes) -> bytes:
    return message.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
