"""A server that writes its packets itself, in any order; `unshare --net` runs this (see `test_transport`).

For each order of an answer's segments, it prints as JSON what the transport read, and the clock of its arrival.
"""

import asyncio
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from unittest.mock import patch

from loopback import connected, there

from loadsim.protocols import transport
from loadsim.protocols.transport import Transport, note_arrivals

SERVER, CLIENT = socket.inet_aton("198.18.0.2"), socket.inet_aton("198.18.0.1")
SYN_ACK, ACK, PUSH = 0x12, 0x10, 0x18
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001

ANSWER = (b"* 1 EXISTS\r\n", b"* 2 EXISTS\r\n", b"a1 OK\r\n")


def checksum(data: bytes) -> bytes:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)


class Server:
    """The far end of the tunnel, and of one TCP connection through it (RFC 9293)."""

    def __init__(self, tunnel: int, port: int) -> None:
        self.tunnel, self.port = tunnel, port
        self.ports, self.next = b"", 0

    def receive(self) -> bytes:
        """Wait for the client's next segment; return its data."""
        while True:
            packet = os.read(self.tunnel, 2048)
            if packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_TCP:
                port, own_port, sequence, _, offset, flags = struct.unpack("!HHIIBB", packet[20:34])
                data = packet[20 + (offset >> 4) * 4 :]
                if own_port == self.port:
                    self.ports, self.next = struct.pack("!HH", own_port, port), sequence + len(data) + (flags & 2) // 2
                    return data

    def send(self, sequence: int, flags: int, data: bytes = b"") -> None:
        head = self.ports + struct.pack("!IIBBH", sequence, self.next & 0xFFFFFFFF, 5 << 4, flags, 65535)
        size = len(head) + 4 + len(data)
        pseudo = SERVER + CLIENT + struct.pack("!HH", socket.IPPROTO_TCP, size)
        check = checksum(pseudo + head + bytes(4) + data + bytes(size % 2))
        address = SERVER + CLIENT
        start = struct.pack("!BBHHHBB", 0x45, 0, 20 + size, 1, 0, 64, socket.IPPROTO_TCP)
        os.write(self.tunnel, start + checksum(start + bytes(2) + address) + address + head + check + bytes(2) + data)


class Told(asyncio.Protocol):
    def __init__(self) -> None:
        self.reads: list[tuple[str, str]] = []

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        self.transport = made

    def data_received(self, data: bytes) -> None:
        self.reads.append((data.decode(), getattr(self.transport, "arrival", (0, ""))[1]))


async def reads(tunnel: int, port: int, bursts: Sequence[Sequence[int]]) -> list[tuple[str, str]]:
    """Send the answer's segments in this order; the loop reads after each burst."""
    server = Server(tunnel, port)
    client = socket.socket()
    note_arrivals(client)
    client.setblocking(False)
    client.connect_ex((socket.inet_ntoa(SERVER), port))
    server.receive()
    server.send(1000, SYN_ACK)
    server.receive()
    told = Told()
    made = Transport(client, told, time.monotonic_ns)
    made.begin()
    made.write(b"a1 NOOP\r\n")
    while not server.receive():
        pass
    for burst in bursts:
        for number in burst:
            server.send(1001 + len(b"".join(ANSWER[:number])), PUSH, ANSWER[number])
        there(client, len(ANSWER[min(burst)]))
        for _ in range(5):
            await asyncio.sleep(0)
    made.abort()
    return told.reads


def main() -> None:
    tunnel = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tunnel, TUNSETIFF, struct.pack("16sH", b"tunnel", IFF_TUN_NO_PI))
    up = "ip link set lo up && ip address add 198.18.0.1/24 dev tunnel && ip link set tunnel up"
    subprocess.run(["sh", "-c", up], check=True)
    for end in connected():
        end.close()
    orders = ([[0, 1, 2]], [[2, 1, 0]], [[0, 2], [1]])
    with patch.object(transport, "RECENT_NS", 0):
        seen = [asyncio.run(reads(tunnel, 143 + at, order)) for at, order in enumerate(orders)]
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
