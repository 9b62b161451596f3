"""How a password is sent (RFC 4616), and in which disguises a server might therefore repeat it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

from loadsim.model.ports import Account


def plain(account: Account) -> bytes:
    """The message of the mechanism PLAIN, in Base64."""
    return b64encode(b"\0%b\0%b" % (account.login.encode(), account.password.encode()))


def without_password(said: str, account: Account) -> str:
    """What a server said, with `***` for the account's password in every form in which it may have been sent."""
    for secret in sorted(disguises(account), key=len, reverse=True):
        said = said.replace(secret, "***")
    return said


def disguises(account: Account) -> Iterator[str]:
    """The password in every form in which it is sent, and in those that a server might repeat; none if it is empty."""
    password = account.password
    if password:
        yield password
        yield password.replace("\\", "\\\\")
        yield password.replace("\\", "\\\\").replace('"', '\\"')
        for encoded in (b64encode(password.encode()).decode(), plain(account).decode()):
            yield encoded
            yield encoded.rstrip("=")
