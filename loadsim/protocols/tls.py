"""An endpoint's TLS contexts: certificates and names are verified by default, and sessions resumed.

A mail program keeps its last TLS session with a service, and offers it when it connects again. The server then neither
signs nor sends its certificate (RFC 8446 section 2.2, RFC 5077). Simulated users do the same, with their own sessions
only, so each user's first connection takes a full handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

from loadsim.errors import ConfigError
from loadsim.model.ports import Account, Endpoint
from loadsim.scenario.log_on import fill, is_pattern

_CONNECTING: ContextVar[int | None] = ContextVar("the user who connects", default=None)


class ResumingContext(ssl.SSLContext):
    """A context shared by an endpoint's users. It offers each user's own last session when they reconnect."""

    sessions: dict[int, ssl.SSLSession]

    def wrap_bio(self, *streams: Any, **options: Any) -> ssl.SSLObject:
        """Begin a handshake, offering the current user's session. Event loops call it in the connecting task."""
        user = _CONNECTING.get()
        options["session"] = None if user is None else self.sessions.get(user)
        return super().wrap_bio(*streams, **options)


@contextmanager
def handshakes_of(user: int) -> Iterator[None]:
    """Attribute the handshakes that this task begins in the block to a user."""
    token = _CONNECTING.set(user)
    try:
        yield
    finally:
        _CONNECTING.reset(token)


def remember(user: int, transport: asyncio.BaseTransport | None) -> None:
    """Keep a connection's TLS session, if it has a ticket or an id, for the user's next connection.

    Call it after the first answer, since tickets arrive with it.
    """
    secured = transport.get_extra_info("ssl_object") if transport is not None else None
    if isinstance(secured, ssl.SSLObject) and isinstance(secured.context, ResumingContext):
        session = secured.session
        if session is not None and (session.has_ticket or session.id):
            secured.context.sessions[user] = session


class TlsContexts:
    """An endpoint's TLS contexts: one for all users, or one per user if each has a client certificate."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Raises `ConfigError` if one of the endpoint's files cannot be read."""
        self._endpoint = endpoint
        paths = (endpoint.client_certificate or "", endpoint.client_key or "")
        self._per_user = any(map(is_pattern, paths))
        self._own: dict[int, ssl.SSLContext] = {}
        self._common = None if self._per_user else tls_context(endpoint)

    def of(self, account: Account) -> ssl.SSLContext | None:
        """Return a user's context; None without TLS. Raises `ConfigError` for an unreadable certificate."""
        if not self._per_user:
            return self._common
        if account.number not in self._own:
            made = tls_context(_for_user(self._endpoint, account))
            assert made is not None
            self._own[account.number] = made
        return self._own[account.number]


def _for_user(endpoint: Endpoint, account: Account) -> Endpoint:
    certificate, key = (
        None if path is None else fill(path, account.number, account.login)
        for path in (endpoint.client_certificate, endpoint.client_key)
    )
    return replace(endpoint, client_certificate=certificate, client_key=key)


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return a new context for connections to this endpoint; None without TLS.

    Loading the authorities is slow: make one per endpoint, not one per connection. Raises `ConfigError` if the
    authorities' file or the client certificate cannot be read.
    """
    if endpoint.tls == "none":
        return None
    kind = ResumingContext if endpoint.resumes else ssl.SSLContext
    context = kind(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificates and names
    if isinstance(context, ResumingContext):
        context.sessions = {}
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if endpoint.client_certificate is not None:
        _load_certificate(context, endpoint.client_certificate, endpoint.client_key)
    if not endpoint.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    authorities = with_authorities(endpoint).authorities
    if authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        context.load_verify_locations(cadata=authorities)
    except (ValueError, ssl.SSLError):  # ValueError for an empty file
        raise _no_authorities(endpoint, "none in it") from None
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    expected = "client_certificate: expected a readable PEM certificate and its key, without a passphrase"
    named = certificate if key is None else f"{certificate} and {key}"
    try:
        # Without this function, OpenSSL asks for a passphrase on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        why = "another key" if error.reason == "KEY_VALUES_MISMATCH" else "no such certificate or key in it"
        raise ConfigError(f"{expected}, found {named}: {why}") from None
    except OSError as error:
        raise ConfigError(f"{expected}, found {named}: {error.strerror}") from None


def with_authorities(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with its `ca_file`'s contents, for machines that do not have the file.

    Raises `ConfigError` if the file cannot be read.
    """
    if endpoint.ca_file is None or endpoint.authorities is not None:
        return endpoint
    try:
        # Certificates are ASCII; any other text in the file is a comment.
        return replace(endpoint, authorities=Path(endpoint.ca_file).read_text(encoding="ascii", errors="ignore"))
    except OSError as error:
        raise _no_authorities(endpoint, error.strerror) from None


def _no_authorities(endpoint: Endpoint, why: str | None) -> ConfigError:
    return ConfigError(f"ca_file: expected a readable file of PEM certificates, found {endpoint.ca_file}: {why}")
