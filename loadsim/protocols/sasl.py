"""SASL PLAIN (RFC 4616), and the removal of a password from a server's texts in each form in which it was sent."""

from __future__ import annotations

from base64 import b64encode

from loadsim.model.ports import Account


def plain(account: Account) -> bytes:
    """Return the message of the mechanism PLAIN, in Base64."""
    return b64encode(b"\0%b\0%b" % (account.login.encode(), account.password.encode()))


def without_password(text: str, account: Account) -> str:
    """Return a text with `***` for the password in each form in which it is sent, or a server may repeat it."""
    password = account.password
    if not password:
        return text
    escaped = password.replace("\\", "\\\\")
    encoded = (b64encode(password.encode()).decode(), plain(account).decode())
    forms = (password, escaped, escaped.replace('"', '\\"'), *encoded, *(each.rstrip("=") for each in encoded))
    for secret in sorted(forms, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
