"""loadsim's messages (RFC 5322) as properties and attachments, and their parts, composed again from these.

MAPI keeps no MIME: a text is Unicode, a file is bytes. When read back, a text gets the transfer encoding that loadsim
would give it, and a file is in base64. A whole body is rebuilt as it was composed, to check the digest in its tag:
anything that no property holds follows from the tag and from the mark in the boundary.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.utils import parsedate_to_datetime
from quopri import decodestring

from loadsim.model.content.compose import Attachment, forwarded
from loadsim.model.content.headers import one_line
from loadsim.model.content.sized import FILE_HEADER, MARK
from loadsim.model.content.templates import (
    BOUNDARY,
    KINDS,
    Entity,
    base64_lines,
    enclose,
    encoded_text,
    file_entity,
    quoted_printable,
    text_header,
)
from loadsim.model.message_tag import HEADER, MessageTag, body_digest
from loadsim.model.ports import Part
from loadsim.protocols.imap.requests import addresses_of, fields_of
from loadsim.protocols.imap.values import field_value
from loadsim.protocols.mapi import tags
from loadsim.protocols.mapi.wire import Value, time_of

CALENDAR_TYPE = "text/calendar"

_ICALENDAR_TIME = re.compile(r"^(DTSTART|DTEND)[^:\r\n]*:(\d{8}T\d{6})Z?\r?$", re.MULTILINE)
_ICALENDAR_TEXT = re.compile(r"^(SUMMARY|LOCATION):(.*(?:\r?\n[ \t].*)*)", re.MULTILINE)
_SENDER = (
    *(tags.SENT_REPRESENTING_NAME, tags.SENT_REPRESENTING_EMAIL_ADDRESS, tags.SENT_REPRESENTING_SMTP_ADDRESS),
    *(tags.SENDER_NAME, tags.SENDER_EMAIL_ADDRESS, tags.SENDER_SMTP_ADDRESS),
)
_SENDER_TYPES = (tags.SENT_REPRESENTING_ADDRESS_TYPE, tags.SENDER_ADDRESS_TYPE)

Fields = dict[str, bytes]
"""Header field values by lower-case name."""

NamedTags = dict[str, int]
"""The tags of the named properties in one mailbox, by the keys of `tags.NAMED`."""


@dataclass(frozen=True, slots=True)
class File:
    """An attachment: its content, and its other properties."""

    properties: list[tuple[int, Value]]
    content: bytes


@dataclass(frozen=True, slots=True)
class Composed:
    """A message as properties. The body is kept separate, since it may be too large for one request."""

    properties: list[tuple[int, Value]]
    body: str
    files: list[File]
    sender: str
    to: list[str]
    message_id: str
    date_us: int


def composed(message: bytes, named: NamedTags) -> Composed:
    """Return a message composed by loadsim as properties: ASCII headers, bare addresses, at most one level of parts.

    A message of type text/calendar becomes an appointment (MS-OXOCAL section 2.2.1).
    """
    head, _, content = message.partition(b"\r\n\r\n")
    fields = fields_of(head)
    content_type, parameters = field_value(fields.get("content-type", b"text/plain"))
    boundary = parameters.get("boundary", b"") if content_type.startswith("multipart/") else b""
    text, files = "", []
    for at, (part_fields, part) in enumerate(_parts(boundary, fields, content)):
        decoded = _decoded(part_fields, part)
        if at == 0:
            _, parameters = field_value(part_fields.get("content-type", b""))
            text = decoded.decode(parameters.get("charset", b"us-ascii").decode(), "replace")
        else:
            files.append(File(_file_properties(part_fields), decoded))
    date_us = _microseconds(_text(fields, "date"))
    is_appointment = content_type == CALENDAR_TYPE
    properties: list[tuple[int, Value]] = [
        (tags.MESSAGE_CLASS, "IPM.Appointment" if is_appointment else "IPM.Note"),
        (tags.SUBJECT, _decoded_words(_text(fields, "subject"))),
        (tags.CLIENT_SUBMIT_TIME, time_of(date_us)),
        (tags.INTERNET_CODEPAGE, 65001),
    ]
    if boundary.startswith(BOUNDARY.encode()) and HEADER.lower() in fields:
        fields[HEADER.lower()] += b"; mark=" + boundary.removeprefix(BOUNDARY.encode())  # for `whole_body`
    for name, tag in (
        ("message-id", tags.INTERNET_MESSAGE_ID),
        ("in-reply-to", tags.IN_REPLY_TO_ID),
        ("references", tags.INTERNET_REFERENCES),
        (HEADER.lower(), named["tag"]),
    ):
        if name in fields:
            properties.append((tag, _text(fields, name)))
    if is_appointment:
        properties += _appointment(text, named)
    to = list(addresses_of(fields.get("to", b"")))
    return Composed(properties, text, files, _text(fields, "from"), to, _text(fields, "message-id"), date_us)


def message_id_of(message: bytes) -> str:
    return _text(fields_of(message.partition(b"\r\n\r\n")[0]), "message-id")


def sender_properties(address: str) -> list[tuple[int, Value]]:
    """Return a stored message's sender properties (MS-OXOMSG section 2.2.1); for sent mail, servers set them."""
    return [*((tag, address) for tag in _SENDER), *((tag, "SMTP") for tag in _SENDER_TYPES)]


