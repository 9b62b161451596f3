"""Properties of an Email that its message determines (RFC 8621 section 4.1)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from email import message_from_bytes
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message as Part
from email.utils import getaddresses
from functools import cached_property
from typing import Any


def unfolded(raw: str) -> str:
    return re.sub(r"\r?\n", "", raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")).strip()


def text_of(raw: str) -> str:
    text = unfolded(raw)
    with suppress(HeaderParseError, LookupError, UnicodeError):
        return str(make_header(decode_header(text))) if "=?" in text else text
    return text


def addresses_of(raw: str) -> list[dict[str, Any]]:
    return [{"name": text_of(name) or None, "email": email} for name, email in getaddresses([unfolded(raw)])]


def ids_of(raw: str) -> list[str] | None:
    return re.findall(r"<([^<>\s]+)>", raw) or None


HEADERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **{name: (name, addresses_of) for name in ("from", "to", "cc")},
    **{"subject": ("subject", text_of), "messageId": ("message-id", ids_of), "inReplyTo": ("in-reply-to", ids_of)},
}
"""The field and the form of each property."""


def header_value(part: Part, name: str) -> Any:
    """Return a property that shows a header field; raise `KeyError` for any other."""
    match = re.fullmatch(r"header:(X-[!-9;-~]+):asText", name)
    field, form = (match[1].lower(), text_of) if match else HEADERS[name]
    values = [raw for key, raw in part.raw_items() if key.lower() == field]
    return form(values[-1]) if values else None


def leaves_of(part: Any) -> list[Part]:
    whole = part.is_multipart() and part.get_content_maintype() == "multipart"
    return [leaf for each in part.get_payload() for leaf in leaves_of(each)] if whole else [part]


def content_of(part: Any) -> Any:
    return part.get_payload(0).as_bytes() if part.is_multipart() else part.get_payload(decode=True) or b""


class Message:
    """The octets of a message, parsed at their first use."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.digest = hashlib.sha256(raw).hexdigest()[:40]
        self.blob_id = f"B{self.digest}"

    @cached_property
    def root(self) -> Part:
        return message_from_bytes(self.raw)

    @cached_property
    def bodies(self) -> dict[str, list[Part]]:
        """Return the parts of textBody and attachments."""
        leaves = leaves_of(self.root)
        shown = [part for part in leaves if part.get_content_disposition() != "attachment" and not part.get_filename()]
        plain, html = (
            [part for part in shown if part.get_content_type() == f"text/{kind}"] for kind in ("plain", "html")
        )
        others = [part for part in leaves if part not in plain + html]
        return {"textBody": plain or html, "attachments": others}

    def describe(self, part: Part, properties: Sequence[str]) -> dict[str, Any]:
        """Return an EmailBodyPart; raise `KeyError` for an unknown property."""
        return {name: PART[name](self, part) for name in properties}

    def value(self, part: Part) -> dict[str, Any]:
        """Return an EmailBodyValue."""
        content, charset = content_of(part), part.get_content_charset("utf-8").replace("us-ascii", "utf-8")
        text = content.decode(charset, "replace").replace("\r\n", "\n")
        return {"value": text, "isEncodingProblem": "\ufffd" in text, "isTruncated": False}

    @cached_property
    def text(self) -> str:
        return "\n".join(self.value(part)["value"] for part in self.bodies["textBody"])

    def part_id(self, part: Part) -> str:
        return str(leaves_of(self.root).index(part) + 1)

    def part_content(self, number: str) -> bytes | None:
        return next((content_of(part) for part in leaves_of(self.root) if self.part_id(part) == number), None)


PART: dict[str, Callable[[Message, Part], Any]] = {
    "partId": lambda message, part: message.part_id(part),
    "blobId": lambda message, part: f"{message.blob_id}-{message.part_id(part)}",
    "size": lambda _, part: len(content_of(part)),
    "name": lambda _, part: text_of(part.get_filename() or "") or None,
    "type": lambda _, part: part.get_content_type(),
}
