"""Mailbox names in modified UTF-7, as IMAP4rev1 writes them (RFC 3501 section 5.1.3)."""

from __future__ import annotations

import binascii
import re

_ENCODED = re.compile(r"&([^&-]*+)-")
_NOT_DIRECT = re.compile(r"&|[^\x20-\x7e]+")


def encode_name(name: str) -> bytes:
    """Encode a name: printable ASCII stays, "&" becomes "&-", other characters are encoded in runs."""
    return _NOT_DIRECT.sub(_shifted, name).encode("ascii")


def decode_name(name: str) -> str:
    """Decode a name; malformed modified UTF-7 is returned unchanged."""
    try:
        return _ENCODED.sub(_unshifted, name)
    except ValueError:  # bad Base64 or UTF-16
        return name


def _shifted(run: re.Match[str]) -> str:
    if run[0] == "&":
        return "&-"
    encoded = binascii.b2a_base64(run[0].encode("utf-16-be", "surrogatepass"), newline=False)
    return "&" + encoded.decode().rstrip("=").replace("/", ",") + "-"


def _unshifted(run: re.Match[str]) -> str:
    if not run[1]:
        return "&"
    base64 = run[1].replace(",", "/") + "=" * (-len(run[1]) % 4)
    return binascii.a2b_base64(base64, strict_mode=True).decode("utf-16-be")