def _text(fields: Fields, name: str) -> str:
    return fields.get(name, b"").decode("utf-8", "replace")


def _parts(boundary: bytes, fields: Fields, content: bytes) -> Iterator[tuple[Fields, bytes]]:
    if not boundary:
        yield fields, content
        return
    for piece in (b"\r\n" + content).split(b"\r\n--" + boundary)[1:-1]:
        head, _, part = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        yield fields_of(head), part


def _decoded(fields: Fields, content: bytes) -> bytes:
    encoding = _text(fields, "content-transfer-encoding").lower()
    if encoding == "quoted-printable":
        return decodestring(content)
    if encoding == "base64":
        try:
            return b64decode(content)
        except binascii.Error:  # a forwarded part, encoded by others
            return content
    return content


def _file_properties(fields: Fields) -> list[tuple[int, Value]]:
    """Return a file attachment's properties (MS-OXCMSG section 2.2.2)."""
    content_type = _text(fields, "content-type") or "application/octet-stream"
    _, parameters = field_value(fields.get("content-disposition", b""))
    name = parameters.get("filename", b"").decode("utf-8", "replace") or "attachment"
    properties: list[tuple[int, Value]] = [
        (tags.ATTACH_METHOD, 1),
        (tags.RENDERING_POSITION, -1),
        (tags.ATTACH_LONG_FILENAME, name),
        (tags.ATTACH_FILENAME, name),
        (tags.DISPLAY_NAME, name),
        (tags.ATTACH_MIME_TAG, content_type.partition(";")[0].strip()),
    ]
    if content_id := _text(fields, "content-id").strip("<> "):
        properties.append((tags.ATTACH_CONTENT_ID, content_id))
    return properties


def _decoded_words(subject: str) -> str:
    """Decode encoded words (RFC 2047)."""
    if "=?" not in subject:
        return subject
    try:
        return one_line(str(make_header(decode_header(subject))))
    except (HeaderParseError, UnicodeError, LookupError):
        return subject


def _microseconds(date: str) -> int:
    """Return an RFC 5322 date in microseconds since 1970; 0 if there is none."""
    try:
        return round(parsedate_to_datetime(date).timestamp()) * 1_000_000
    except ValueError:
        return 0


def _appointment(text: str, named: NamedTags) -> list[tuple[int, Value]]:
    """Return the properties of the schedule's first appointment (MS-OXOCAL section 2.2.1)."""
    stamps = {name: datetime.strptime(at, "%Y%m%dT%H%M%S") for name, at in reversed(_ICALENDAR_TIME.findall(text))}
    times = {name: round(stamp.replace(tzinfo=UTC).timestamp()) * 1_000_000 for name, stamp in stamps.items()}
    texts = dict(reversed(_ICALENDAR_TEXT.findall(text)))
    begin_us = times.get("DTSTART", 0)
    end_us = max(begin_us, times.get("DTEND", begin_us))
    begin, end = time_of(begin_us), time_of(end_us)
    return [
        (tags.START_DATE, begin),
        (tags.END_DATE, end),
        (named["begin"], begin),
        (named["end"], end),
        (named["common_begin"], begin),
        (named["common_end"], end),
        (named["minutes"], (end_us - begin_us) // 60_000_000),
        (named["location"], re.sub(r"\r?\n[ \t]|\\(?=[,;\\])", "", texts.get("LOCATION", "")).strip()),
        (named["busy"], 2),  # olBusy
        (named["all_day"], False),
        (named["state"], 0),  # an appointment, not a meeting
        (named["recurs"], False),
        (named["reminds"], False),
    ]


_MARK = re.compile(r"; mark=([\w.+-]{1,40})\Z")
"""The boundary's mark, which follows the tag in its property."""


def whole_body(tag_text: str, tag: MessageTag, text: str, files: Sequence[tuple[Part, bytes]]) -> bytes | None:
    """Return the body; None if loadsim would not compose it.

    Some servers drop the text's final line end. An ASCII text may have either of two transfer encodings; the one that
    matches the tag's digest is used.
    """
    file = _file(tag_text, tag, files)
    if files and file is None:
        return None
    lines = text if text.endswith("\r\n") else text + "\r\n"
    plain = _body(tag_text, Entity(text_header(foreign=not lines.isascii()), encoded_text(lines)), file)
    if body_digest(plain) == tag.body:
        return plain
    other = _body(tag_text, Entity(text_header(foreign=True), quoted_printable(lines.encode())), file)
    return other if body_digest(other) == tag.body else plain


def _body(tag_text: str, text: Entity, file: Entity | None) -> bytes:
    if file is None:
        return bytes(text.body)
    mark = _MARK.search(tag_text)
    assert mark is not None
    return b"".join(enclose("", mark[1], text, file, "-").pieces)


def _file(tag_text: str, tag: MessageTag, files: Sequence[tuple[Part, bytes]]) -> Entity | None:
    """Return a message's file with its original MIME fields."""
    match = _MARK.search(tag_text)
    if match is None or len(files) != 1:
        return None
    mark, (part, content) = match[1], files[0]
    kind = KINDS.get(mark.rpartition("_")[0])
    if mark == MARK:
        return Entity(FILE_HEADER, base64_lines(content))
    if kind is not None and kind.attached is not None:
        return file_entity(kind.attached, part.filename or "", content)
    return forwarded(Attachment.of(part, base64_lines(content))) if mark == tag.id else None
