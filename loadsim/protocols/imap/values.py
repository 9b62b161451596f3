"""Envelopes and body structures from nested values (RFC 9051 section 7.5.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from loadsim.errors import ProtocolError
from loadsim.protocols.imap.responses import Address, Envelope, Leaf, Multipart

Value: TypeAlias = "bytes | list[Value] | None"
"""A value in a response: a string or an atom, NIL, or a list in parentheses."""

DEEPEST = 200
"""The deepest nesting of lists. Dovecot reads 100 levels of parts."""

LARGEST_NUMBER64 = 2**63 - 1
"""The largest size and modification sequence (RFC 9051 section 9, number64)."""

_FIELD_PARAMETER = re.compile(rb';[ \t]*+([^=;\s"]++)=(?:"([^"]*+)"|([^;\s"]++))')
_SIZE = re.compile(rb"\d{1,19}")
_MESSAGES = frozenset({"message/rfc822", "message/global"})


def decoded(raw: bytes) -> str:
    """Return the protocol's own words as text; invalid bytes become replacement characters."""
    return raw.decode("utf-8", "replace")


def malformed(where: str, expected: str, at: int) -> ProtocolError:
    """Return the parser's error, which does not quote the response."""
    return ProtocolError("IMAP syntax", f"{where}: expected {expected} at byte {at}")


def envelope_of(value: Value, at: int) -> Envelope:
    """Return the ENVELOPE that ends at byte `at`."""
    if not isinstance(value, list) or len(value) != 10:
        raise malformed("ENVELOPE", "ten fields", at)
    return Envelope._make(
        (
            *(_nstring(field, at) for field in value[:2]),
            *(_addresses(field, at) for field in value[2:8]),
            *(_nstring(field, at) for field in value[8:]),
        )
    )


def _nstring(value: Value, at: int) -> bytes | None:
    if isinstance(value, list):
        raise malformed("a value", "a string or NIL", at)
    return value


def _addresses(value: Value, at: int) -> tuple[Address, ...]:
    if not value:
        return ()
    if not isinstance(value, list):
        raise malformed("ENVELOPE", "a list of addresses", at)
    addresses = []
    for fields in value:
        if not isinstance(fields, list) or len(fields) != 4:
            raise malformed("ENVELOPE", "an address of four fields", at)
        # An empty string counts as NIL.
        addresses.append(Address(*[_nstring(field, at) or None for field in fields]))
    return tuple(addresses)


def body_of(value: Value, at: int, within: int = 0) -> Leaf | Multipart:
    """Return the BODYSTRUCTURE that ends at byte `at`, nested in `within` parts (RFC 9051 section 9, body)."""
    if within > DEEPEST:
        raise malformed("BODYSTRUCTURE", f"at most {DEEPEST} parts within parts", at)
    if not isinstance(value, list) or not value:
        raise malformed("BODYSTRUCTURE", "a list", at)
    if isinstance(value[0], list):
        parts: list[Leaf | Multipart] = []
        for part in value:
            if not isinstance(part, list):
                break
            parts.append(body_of(part, at, within + 1))
        subtype = value[len(parts)] if len(parts) < len(value) else b"mixed"
        return Multipart(_word(subtype, at), tuple(parts))
    if len(value) < 7:
        raise malformed("BODYSTRUCTURE", "seven fields of a part", at)
    size = value[6]
    if not isinstance(size, bytes) or not _SIZE.fullmatch(size) or int(size) > LARGEST_NUMBER64:
        raise malformed("BODYSTRUCTURE", "a size", at)
    content_type = f"{_word(value[0], at)}/{_word(value[1], at)}"
    # The extensions: MD5, disposition, ... They come after the lines of a text part, and after the envelope, body
    # and lines of an attached message (RFC 9051 section 9, body-type-1part).
    extensions = 7
    if content_type.startswith("text/"):
        extensions = 8
    elif content_type in _MESSAGES and len(value) > 7 and isinstance(value[7], list):
        extensions = 10
    shown, shown_parameters = _disposition(value[extensions + 1] if len(value) > extensions + 1 else None, at)
    return Leaf(
        content_type,
        _parameters(value[2]),
        _word(value[5], at) if value[5] is not None else "7bit",
        int(size),
        shown,
        shown_parameters,
    )


def _disposition(value: Value, at: int) -> tuple[str | None, Mapping[str, bytes]]:
    """Return the type and parameters of a body-fld-dsp; pymap sends the header field itself, as one string."""
    if not value:
        return None, {}
    if isinstance(value, list):
        return _word(value[0], at), _parameters(value[1]) if len(value) > 1 else {}
    return field_value(value)


def field_value(value: bytes) -> tuple[str, Mapping[str, bytes]]:
    """Return the value and parameters of a header field such as Content-Type (RFC 2045 section 5.1)."""
    parameters = {decoded(match[1]).lower(): match[2] or match[3] or b"" for match in _FIELD_PARAMETER.finditer(value)}
    return decoded(value.partition(b";")[0]).strip().lower(), parameters


def _word(value: Value, at: int) -> str:
    if not isinstance(value, bytes):
        raise malformed("BODYSTRUCTURE", "a string", at)
    return decoded(value).lower()


def _parameters(value: Value) -> Mapping[str, bytes]:
    if not isinstance(value, list):
        return {}
    return {
        decoded(key).lower(): setting
        for key, setting in zip(value[::2], value[1::2], strict=False)
        if isinstance(key, bytes) and isinstance(setting, bytes)
    }
