"""TCP connections to an endpoint, from a user's local address.

Each process looks up a host only once. Otherwise thousands of users would query the name server for each connection,
and task times would include the wait.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

from loadsim.model.ports import Endpoint
from loadsim.protocols.error_mapping import shortage
from loadsim.protocols.tls import handshakes_of
from loadsim.protocols.transport import Transport, note_arrivals

_BIND_ADDRESS_NO_PORT = 24 if sys.platform == "linux" else None
"""`IP_BIND_ADDRESS_NO_PORT` of ip(7): in Linux since 4.2, in Python's `socket` since 3.12."""

_ADDRESSES: dict[str, list[str]] = {}
"""The addresses of each host; the one that last accepted a connection comes first."""

_REACHED: set[str] = set()
"""Addresses that have accepted a connection. For any other, EADDRNOTAVAIL may also mean that there is no route."""

T = TypeVar("T")


async def connect(
    protocol: asyncio.Protocol, endpoint: Endpoint, user: int, context: ssl.SSLContext | None, now: Callable[[], int]
) -> None:
    """Connect a protocol for this user, with implicit TLS (RFC 8314) if the endpoint has it.

    `now` is the run's clock. Raises `OSError`, of which `ssl.SSLError` is a subclass.
    """
    began_ns: list[int] = []
    sock = await connected_socket(endpoint, endpoint.source(user), lambda: began_ns.append(now()))
    transport = Transport(sock, protocol, now, began_ns[0])
    try:
        if context and endpoint.tls == "implicit":
            with handshakes_of(user):
                await transport.start_tls(context, endpoint.tls_name)
        transport.begin()
    except BaseException:
        transport.abort()
        raise


async def connected_socket(
    endpoint: Endpoint, source: str | None, begin: Callable[[], None] = lambda: None
) -> socket.socket:
    """Return a socket connected to the endpoint, from this local address if it is not None. Raises `OSError`.

    `begin` is called right before the first packet is sent to each address that is tried.
    """

    async def connected(address: str) -> socket.socket:
        sock = _socket(address) if source is None else bound_socket(source)
        try:
            await _connect_socket(sock, (address, endpoint.port), begin)
        except BaseException:
            sock.close()
            raise
        return sock

    return await first_answering(endpoint.host, connected, None if source is None else ":" in source)


async def first_answering(host: str, connect_to: Callable[[str], Awaitable[T]], ipv6: bool | None = None) -> T:
    """Return the result of `connect_to` for the first of a host's addresses that accepts a connection.

    `ipv6` selects the address family; None allows both. Raises the last address's `OSError`, or the look-up's. A
    shortage on this machine is raised at once, since no other address would help.
    """
    known = _ADDRESSES.get(host) or await _look_up(host)
    addresses = [address for address in known if ipv6 in (None, ":" in address)] or known
    for address in addresses:
        try:
            made = await connect_to(address)
        except (ssl.SSLError, ConnectionAbortedError, ConnectionResetError):
            raise  # this address did accept
        except OSError as error:
            unreachable = error.errno == errno.EADDRNOTAVAIL and address not in _REACHED
            if address == addresses[-1] or (shortage(error) and not unreachable):
                raise
        else:
            _REACHED.add(address)
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
    return _ADDRESSES.setdefault(host, list(dict.fromkeys(str(address[0]) for *_, address in answers)))


def bound_socket(source: str) -> socket.socket:
    """Return a socket that will connect from this local address. Raises `OSError` if the address is not local.

    If possible, the system picks the port only when the socket connects. It then knows the destination, and can reuse a
    port that is in use for another one. Otherwise each port of an address serves a single connection.
    """
    sock = _socket(source)
    try:
        if _BIND_ADDRESS_NO_PORT is not None:
            sock.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect_socket(sock: socket.socket, address: tuple[str, int], begin: Callable[[], None]) -> None:
    """Connect a socket, sending the first packet at once. Raises `OSError`.

    uvloop's `sock_connect` first resolves the address in a thread, which on a busy loop delays the first packet by
    milliseconds.
    """
    begin()
    try:
        sock.connect(address)
    except BlockingIOError as pending:
        if pending.errno != errno.EINPROGRESS:
            raise
        loop = asyncio.get_running_loop()
        connected: asyncio.Future[None] = loop.create_future()
        loop.add_writer(sock, _settle, connected)
        try:
            await connected
        finally:
            loop.remove_writer(sock)
        if error := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error)) from None


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _socket(address: str) -> socket.socket:
    """Return a non-blocking socket of the address's family, without Nagle's algorithm."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        note_arrivals(sock)
    except BaseException:
        sock.close()
        raise
    return sock
