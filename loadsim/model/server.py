"""Where the mail server under test listens, and whether it may be put under load."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated

from loadsim.model.ports import Endpoint
from loadsim.model.schema import Switch, Text, Via, strict, whole, word

Port = Annotated[int, whole(1, 65535)]
Tls = Annotated[str, word("none", "starttls", "implicit")]

_IMAP_PORTS = {"none": 143, "starttls": 143, "implicit": 993}
"""RFC 9051 section 2.1 and RFC 8314 section 3.2."""

_SMTP_PORTS = {"none": 25, "starttls": 587, "implicit": 465}
"""RFC 5321, RFC 6409 section 3.1 and RFC 8314 section 3.3."""


@strict
@dataclass(frozen=True, slots=True)
class _Imap:
    host: Text
    port: Port | None = None
    tls: Tls = "none"
    ca_file: Text | None = None


@strict
@dataclass(frozen=True, slots=True)
class _Smtp:
    host: Text
    port: Port | None = None
    tls: Tls = "none"
    ca_file: Text | None = None
    connection: Annotated[str, word("per-message", "kept")] = "per-message"
    auth: Switch = True


def _imap(shape: _Imap) -> Endpoint:
    return Endpoint(shape.host, shape.port or _IMAP_PORTS[shape.tls], shape.tls, shape.ca_file)


def _smtp(shape: _Smtp) -> Endpoint:
    port = shape.port or _SMTP_PORTS[shape.tls]
    return Endpoint(shape.host, port, shape.tls, shape.ca_file, shape.connection, shape.auth)


@strict
@dataclass(frozen=True, slots=True)
class Server:
    """The mail server under test, as its clients reach it."""

    imap: Annotated[Endpoint, Via(_Imap, _imap)]
    smtp: Annotated[Endpoint, Via(_Smtp, _smtp)]


def is_loopback(host: str) -> bool:
    """Whether this is `localhost` or an address that never leaves the machine (127.0.0.0/8, ::1)."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
