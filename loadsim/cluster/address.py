"""The address of the control port, and the valid names of clients and runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed, host_and_port

DEFAULT_PORT = 8786
"""Dask's usual port."""

LOOPBACK = "127.0.0.1"
"""The address at which a controller listens by default: only this machine can reach it."""

CLIENT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
"""A client's name: one label of a host name (RFC 1123 section 2.1). It is also part of the names of its logs."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
"""A run's name. Names of clients and runs become directories on the controller and on the clients."""


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """The address at which the controller listens; `secured` means TLS. `str()` returns it as users write it."""

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
        return f"{self.protocol}://{self}"


def control_address(text: str, what: str = "--cluster", *, listens: bool = False) -> ControlAddress:
    """Read `HOST` or `HOST:PORT`. Raises `ConfigError`, which names the option.

    With `listens`, a port alone also works (on loopback), and port 0 means any free port.
    """
    try:
        host, port = host_and_port(text, LOOPBACK if listens else None, DEFAULT_PORT)
        if port == 0 and not listens:
            raise ValueError
    except ValueError as wrong:
        expected = "HOST, HOST:PORT or PORT" if listens else "HOST[:PORT]"
        raise ConfigError(f"{what}: expected {expected}, found {text!r}{wrong}") from None
    return ControlAddress(host, port)
