"""What the in-memory mail system keeps of a message, and how it finds that out."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from loadsim.model.message_tag import HEADER, MessageTag
from loadsim.model.ports import Part, Structure


class Mail(NamedTuple):
    """What is kept of a message; shared by all mailboxes that hold it."""

    sender: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    evidence: MessageTag | None
    size_bytes: int
    structure: Structure


@lru_cache(maxsize=16)
def examine(message: bytes) -> Mail:
    """What is kept of a message (as loadsim makes them: ASCII headers, bare addresses, at most one level of parts).

    A message is sent, and then a copy of it is saved: the last ones are remembered.
    """
    head, _, body = message.partition(b"\r\n\r\n")
    fields = _fields(head)
    return Mail(
        sender=fields.get("From", ""),
        to=tuple(fields.get("To", "").split(", ")),
        subject=fields.get("Subject", ""),
        message_id=fields.get("Message-ID", ""),
        evidence=MessageTag.parse(fields.get(HEADER, "")),
        size_bytes=len(message),
        structure=_structure(fields.get("Content-Type", "text/plain"), body),
    )


def _fields(head: bytes) -> dict[str, str]:
    lines = head.decode("ascii", "replace").replace("\r\n ", " ").split("\r\n")
    return {name: value for name, _, value in [line.partition(": ") for line in lines]}


def _structure(content_type: str, body: bytes) -> Structure:
    media_type = content_type.partition(";")[0]
    if not media_type.startswith("multipart/"):
        return Structure(_part("1", media_type, len(body)))
    boundary = b"--" + content_type.partition("boundary=")[2].partition(";")[0].strip(' "').encode()
    text: Part | None = None
    attachments = []
    for number, piece in enumerate((b"\r\n" + body).split(b"\r\n" + boundary)[1:-1], start=1):
        head, _, content = piece.partition(b"\r\n\r\n")
        fields = _fields(head)
        part = _part(str(number), fields.get("Content-Type", "text/plain").partition(";")[0], len(content))
        if text is None and part.content_type.startswith("text/"):
            text = part
        else:
            encoding = fields.get("Content-Transfer-Encoding", "7bit")
            attachments.append(part._replace(encoding=encoding, filename=f"part{number}"))
    return Structure(text, tuple(attachments))


@lru_cache(maxsize=4096)
def _part(name: str, content_type: str, size_bytes: int) -> Part:
    return Part(name, content_type, size_bytes)
