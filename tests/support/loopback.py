"""Connections on loopback, and the kernel's view of them."""

import socket
import sys
import time
from functools import cache
from select import select

from loadsim.protocols.transport import note_arrivals

PATIENCE_S = 60.0


def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection, the client's first; the kernel notes what arrives there."""
    _noting()
    return _connected()


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.socket()
        note_arrivals(client)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.setblocking(False)
    return client, server


@cache
def _noting() -> None:
    """Wait until the kernel notes arrivals: it begins some milliseconds after the first socket has asked for it."""
    client, server = _connected()
    with client, server:
        noted = False
        while not noted:
            server.send(b"x")
            select([client], [], [], PATIENCE_S)
            noted = bool(client.recvmsg(1, 64)[1])


def pure_acknowledgements(sock: socket.socket) -> int:
    """Return how many segments without data the kernel has sent (`tcpi_segs_out` less `tcpi_data_segs_out`)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
    sent, with_data = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (136, 156))
    return sent - with_data


def there(client: socket.socket, size: int) -> int:
    """Wait until the kernel has this many bytes for the client; return an instant after that."""
    while True:
        select([client], [], [], PATIENCE_S)
        if len(client.recv(size, socket.MSG_PEEK)) == size:
            return time.monotonic_ns()
