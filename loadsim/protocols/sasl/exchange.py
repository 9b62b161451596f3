"""One log-on as a sequence of messages: an initial response, then a response to each challenge (RFC 4422 section 3). No
I/O.

Challenges are hostile until checked. One too many, or one longer than `LONGEST_CHALLENGE`, is a `ProtocolError`.
"""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from loadsim.errors import ProtocolError
from loadsim.model.ports import Account, Endpoint

LONGEST_CHALLENGE = 8192
"""The most characters of a challenge in Base64; SCRAM's have about a hundred."""


class Exchange(Protocol):
    """The client's side of one log-on. It cannot be reused."""

    mechanism: str
    """The name in IANA's registry, such as SCRAM-SHA-256."""

    def initial(self) -> bytes | None:
        """Return the initial response; None if the server sends first."""
        ...

    def work(self, challenge: bytes) -> Callable[[], object] | None:
        """Return a calculation that `respond` needs, which takes milliseconds and may run in a thread; None if there is
        none.

        Raises `ProtocolError`.
        """
        ...

    def respond(self, challenge: bytes) -> bytes:
        """Return the response to a challenge. Raises `ProtocolError` if the server cannot be trusted."""
        ...

    def succeed(self) -> None:
        """Check that the server may end the exchange with success now. Raises `ProtocolError`."""
        ...

    def reason(self) -> str:
        """Return the server's reason for a refusal, as the mechanism conveys it; "" if it gave none."""
        ...


def decoded(challenge: str, mechanism: str) -> bytes:
    """Decode a challenge from Base64. Raises `ProtocolError`."""
    if len(challenge) > LONGEST_CHALLENGE:
        raise ProtocolError(f"{mechanism} challenge", f"more than {LONGEST_CHALLENGE} characters")
    try:
        return b64decode(challenge, validate=True)
    except (NotBase64, ValueError):
        raise ProtocolError(f"{mechanism} challenge", "expected Base64") from None


@dataclass(slots=True, repr=False)
class Messages:
    """An exchange in which the server proves nothing: PLAIN, EXTERNAL, LOGIN, CRAM-MD5.

    `first` is the initial response, or None. Each of `responses` answers one challenge; all must be sent before success
    counts.
    """

    mechanism: str
    first: bytes | None
    responses: list[Callable[[bytes], bytes]] = field(default_factory=list)

    def initial(self) -> bytes | None:
        return self.first

    def work(self, challenge: bytes) -> Callable[[], object] | None:
        return None

    def respond(self, challenge: bytes) -> bytes:
        if not self.responses:
            raise surplus(self.mechanism)
        return self.responses.pop(0)(challenge)

    def succeed(self) -> None:
        if self.responses:
            raise ProtocolError(f"{self.mechanism} success", "the server accepted a log-on without the password")

    def reason(self) -> str:
        return ""


@dataclass(slots=True, repr=False)
class Bearer:
    """A token in one message: OAUTHBEARER (RFC 7628), XOAUTH2. A challenge states the reason for a refusal, in JSON."""

    mechanism: str
    message: bytes
    acknowledgement: bytes  # of the reason; the server waits for it before it refuses
    _reason: str = ""

    def initial(self) -> bytes | None:
        return self.message

    def work(self, challenge: bytes) -> Callable[[], object] | None:
        return None

    def respond(self, challenge: bytes) -> bytes:
        if self._reason:
            raise surplus(self.mechanism)
        self._reason = _status(challenge)
        return self.acknowledgement

    def succeed(self) -> None:
        if self._reason:
            raise ProtocolError(f"{self.mechanism} success", "the server refused the token, and accepted it")

    def reason(self) -> str:
        return self._reason


def _status(challenge: bytes) -> str:
    """Return the status from an error's JSON, the rest of which may repeat the token."""
    try:
        document = json.loads(challenge)
        status = str(document.get("status") or document.get("error") or "") if isinstance(document, dict) else ""
    except (ValueError, RecursionError):
        status = ""
    return status if re.fullmatch(r"[A-Za-z0-9_-]{1,40}", status) else "the token was refused"


def surplus(mechanism: str) -> ProtocolError:
    """Return the failure for a server that sends more challenges than the mechanism has."""
    return ProtocolError(f"{mechanism} challenge", "expected the end of the exchange, found another challenge")


# --- the messages -------------------------------------------------------------------------------------------------


def plain(account: Account) -> bytes:
    """Return PLAIN's message (RFC 4616): the identity to act as, the name, the password."""
    authzid = (account.authzid or "").encode()
    return b"%b\0%b\0%b" % (authzid, account.name.encode(), account.password.encode())


def xoauth2(account: Account, token: str) -> bytes:
    """Return XOAUTH2's message, as Google and Microsoft document it: the mailbox's name and the token."""
    return f"user={account.name}\1auth=Bearer {token}\1\1".encode()


def oauthbearer(account: Account, token: str, endpoint: Endpoint) -> bytes:
    """Return OAUTHBEARER's message (RFC 7628 section 3.1)."""
    identity = escaped_name(account.authzid or account.name)
    return f"n,a={identity},\1host={endpoint.host}\1port={endpoint.port}\1auth=Bearer {token}\1\1".encode()


def escaped_name(name: str) -> str:
    """Escape the two characters of a name that separate attributes (RFC 5801 section 4)."""
    return name.replace("=", "=3D").replace(",", "=2C")


def login(account: Account) -> Messages:
    """Return LOGIN: name and password on request (draft-murchison-sasl-login). The prompts are ignored."""
    name, password = account.name.encode(), account.password.encode()
    return Messages("LOGIN", None, [lambda _: name, lambda _: password])


def cram_md5(account: Account) -> Messages:
    """Return CRAM-MD5 (RFC 2195): the name, and a digest of the challenge keyed with the password."""

    def respond(challenge: bytes) -> bytes:
        if not challenge:
            raise ProtocolError("CRAM-MD5 challenge", "expected one, found an empty text")
        digest = hmac.digest(account.password.encode(), challenge, "md5").hex()
        return f"{account.name} {digest}".encode()

    return Messages("CRAM-MD5", None, [respond])
