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
from email.policy import Compat32
from email.utils import getaddresses, parsedate_to_datetime
from functools import cached_property
from typing import Any

ADDRESSES = {"from", "sender", "reply-to", "to", "cc", "bcc"}
IDS = {"message-id", "in-reply-to", "references"}
TEXTS = {"subject", "comments", "keywords", "list-id"}
KNOWN = ADDRESSES | IDS | TEXTS | {"date", "received", "return-path"}
FIELDS = {"asText": TEXTS, "asAddresses": ADDRESSES, "asMessageIds": IDS, "asDate": {"date"}, "asRaw": KNOWN}
"""The known header fields that may have each form; unknown ones may have all."""

CONVENIENT = {name: f"header:{name}:asAddresses" for name in ("sender", "from", "to", "cc", "bcc")}
CONVENIENT |= {"replyTo": "header:Reply-To:asAddresses", "subject": "header:Subject:asText"}
CONVENIENT |= {"messageId": "header:Message-ID:asMessageIds", "inReplyTo": "header:In-Reply-To:asMessageIds"}
CONVENIENT |= {"references": "header:References:asMessageIds", "sentAt": "header:Date:asDate"}
PREVIEW_CHARACTERS = 256


class RawHeaders(Compat32):
    """Keeps header values with their white space."""

    def header_source_parse(self, sourcelines: Sequence[str]) -> tuple[str, str]:
        name, _, first = sourcelines[0].partition(":")
        return name, "".join([first, *sourcelines[1:]]).rstrip("\r\n")

    def header_fetch_parse(self, name: str, value: str) -> str:
        return unfolded(value)


def readable(raw: str) -> str:
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def unfolded(raw: str) -> str:
    return re.sub(r"\r?\n", "", readable(raw)).strip()


def text_of(raw: str) -> str:
    text = unfolded(raw)
    with suppress(HeaderParseError, LookupError, UnicodeError):
        return str(make_header(decode_header(text))) if "=?" in text else text
    return text


def addresses_of(raw: str) -> list[dict[str, Any]]:
    return [{"name": text_of(name) or None, "email": email} for name, email in getaddresses([unfolded(raw)])]


def date_of(raw: str) -> str | None:
    with suppress(ValueError):
        return parsedate_to_datetime(raw.strip()).isoformat().replace("+00:00", "Z")
    return None


FORMS: dict[str, Callable[[str], Any]] = {"asRaw": readable, "asText": text_of, "asAddresses": addresses_of}
FORMS |= {"asMessageIds": lambda raw: re.findall(r"<([^<>\s]+)>", raw) or None, "asDate": date_of}


def header_property(name: str) -> tuple[str, str, bool]:
    """Return the header field, its form, and if all are meant; raise `ValueError` for a form that it may not have."""
    match = re.fullmatch(r"header:([!-9;-~]+)(?::(as\w+))?(:all)?", CONVENIENT.get(name, name))
    field, form = (match[1], match[2] or "asRaw") if match else ("", "")
    if match is None or form not in FIELDS or (field.lower() in KNOWN and field.lower() not in FIELDS[form]):
        raise ValueError(name)
    return field, form, match[3] is not None


def header_value(part: Part, name: str) -> Any:
    field, form, every = header_property(name)
    values = [FORMS[form](raw) for key, raw in part.raw_items() if key.lower() == field.lower()]
    return values if every else values[-1] if values else None


def leaves_of(part: Part) -> list[Part]:
    return [leaf for each in children(part) for leaf in leaves_of(each)] if children(part) else [part]


def children(part: Part) -> list[Part]:
    return part.get_payload() if part.is_multipart() and part.get_content_maintype() == "multipart" else []


def content_of(part: Part) -> bytes:
    return part.get_payload(0).as_bytes() if part.is_multipart() else part.get_payload(decode=True) or b""


class Message:
    """The octets of a message, parsed at their first use."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.digest = hashlib.sha256(raw).hexdigest()[:40]
        self.blob_id = f"B{self.digest}"

    @cached_property
    def root(self) -> Part:
        return message_from_bytes(self.raw, policy=RawHeaders())

    @cached_property
    def leaves(self) -> list[Part]:
        return leaves_of(self.root)

    @cached_property
    def bodies(self) -> dict[str, list[Part]]:
        """Return the parts of textBody, htmlBody and attachments: each text is in both bodies if it is in one form."""
        shown = [
            part for part in self.leaves if part.get_content_disposition() != "attachment" and not part.get_filename()
        ]
        plain, html = (
            [part for part in shown if part.get_content_type() == f"text/{kind}"] for kind in ("plain", "html")
        )
        others = [part for part in self.leaves if part not in plain + html]
        return {"textBody": plain or html, "htmlBody": html or plain, "attachments": others}

    def describe(self, part: Part, properties: Sequence[str]) -> dict[str, Any]:
        """Return an EmailBodyPart."""
        inner = [self.describe(each, properties) for each in children(part)] or None
        whole = {name: of_part(self, part) for name, of_part in PART.items() if name in properties} | {
            "subParts": inner
        }
        return {name: whole[name] if name in whole else header_value(part, name) for name in properties}

    def value(self, part: Part, most_bytes: int = 0) -> dict[str, Any]:
        """Return an EmailBodyValue."""
        content, problem = content_of(part), False
        try:
            text = content.decode(part.get_content_charset("utf-8").replace("us-ascii", "utf-8"))
        except (LookupError, UnicodeError):
            text, problem = content.decode("utf-8", "replace"), True
        whole = text.replace("\r\n", "\n")
        cut = whole.encode()[:most_bytes].decode("utf-8", "ignore") if most_bytes else whole
        return {"value": cut, "isEncodingProblem": problem, "isTruncated": cut != whole}

    @cached_property
    def text(self) -> str:
        return "\n".join(self.value(part)["value"] for part in self.bodies["textBody"])

    @property
    def preview(self) -> str:
        return " ".join(re.sub(r"<[^>]*>", " ", self.text).split())[:PREVIEW_CHARACTERS]

    def part_id(self, part: Part) -> str | None:
        return None if children(part) else str(self.leaves.index(part) + 1)

    def part_content(self, number: str) -> bytes | None:
        return next((content_of(part) for part in self.leaves if self.part_id(part) == number), None)


PART: dict[str, Callable[[Message, Part], Any]] = {
    "partId": lambda message, part: message.part_id(part),
    "blobId": lambda message, part: None if children(part) else f"{message.blob_id}-{message.part_id(part)}",
    "size": lambda _, part: 0 if children(part) else len(content_of(part)),
    "name": lambda _, part: text_of(part.get_filename() or "") or None,
    "type": lambda _, part: part.get_content_type(),
    "charset": lambda _, part: part.get_content_charset("us-ascii") if part.get_content_maintype() == "text" else None,
    "disposition": lambda _, part: part.get_content_disposition(),
    "cid": lambda _, part: part.get("Content-Id", "").strip("<>") or None,
    "language": lambda _, part: re.findall(r"[\w-]+", part.get("Content-Language", "")) or None,
    "location": lambda _, part: part.get("Content-Location"),
    "headers": lambda _, part: [{"name": name, "value": readable(raw)} for name, raw in part.raw_items()],
}
DEFAULT_PART = [name for name in PART if name != "headers"]
