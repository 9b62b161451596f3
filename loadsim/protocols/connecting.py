"""TCP connections to an endpoint, from the local address that it has for a user."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from typing import TypeVar

from loadsim.model.ports import Endpoint
from loadsim.protocols.tls import handshakes_of

_BIND_ADDRESS_NO_PORT = 24 if sys.platform == "linux" else None
"""`IP_BIND_ADDRESS_NO_PORT` of ip(7), which Python names from 3.12 on; the kernel has it since Linux 4.2."""

P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(
    make: Callable[[], P], endpoint: Endpoint, user: int, context: ssl.SSLContext | None, limit_s: float | None
) -> None:
    """Connect a protocol for this user; with `context` TLS comes first, and may take `limit_s`.

    Raises `OSError`, of which `ssl.SSLError` is one.
    """
    with handshakes_of(user):
        await _connect(make, endpoint, user, context, limit_s)


async def _connect(
    make: Callable[[], P], endpoint: Endpoint, user: int, context: ssl.SSLContext | None, limit_s: float | None
) -> None:
    loop = asyncio.get_running_loop()
    name = endpoint.host if context else None
    handshake_limit_s = limit_s if context else None
    source = endpoint.source(user)
    if source is None:
        await loop.create_connection(
            make,
            endpoint.host,
            endpoint.port,
            ssl=context,
            server_hostname=name,
            ssl_handshake_timeout=handshake_limit_s,
        )
        return
    own = await connected_socket(endpoint, source)
    try:
        await loop.create_connection(
            make, sock=own, ssl=context, server_hostname=name, ssl_handshake_timeout=handshake_limit_s
        )
    except BaseException:
        own.close()
        raise


async def connected_socket(endpoint: Endpoint, source: str) -> socket.socket:
    """A socket from this local address to the endpoint, of the address's family. Raises `OSError`."""
    own = bound_socket(source)
    try:
        await asyncio.get_running_loop().sock_connect(own, (endpoint.host, endpoint.port))
    except BaseException:
        own.close()
        raise
    return own


def bound_socket(source: str) -> socket.socket:
    """A socket that will connect from this local address. Raises `OSError` if it is none.

    The port is chosen when the socket is connected, where the system can do that: by then the destination is known,
    and a port is free unless there is a connection between the same two addresses already. Otherwise every port of
    an address serves a single connection, to whatever destination.
    """
    own = socket.socket(socket.AF_INET6 if ":" in source else socket.AF_INET, socket.SOCK_STREAM)
    try:
        own.setblocking(False)
        own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _BIND_ADDRESS_NO_PORT is not None:
            own.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        own.bind((source, 0))
    except BaseException:
        own.close()
        raise
    return own
