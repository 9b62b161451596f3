"""The TLS context of an endpoint: certificates and host names are always verified, sessions are resumed.

A mail program remembers its last TLS session with a service, and offers it when it connects again: the server then
neither signs nor sends its certificate (RFC 8446 section 2.2, RFC 5077). So does each simulated user, with sessions of
his own: nobody's first connection is spared the whole handshake by somebody else's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint

_CONNECTING: ContextVar[int | None] = ContextVar("the user who connects", default=None)


class ResumingContext(ssl.SSLContext):
    """A context for all users of an endpoint that offers each his own last session; sessions end with the context."""

    sessions: dict[int, ssl.SSLSession]

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """What event loops call to begin a handshake, in the context of who connects."""
        user = _CONNECTING.get()
        if session is None and user is not None:
            session = self.sessions.get(user)
        return super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)

    def remember(self, user: int, session: ssl.SSLSession | None) -> None:
        """Keep it for the user's next connection, if the server gave a ticket with it, or a name."""
        if session is not None and (session.has_ticket or session.id):
            self.sessions[user] = session


@contextmanager
def handshakes_of(user: int) -> Iterator[None]:
    """Handshakes that begin within the block, in this task, are this user's."""
    token = _CONNECTING.set(user)
    try:
        yield
    finally:
        _CONNECTING.reset(token)


def remember(user: int, transport: asyncio.BaseTransport | None) -> None:
    """Remember the TLS session of a connection, if it has one: after its first answer, for tickets come with that."""
    secured = transport.get_extra_info("ssl_object") if transport is not None else None
    if isinstance(secured, ssl.SSLObject) and isinstance(secured.context, ResumingContext):
        secured.context.remember(user, secured.session)


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """The context with which to secure connections to this endpoint; None when it is spoken to in the clear.

    Costly (it loads the authorities): make one per endpoint, not one per connection. Raises `ConfigError` when
    the authorities' file cannot be read.
    """
    if endpoint.tls == "none":
        return None
    kind = ResumingContext if endpoint.resumes else ssl.SSLContext
    context = kind(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names
    if isinstance(context, ResumingContext):
        context.sessions = {}
    authorities = with_authorities(endpoint).authorities
    if authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        context.load_verify_locations(cadata=authorities)
    except (ValueError, ssl.SSLError):  # the first for a file that is empty
        raise _no_authorities(endpoint, "none in it") from None
    return context


def with_authorities(endpoint: Endpoint) -> Endpoint:
    """The endpoint with what stands in its `ca_file`, so that it can be used on a machine that has no such file.

    Raises `ConfigError` when it cannot be read.
    """
    if endpoint.ca_file is None or endpoint.authorities is not None:
        return endpoint
    try:
        # Certificates are ASCII; what else stands in such a file is for people.
        return replace(endpoint, authorities=Path(endpoint.ca_file).read_text(encoding="ascii", errors="ignore"))
    except OSError as error:
        raise _no_authorities(endpoint, error.strerror) from None


def _no_authorities(endpoint: Endpoint, found: str | None) -> ConfigError:
    return ConfigError(f"ca_file: expected a readable file of PEM certificates, found {endpoint.ca_file}: {found}")
