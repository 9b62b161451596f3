"""Log-on methods, and patterns with a user's number and name."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from loadsim.documents.schema import text
from loadsim.documents.typed import Reads, mismatch

TOKEN_METHODS = ("oauthbearer", "xoauth2")
"""Methods whose secret is a token (RFC 7628; Google's and Microsoft's XOAUTH2)."""

SCRAM_METHODS = ("scram-sha-256", "scram-sha-1")
"""RFC 5802 and RFC 7677, without channel binding."""

LOGIN_COMMAND = "login-command"
"""IMAP's command LOGIN, or POP3's USER and PASS; `login` is the SASL mechanism of that name."""

METHODS = ("external", *TOKEN_METHODS, *SCRAM_METHODS, "plain", "login", LOGIN_COMMAND, "cram-md5")
"""All log-on methods by their names in a scenario: SASL mechanisms in lower case, and `login-command`."""

AIOSMTPLIB_METHODS = ("cram-md5", "plain", "login", "xoauth2")
"""The methods of the library aiosmtplib, none of which sends an authorisation identity."""

CONNECTION_METHODS = ("ntlm", "negotiate")
"""HTTP methods that log on a connection rather than each request."""

BEARER = "bearer"
"""The HTTP method that sends a token with each request (RFC 6750)."""

WITH_AUTHZID = frozenset((*SCRAM_METHODS, "external", "oauthbearer", "plain"))
"""Methods that carry an authorisation identity."""

AUTO = "auto"
"""Choose the strongest method that the server offers and the account's secret allows."""

_FIELD = re.compile(r"\{(index|user)(?::(0?[1-9]?)d?)?\}")
"""{index}, {index:05d} and {user}: a user's number and log-on name."""


def fill(pattern: str, index: int, user: str) -> str:
    """Fill in a pattern: the user's number for `{index}`, the log-on name for `{user}`."""
    return _FIELD.sub(lambda match: user if match[1] == "user" else format(index, f"{match[2] or ''}d"), pattern)


def is_pattern(pattern: str) -> bool:
    """Return whether a text differs from user to user."""
    return _FIELD.search(pattern) is not None


def _pattern(value: object) -> str:
    pattern = text(value)
    if re.search(r"[{}]", _FIELD.sub("", pattern)):
        raise mismatch("no fields but {index} and {user}")
    return pattern


Pattern = Annotated[str, Reads(_pattern, "text")]
"""A text with the fields `{index}` and `{user}`."""


def _command(line: str) -> tuple[str, ...]:
    """Return the words of a command. No error shows them, since one may be a secret."""
    try:
        words = shlex.split(line)
    except ValueError:
        raise mismatch("a command", "unclosed quotation marks") from None
    if not words or not words[0]:
        raise mismatch("a command", "none")
    return tuple(words)


Command = Annotated[tuple[str, ...], Reads(lambda value: _command(text(value)), "text")]


def described(methods: tuple[str, ...]) -> str:
    return " or ".join(methods) or AUTO
