"""Messages as the in-memory mail system keeps them: headers, structures and sizes, without contents."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.ports import Part, Structure


class MailInMemory(NamedTuple):
    """The data kept for one message, shared by all mailboxes that hold it."""

    sender: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    tag: MessageTag | None
    size_bytes: int
    structure: Structure


@lru_cache(maxsize=16)
def parse_mail(message: bytes) -> MailInMemory:
    """Parse a message as loadsim composes it: ASCII headers, bare addresses, at most one level of parts.

    Results are cached, as users save a copy of each message that they send.
    """
    head, _, body = message.partition(b"\r\n\r\n")
    fields = _fields(head)
    return MailInMemory(
        sender=fields.get("From", ""),
        to=tuple(fields.get("To", "").split(", ")),
        subject=fields.get("Subject", ""),
        message_id=fields.get("Message-ID", ""),
        tag=MessageTag.parse(fields.get(HEADER, "")),
        size_bytes=len(message),
        structure=_structure(fields, body),
    )


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("ascii", "replace").replace("\r\n ", " ").split("\r\n")
    return {name: value for name, _, value in [line.partition(": ") for line in lines]}


def _structure(fields: Mapping[str, str], body: bytes) -> Structure:
    content_type = fields.get("Content-Type", "text/plain")
    if not content_type.startswith("multipart/"):
        return Structure(_part("1", fields, len(body)))
    boundary = b"--" + content_type.partition("boundary=")[2].partition(";")[0].strip(' "').encode()
    text: Part | None = None
    attachments = []
    for number, piece in enumerate((b"\r\n" + body).split(b"\r\n" + boundary)[1:-1], start=1):
        head, _, content = piece.partition(b"\r\n\r\n")
        part = _part(str(number), _fields(head), len(content))
        if text is None and part.content_type.startswith("text/"):
            text = part
        else:
            attachments.append(part._replace(filename=f"part{number}"))
    return Structure(text, tuple(attachments))


def _part(name: str, fields: Mapping[str, str], size_bytes: int) -> Part:
    media_type = fields.get("Content-Type", "text/plain").partition(";")[0]
    return shared(Part(name, media_type, size_bytes, None, fields.get("Content-Transfer-Encoding", "7bit")))


@lru_cache(maxsize=4096)
def shared(part: Part) -> Part:
    """Return one object for equal parts."""
    return part
