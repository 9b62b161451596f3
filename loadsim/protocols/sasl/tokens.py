"""Users' tokens, from files that are read at each log-on, so that a new token takes effect at once."""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from loadsim.errors import ConfigError, GeneratorFailed
from loadsim.files import read_text

LARGEST_BYTES = 1 << 16
"""The largest token file. Tokens have 1 to 4 KB."""

MOST_MASKED = 2
"""The number of recent tokens per file that are masked."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 section 2.1."""

_known: dict[str, list[str]] = {}
"""Each file's recent tokens, the newest last."""


def known(file: str | None) -> list[str]:
    """Return a file's recent tokens, which must never be shown."""
    return [] if file is None else list(_known.get(file, ()))


def current(file: str) -> str:
    """Return the token in a file, and remember it for masking.

    Raises `GeneratorFailed`, whose text does not show the token.
    """
    name = f"accounts.token_file: {file}"
    try:
        token = _parsed(read_text(Path(file), name, most_bytes=LARGEST_BYTES), name)
    except ConfigError as failure:
        raise GeneratorFailed("no token", str(failure)) from None
    tokens = _known.setdefault(file, [])
    if token in tokens:
        tokens.remove(token)
    tokens.append(token)
    del tokens[:-MOST_MASKED]
    return token


def expiry_note(token: str) -> str:
    """Return a note for an error if the token has expired according to its own claim, else ""."""
    expires_s = expiry_s(token)
    if expires_s is None or expires_s > time.time():
        return ""
    with suppress(ValueError, OverflowError, OSError):
        return f"the token expired at {datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return "the token has expired"


def expiry_s(token: str) -> float | None:
    """Return a token's expiry (Unix time); None unless it is a JWT with that claim (RFC 7519 section 4.1.4)."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (NotBase64, ValueError, RecursionError):
        return None
    value = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        return None
    return float(value)


def _parsed(text: str, name: str) -> str:
    """Return the token in some text: the bare token, or a token endpoint's answer in JSON (RFC 6749 section 5.1)."""
    token = text.strip()
    if token.startswith("{"):
        try:
            document = json.loads(token)
        except (ValueError, RecursionError):
            document = {}
        token = str(document.get("access_token", ""))
    if not _TOKEN.fullmatch(token):
        expected = "expected a token (RFC 6750), or JSON with an access_token"
        raise GeneratorFailed("no token", f"{name}: {expected}, found {'something else' if token else 'none'}")
    return token
