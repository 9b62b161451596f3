"""The address of the control port, the check that it is protected, and permitted names of clients and runs.

Anyone who can connect to the port can run code on every machine of the cluster. The port therefore takes mutual TLS.
Plain TCP is permitted on the loopback interface, or elsewhere with an explicit option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed, host_and_port, is_loopback

DEFAULT_PORT = 8786
"""Dask's usual port."""

LOOPBACK = "127.0.0.1"
"""The address at which a controller listens by default: only this machine can reach it."""

PLAIN_WORD = "--insecure-plain-tcp"
"""The option that permits plain TCP beyond loopback."""

LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
"""One label of a host name (RFC 1123 section 2.1)."""

CLIENT_NAME = re.compile(LABEL)
"""A client's name. It is also part of the names of its logs, and a name in its certificate."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
"""Names of clients and runs become directories on the controller and on the clients."""


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """Address at which the controller listens; `secured` means TLS. `str()` returns it as users write it."""

    host: str
    port: int
    secured: bool = False

    def __str__(self) -> str:
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def protocol(self) -> str:
        """Dask's name of the protocol."""
        return "tls" if self.secured else "tcp"

    @property
    def for_dask(self) -> str:
        """The address in the form that Dask takes."""
        return f"{self.protocol}://{self}"


def control_address(text: str, what: str = "--cluster", *, listens: bool = False) -> ControlAddress:
    """Read `HOST` or `HOST:PORT`. Raises `ConfigError`, which names the option.

    An address that `listens` may also be a lone port, on loopback, and the port may be 0: the listening socket then
    takes a free one.
    """
    try:
        host, port = host_and_port(text, LOOPBACK if listens else None, DEFAULT_PORT)
        if port == 0 and not listens:
            raise ValueError
    except ValueError as wrong:
        expected = "HOST, HOST:PORT or PORT" if listens else "HOST[:PORT]"
        raise ConfigError(f"{what}: expected {expected}, found {text!r}{wrong}") from None
    return ControlAddress(host, port)


def check_transport(address: ControlAddress, insecure_plain_tcp: bool = False) -> None:
    """Reject plain TCP beyond loopback, unless the user permitted it explicitly. Raises `ConfigError`.

    Neither the wildcard addresses (0.0.0.0, ::) nor names count as loopback; `localhost` does.
    """
    if not (address.secured or is_loopback(address.host) or insecure_plain_tcp):
        raise ConfigError(
            f"{address}: expected --certs DIR (loadsim cluster certs makes the bundles), because anyone who can connect"
            f" can run code on every machine, found plain TCP; {PLAIN_WORD} permits it"
        )
