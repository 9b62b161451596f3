"""SASL PLAIN (RFC 4616), and the removal of a password from a server's texts in each form in which it was sent."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

from loadsim.model.ports import Account


def plain(account: Account) -> bytes:
    """Return the message of the mechanism PLAIN, in Base64."""
    return b64encode(b"\0%b\0%b" % (account.login.encode(), account.password.encode()))


def without_password(text: str, account: Account) -> str:
    """Return a server's text with `***` for the account's password in each of its `password_forms`."""
    for secret in sorted(password_forms(account), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def password_forms(account: Account) -> Iterator[str]:
    """Yield the forms in which the password is sent, or a server may repeat it; none if it is empty."""
    password = account.password
    if password:
        yield password
        yield password.replace("\\", "\\\\")
        yield password.replace("\\", "\\\\").replace('"', '\\"')
        for encoded in (b64encode(password.encode()).decode(), plain(account).decode()):
            yield encoded
            yield encoded.rstrip("=")
