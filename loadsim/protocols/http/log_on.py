"""Log-on over HTTP: Basic or Bearer with each request (RFC 7617, RFC 6750), or NTLM or Negotiate per connection."""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

from loadsim.errors import ConfigError, ProtocolError
from loadsim.model.ports import Account, Endpoint
from loadsim.protocols.sasl import tokens
from loadsim.scenario.log_on import BEARER, CONNECTION_METHODS

if TYPE_CHECKING:
    from spnego import ContextProxy

MOST_STEPS = 5
"""The most requests in a handshake; NTLM takes two."""


def check_library(endpoint: Endpoint) -> None:
    """Raise `ConfigError` if an endpoint's log-on method needs a package that is missing."""
    if endpoint.methods:
        try:
            import spnego  # noqa: F401 - an extra
        except ImportError:
            expected = f"the package pyspnego for {endpoint.methods[0]}"
            raise ConfigError(
                f"server.mapi.auth: expected {expected}, found none; pip install 'loadsim[ntlm]'"
            ) from None


def logs_on_connection(endpoint: Endpoint) -> bool:
    """Return True if a log-on is a connection's, not each request's (RFC 4559)."""
    return bool(endpoint.methods) and endpoint.methods[0] in CONNECTION_METHODS


def credentials(endpoint: Endpoint, account: Account) -> str:
    """Return the Authorization value of each request. Raises `GeneratorFailed` if a token cannot be read."""
    if endpoint.methods[:1] == (BEARER,):
        assert account.token_file is not None
        return f"Bearer {tokens.current(account.token_file)}"
    return "Basic " + b64encode(f"{account.name}:{account.password}".encode()).decode()


def authorized(request: bytes, value: str) -> bytes:
    """Return a request with this Authorization value."""
    line, _, rest = request.partition(b"\r\n")
    return b"%b\r\nAuthorization: %b\r\n%b" % (line, value.encode(), rest)


class Handshake:
    """One connection's log-on messages. Over TLS they are bound to the server's certificate (RFC 5929)."""

    def __init__(self, endpoint: Endpoint, account: Account, transport: asyncio.BaseTransport) -> None:
        import spnego
        from spnego.channel_bindings import GssChannelBindings

        self.scheme = {"ntlm": "NTLM", "negotiate": "Negotiate"}[endpoint.methods[0]]
        tls = transport.get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        bound = None
        if certificate:
            bound = GssChannelBindings(application_data=b"tls-server-end-point:" + sha256(certificate).digest())
        self._context: ContextProxy = spnego.client(
            account.name,
            account.password,
            hostname=endpoint.host,
            service="HTTP",
            channel_bindings=bound,
            protocol=endpoint.methods[0],
        )

    def answer(self, challenges: str = "") -> str | None:
        """Return the Authorization value that answers WWW-Authenticate; None if no answer is due."""
        challenge = re.search(rf"\b{self.scheme} ([A-Za-z0-9+/]+=*)", challenges)
        if challenges and challenge is None:
            return None
        try:
            token = self._context.step(b64decode(challenge[1] + "==") if challenge else None)
        except Exception as failure:  # noqa: BLE001 - pyspnego also lets its parser's errors through
            why = "a malformed challenge" if challenge else "no first message could be made here"
            raise ProtocolError(f"HTTP {self.scheme}", f"{why} ({type(failure).__name__})") from None
        return f"{self.scheme} {b64encode(token).decode()}" if token else None
