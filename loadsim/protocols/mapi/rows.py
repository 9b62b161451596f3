"""Rows of contents and attachment tables as the port's values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from loadsim.errors import ServerRefused
from loadsim.model.content.templates import encoded_bytes
from loadsim.model.message_tag import MessageTag, vouched
from loadsim.model.ports import Flag, Header, Part, flags_among
from loadsim.model.provisioning_ports import Stored
from loadsim.protocols.mapi import tags
from loadsim.protocols.mapi.composition import NamedTags
from loadsim.protocols.mapi.objects import Row, identifier, number, text

_VERBS = {102: Flag.ANSWERED, 103: Flag.ANSWERED, 104: Flag.FORWARDED}
"""Flags by PidTagLastVerbExecuted (MS-OXOMSG section 2.2.1.9). A message has at most one, the last."""

ATTACHMENTS = (tags.ATTACH_NUMBER, tags.ATTACH_SIZE, tags.ATTACH_LONG_FILENAME, tags.ATTACH_MIME_TAG)
"""The columns of `part_of`."""


class MapiRef(NamedTuple):
    """A message by its number in this mailbox."""

    folder: str
    message: int


def stored_columns(named: NamedTags) -> tuple[int, ...]:
    """Return the columns of `stored_of`; others may follow them."""
    return (
        *(tags.MID, tags.MESSAGE_DELIVERY_TIME, tags.MESSAGE_FLAGS, tags.LAST_VERB_EXECUTED),
        *(tags.SENT_REPRESENTING_SMTP_ADDRESS, tags.INTERNET_MESSAGE_ID),
        *(named["tag"], named["sent_id"], named["sent_tag"]),
    )


def header_columns(named: NamedTags) -> tuple[int, ...]:
    return (*stored_columns(named), tags.MESSAGE_SIZE, tags.DISPLAY_TO, tags.SUBJECT)


def stored_of(folder: str, row: Row) -> Stored:
    """Return a message; `submission` explains why tag and Message-ID may each be in either of two columns."""
    message, _, flags, verb, sender, message_id, tag, sent_id, sent_tag, *_ = row
    known = identifier(message)
    if known is None:
        raise ServerRefused("a row without a number", folder)
    tag_text = tag if isinstance(tag, str) else sent_tag
    return Stored(
        MapiRef(folder, known),
        frozenset(
            [flag.lower() for flag in (_VERBS.get(number(verb) or 0), _seen(number(flags) or 0)) if flag is not None]
        ),
        MessageTag.parse(tag_text) if isinstance(tag_text, str) else None,
        text(sender),
        text(sent_id) or text(message_id),
    )


def _seen(flags: int) -> Flag | None:
    return Flag.SEEN if flags & tags.READ else None


def header_of(folder: str, row: Row, domain: str, addresses: Mapping[str, str]) -> Header:
    """Return a line of a message list. `addresses` maps names to addresses: lists show only recipients' names.

    A tag that was copied from another message, or belongs to another domain, is left out.
    """
    size_bytes, to, subject = row[-3:]
    ref, flags, tag, sender, message_id, *_ = stored_of(folder, row)
    people = [addresses.get(name, name) for each in text(to).split(";") if (name := each.strip())]
    return Header(
        ref,
        flags_among(flags),
        number(size_bytes) or 0,
        sender,
        tuple([address for address in people if "@" in address]),
        text(subject),
        message_id,
        tag if tag and vouched(tag, sender, message_id, domain) else None,
    )


def part_of(row: Row) -> Part:
    """Return an attachment. Its name is its number: the text is "1", and attachments follow."""
    place, size_bytes, filename, content_type = row
    name = str(((number(place) or 0) & 0x7FFF_FFFF) + 2)
    kind = text(content_type) or "application/octet-stream"
    return Part(name, kind, encoded_bytes(number(size_bytes) or 0), text(filename), "base64")


def counter(message: object) -> int:
    """Return the counter in a message's number (MS-OXCDATA section 2.2.1.2), big-endian after two bytes."""
    return int.from_bytes((identifier(message) or 0).to_bytes(8, "little")[2:])
