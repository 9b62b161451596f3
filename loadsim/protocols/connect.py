"""TCP connections to an endpoint, from the local address that it has for a user.

A process looks up a host's name once: thousands of users do not ask a name server for the same name with each
connection, and no task's time includes its answer.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from loadsim.model.ports import Endpoint
from loadsim.protocols.error_mapping import shortage
from loadsim.protocols.tls import handshakes_of

_BIND_ADDRESS_NO_PORT = 24 if sys.platform == "linux" else None
"""`IP_BIND_ADDRESS_NO_PORT` of ip(7), which Python names from 3.12 on; the kernel has it since Linux 4.2."""

_FOUND: dict[str, list[str]] = {}
"""The addresses of each host; the one that last accepted a connection comes first."""

_TOOK: set[str] = set()
"""Addresses that once accepted a connection. For others, EADDRNOTAVAIL may also mean that no route leads there."""

P = TypeVar("P", bound=asyncio.BaseProtocol)
T = TypeVar("T")


async def connect(
    make: Callable[[], P], endpoint: Endpoint, user: int, context: ssl.SSLContext | None, limit_s: float | None
) -> None:
    """Connect a protocol for this user; with `context`, after a TLS handshake of at most `limit_s`.

    Raises `OSError`, of which `ssl.SSLError` is a subclass.
    """
    loop = asyncio.get_running_loop()
    tls: dict[str, Any] = {"ssl": context}
    if context:
        tls |= {"server_hostname": endpoint.tls_name, "ssl_handshake_timeout": limit_s}
    source = endpoint.source(user)
    with handshakes_of(user):
        if source is None:
            await first_answering(
                endpoint.host, lambda address: loop.create_connection(make, address, endpoint.port, **tls)
            )
            return
        own = await connected_socket(endpoint, source)
        try:
            await loop.create_connection(make, sock=own, **tls)
        except BaseException:
            own.close()
            raise


async def connected_socket(endpoint: Endpoint, source: str | None) -> socket.socket:
    """Return a socket connected to the endpoint, from this local address if it is not None. Raises `OSError`."""

    async def connected(address: str) -> socket.socket:
        own = _socket(address) if source is None else bound_socket(source)
        try:
            await _connect_socket(own, (address, endpoint.port))
        except BaseException:
            own.close()
            raise
        return own

    return await first_answering(endpoint.host, connected, None if source is None else ":" in source)


async def first_answering(host: str, connect_to: Callable[[str], Awaitable[T]], ipv6: bool | None = None) -> T:
    """Return the result of `connect_to` for the first of a host's addresses that takes a connection.

    `ipv6` selects the kind of address; None: any. Raises the `OSError` of the last address, or that of the look-up. A
    shortage of this machine is raised at once: another address would not help.
    """
    known = _FOUND.get(host) or await _look_up(host)
    addresses = [address for address in known if ipv6 in (None, ":" in address)] or known
    for address in addresses:
        try:
            made = await connect_to(address)
        except (ssl.SSLError, ConnectionAbortedError, ConnectionResetError):
            raise  # it did accept the connection
        except OSError as error:
            unreachable = error.errno == errno.EADDRNOTAVAIL and address not in _TOOK
            if address == addresses[-1] or (shortage(error) and not unreachable):
                raise
        else:
            _TOOK.add(address)
            if address != known[0]:
                known.sort(key=lambda other: other != address)
            return made
    raise OSError(f"{host} has no address")


async def _look_up(host: str) -> list[str]:
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        os.close(os.open(os.devnull, os.O_RDONLY))  # raises EMFILE, which the resolver does not report
        raise
    return _FOUND.setdefault(host, list(dict.fromkeys(str(address[0]) for *_, address in answers)))


def bound_socket(source: str) -> socket.socket:
    """Return a socket that will connect from this local address. Raises `OSError` if the address is not local.

    Where the system can do so, it chooses the port when the socket connects. It then knows the destination, and may
    choose a port that another destination uses. Otherwise each port of an address serves one connection in all.
    """
    own = _socket(source)
    try:
        if _BIND_ADDRESS_NO_PORT is not None:
            own.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        own.bind((source, 0))
    except BaseException:
        own.close()
        raise
    return own


async def _connect_socket(own: socket.socket, address: tuple[str, int]) -> None:
    """Connect a socket, and send the first packet at once. Raises `OSError`.

    uvloop's `sock_connect` first resolves the address in a thread. On a busy loop, this adds milliseconds to the
    task's time before the first packet.
    """
    try:
        own.connect(address)
    except BlockingIOError as begun:
        if begun.errno != errno.EINPROGRESS:
            raise
        loop = asyncio.get_running_loop()
        connected: asyncio.Future[None] = loop.create_future()
        loop.add_writer(own, _settle, connected)
        try:
            await connected
        finally:
            loop.remove_writer(own)
        if error := own.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error)) from None


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _socket(address: str) -> socket.socket:
    """Return a non-blocking socket of the address's family.

    asyncio switches Nagle's delay of small packets off, but only for sockets that name their protocol.
    """
    own = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    own.setblocking(False)
    return own
