"""Removal of passwords and tokens from text that a server sends, in every form that log-on methods use."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64

from loadsim.model.ports import Account
from loadsim.protocols.sasl import tokens

MASK = "***"

_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")
_PROOF = re.compile(rb"c=[A-Za-z0-9+/=]+,r=.*,p=|.+ [0-9a-f]{32}\Z", re.DOTALL)
"""SCRAM and CRAM-MD5 responses, from which passwords can be guessed offline."""


_WORD_AT_END = re.compile(r"[A-Za-z0-9+/=\ufffd]+\Z")
"""A word at the end that may be Base64, or part of a character."""


def without_password(text: str, account: Account, *, is_cut: bool = False) -> str:
    """Replace the password and tokens with `***`, in every form in which they are sent or may be repeated.

    With `is_cut`, the text's end is missing: its last word is removed, and so is a secret's beginning.
    """
    secrets = [secret for secret in (account.password, *tokens.known(account.token_file)) if secret]
    if not secrets:
        return _WORD_AT_END.sub("", text) if is_cut else text
    forms: set[str] = set()
    for secret in secrets:
        escaped = secret.replace("\\", "\\\\")
        encoded = b64encode(secret.encode()).decode()
        forms |= {secret, escaped, escaped.replace('"', '\\"'), encoded, encoded.rstrip("=")}
        forms.add(secret.encode("latin-1", "replace").decode("utf-8", "replace"))  # as some servers repeat it
    text = _BASE64.sub(lambda match: _masked(match[0], secrets), text)
    for form in sorted(forms, key=len, reverse=True):
        if form.lower() in text.lower():  # servers repeat commands in upper case
            text = re.sub(re.escape(form), MASK, text, flags=re.IGNORECASE)
    if is_cut:
        text = _WORD_AT_END.sub("", text)
        text = text[: len(text) - max(_overlap(text, form) for form in forms)]
    return text


def _overlap(text: str, form: str) -> int:
    """Return the length of the longest ending of the text that is the beginning of a secret."""
    return next((size for size in range(len(form), 0, -1) if text[-size:].lower() == form[:size].lower()), 0)


def _masked(word: str, secrets: list[str]) -> str:
    """Return a word, or `***` if it is the Base64 of a message with a secret: PLAIN's, a token's, or a proof."""
    bare = word.rstrip("=")
    try:
        message = b64decode(bare + "=" * (-len(bare) % 4))
    except (NotBase64, ValueError):  # a cut message
        message = b64decode(bare[: len(bare) // 4 * 4])
    if _PROOF.match(message) or any(secret.encode() in message for secret in secrets):
        return MASK
    return word
