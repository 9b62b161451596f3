"""The users' tokens: read from a file or printed by a command, and read again when they expire or are refused.

A file is read at each log-on, so that a new token takes effect at once. A command runs when there is no token yet, when
the last one has expired, and when the server has refused it. Users with the same source share it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from asyncio.subprocess import DEVNULL, PIPE
from base64 import urlsafe_b64decode
from binascii import Error as NotBase64
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from loadsim.errors import ConfigError, GeneratorFailed
from loadsim.files import read_text
from loadsim.model.log_on import TokenSource

LARGEST_BYTES = 1 << 16
"""The largest output of a command, and the largest file. Tokens have one to four kilobytes."""

COMMAND_LIMIT_S = 60.0
"""The time limit of a command."""

COMMANDS_AT_ONCE = 8
"""The number of commands that a process runs at a time."""

EARLY_S = 30.0
"""A token is replaced this long before it expires: the log-on and the server's clock take time."""

MOST_MASKED = 2
"""The number of a source's last tokens that are removed from texts."""

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 section 2.1."""


@dataclass(slots=True)
class _Known:
    """The tokens of a source, the last one last, and when that expires by the wall clock; None if unknown."""

    tokens: list[str] = field(default_factory=list, repr=False)
    expires_s: float | None = None


@dataclass(slots=True)
class _Running:
    """The commands of one event loop: their limit, and the lock of each source."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(COMMANDS_AT_ONCE))
    locks: dict[TokenSource, asyncio.Lock] = field(default_factory=dict)


_known: dict[TokenSource, _Known] = {}
_running: WeakKeyDictionary[asyncio.AbstractEventLoop, _Running] = WeakKeyDictionary()


def known(source: TokenSource | None) -> list[str]:
    """Return the last tokens of a source, which no text may show."""
    entry = _known.get(source) if source is not None else None
    return list(entry.tokens) if entry is not None else []


async def current(source: TokenSource, refused: str | None = None) -> str:
    """Return the token of a source, perhaps after one was refused: the same without a new one.

    Raises `GeneratorFailed`, which shows no token.
    """
    if source.file is not None:
        return _kept(source, _from_file(source.file))
    return await _printed(source, refused)


def expiry_note(token: str) -> str:
    """Return a note for an error if a token states that it has expired; else an empty text."""
    expires_s = expiry_s(token)
    if expires_s is None or expires_s > time.time():
        return ""
    with suppress(ValueError, OverflowError, OSError):
        return f"the token expired at {datetime.fromtimestamp(expires_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return "the token has expired"


def expiry_s(token: str) -> float | None:
    """Return the time at which a token expires, if it is a JWT with that claim (RFC 7519 section 4.1.4); else None."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (NotBase64, ValueError, RecursionError):
        return None
    return _seconds(claims.get("exp")) if isinstance(claims, dict) else None


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
        return None
    return float(value)


async def _printed(source: TokenSource, refused: str | None) -> str:
    """Return the last token of a command, unless it has expired or was refused; else that of another call."""
    running = _running.setdefault(asyncio.get_running_loop(), _Running())
    async with running.locks.setdefault(source, asyncio.Lock()):
        known = _known.get(source)
        if known is not None and known.tokens[-1] != refused and _lasts(known.expires_s):
            return known.tokens[-1]
        async with running.slots:
            token, lasts_s = _parsed(await _output(source.command), "accounts.token_command")
        begins_s = time.time()
        _kept(source, token)
        _known[source].expires_s = begins_s + lasts_s if lasts_s is not None else expiry_s(token)
        return token


def _lasts(expires_s: float | None) -> bool:
    return expires_s is None or expires_s - EARLY_S > time.time()


async def _output(command: tuple[str, ...]) -> str:
    key = "accounts.token_command"
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except (OSError, ValueError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "a character that no argument can have"
        raise GeneratorFailed("no token", f"{key}: expected a command that can be run, found: {why}") from None
    try:
        assert process.stdout is not None
        async with asyncio.timeout(COMMAND_LIMIT_S):
            output = b""
            while len(output) <= LARGEST_BYTES and (piece := await process.stdout.read(LARGEST_BYTES)):
                output += piece
            status = await process.wait() if len(output) <= LARGEST_BYTES else 0
    except TimeoutError:
        raise GeneratorFailed("no token", f"{key}: expected a token within {COMMAND_LIMIT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if len(output) > LARGEST_BYTES:
        raise GeneratorFailed("no token", f"{key}: expected at most {LARGEST_BYTES} bytes, found more")
    if status:
        raise GeneratorFailed("no token", f"{key}: expected a command that prints a token, found exit status {status}")
    return output.decode("utf-8", "replace")


def _from_file(path: str) -> str:
    try:
        text = read_text(Path(path), f"accounts.token_file: {path}", most_bytes=LARGEST_BYTES)
    except ConfigError as failure:
        raise GeneratorFailed("no token", str(failure)) from None
    return _parsed(text, f"accounts.token_file: {path}")[0]


def _parsed(text: str, name: str) -> tuple[str, float | None]:
    """Return a token and the time that it lasts (s), if it is stated.

    The text is a token, or the answer of a token endpoint (RFC 6749 section 5.1): JSON with `access_token` and perhaps
    `expires_in`.
    """
    token, lasts_s = text.strip(), None
    if token.startswith("{"):
        try:
            document = json.loads(token)
        except (ValueError, RecursionError):
            document = {}
        token, lasts_s = str(document.get("access_token", "")), _seconds(document.get("expires_in"))
    if not _TOKEN.fullmatch(token):
        expected = "expected a token (RFC 6750), or JSON with an access_token"
        raise GeneratorFailed("no token", f"{name}: {expected}, found {'something else' if token else 'none'}")
    return token, lasts_s


def _kept(source: TokenSource, token: str) -> str:
    """Remember a token, so that it can be removed from texts."""
    known = _known.setdefault(source, _Known())
    if token in known.tokens:
        known.tokens.remove(token)
    known.tokens.append(token)
    del known.tokens[:-MOST_MASKED]
    return token
