"""The message that an Email of Email/set describes (RFC 8621 section 4.6), without bodyStructure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.header import Header
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from typing import Any

from .messages import CONVENIENT, header_property
from .store import Refused

METADATA = {"mailboxIds", "keywords", "receivedAt", "bodyValues", "textBody", "htmlBody", "attachments"}
Blob = Callable[[str], bytes | None]

WRITERS: dict[str, Callable[[Any], str]] = {
    "asRaw": str,
    "asText": lambda text: " " + (text if text.isascii() else Header(text, "utf-8").encode(linesep="\r\n")),
    "asAddresses": lambda value: (
        " " + ",\r\n ".join(formataddr((each.get("name") or "", each["email"])) for each in value)
    ),
    "asMessageIds": lambda value: " " + "\r\n ".join(f"<{each}>" for each in value),
    "asDate": lambda value: f" {format_datetime(datetime.fromisoformat(value))}",
}


def compose(email: Mapping[str, Any], blob: Blob, domain: str) -> bytes:
    """Return the octets; raise `Refused` for properties that RFC 8621 section 4.6 forbids."""
    lines = header_lines(email)
    lines.setdefault("date", f"Date: {format_datetime(datetime.now(UTC))}")
    lines.setdefault("message-id", f"Message-ID: <{uuid.uuid4()}@{domain}>")
    return "".join(f"{line}\r\n" for line in lines.values()).encode() + body(email, blob)


def header_lines(email: Mapping[str, Any]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for name, value in email.items():
        if name in METADATA or value is None:
            continue
        try:
            field, form, every = header_property(name)
            text = [
                f"{field.title() if name in CONVENIENT else field}:{WRITERS[form](one)}"
                for one in (value if every else [value])
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Refused("invalidProperties", properties=[name]) from None
        if field.lower() in lines or field.lower().startswith("content-"):
            raise Refused("invalidProperties", properties=[name])
        lines[field.lower()] = "\r\n".join(text)
    return lines


def body(email: Mapping[str, Any], blob: Blob) -> bytes:
    """Return the headers of the content, and the content."""
    values, message = email.get("bodyValues") or {}, EmailMessage(policy=SMTP)
    for name, kind in (("textBody", "plain"), ("htmlBody", "html")):
        parts = email.get(name) or []
        if len(parts) > 1 or any(
            part.get("type", f"text/{kind}") != f"text/{kind}" or "charset" in part for part in parts
        ):
            raise Refused("invalidProperties", properties=[name])
        for part in parts:
            if part.get("partId") not in values:
                raise Refused("invalidProperties", properties=["bodyValues"])
            add = message.add_alternative if message.keys() else message.set_content
            add(values[part["partId"]]["value"], subtype=kind)
    if not message.keys():
        message.set_content("")
    attachments = email.get("attachments") or []
    missing = [part.get("blobId") for part in attachments if blob(str(part.get("blobId"))) is None]
    if missing:
        raise Refused("blobNotFound", notFound=missing)
    for part in attachments:
        main, _, sub = part.get("type", "application/octet-stream").partition("/")
        message.add_attachment(blob(part["blobId"]), maintype=main, subtype=sub, filename=part.get("name"))
    return message.as_bytes()
