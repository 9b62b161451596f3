"""A witness of its own: a process that captures what loopback carries for some server ports, with the kernel's times.

Nothing is written to disk: the segments stay in the process until it is asked for them. Linux, as root.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import NamedTuple

from bench.witness_packets import Segment

ALL_PROTOCOLS = 0x0003
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SOL_PACKET, PACKET_STATISTICS = 263, 6
BUFFER_BYTES = 128 << 20
LOOK_S = 0.2
_IPV4, _TCP, _SYN = 0x0800, 6, 0x02


class Clocks(NamedTuple):
    """CLOCK_REALTIME less CLOCK_MONOTONIC, and by how much that may be wrong."""

    offset_ns: int
    uncertain_ns: int


class Captured(NamedTuple):
    """Captured packets by the monotonic clock; `dropped` ones are missing, and the clocks differ by `step_ns` more."""

    segments: list[Segment]
    dropped: int
    uncertain_ns: int
    step_ns: int


def read_clocks() -> Clocks:
    """Both clocks, the closest of some readings."""
    best = Clocks(0, 1 << 62)
    for _ in range(100):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        if (half_ns := (after_ns - before_ns + 1) // 2) < best.uncertain_ns:
            best = Clocks(wall_ns - (before_ns + after_ns) // 2, half_ns)
    return best


def parse(packet: bytes, at_ns: int, ports: frozenset[int]) -> Segment | None:
    """The TCP segment in an IP packet to or from one of these server ports; None for anything else."""
    if len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != _TCP:
        return None
    start = (packet[0] & 15) * 4
    source, target, sequence, _, offset, flags = struct.unpack_from("!HHIIBB", packet, start)
    if source not in ports and target not in ports:
        return None
    data = packet[start + (offset >> 4) * 4 : struct.unpack_from("!H", packet, 2)[0] or None]
    from_client = target in ports
    between = (source, target) if from_client else (target, source)
    return Segment(at_ns, between, from_client, sequence, bool(flags & _SYN), data)


@contextmanager
def capturing(ports: frozenset[int], cpus: set[int] | None = None) -> Iterator[Connection]:
    """Capture while the block runs; `collect` asks for what there is. Raises `PermissionError` without root."""
    socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0).close()
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_capture, args=(theirs, ports, cpus), daemon=True)
    process.start()
    try:
        ours.recv()
        yield ours
    finally:
        process.kill()
        process.join()


def collect(capture: Connection) -> Captured:
    """End the capture, and have what it saw."""
    capture.send(None)
    found: Captured = capture.recv()
    return found


def _capture(asked: Connection, ports: frozenset[int], cpus: set[int] | None) -> None:
    if cpus:
        os.sched_setaffinity(0, cpus)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PROTOCOLS)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        tap.bind(("lo", _IPV4))
        tap.settimeout(LOOK_S)
        before = read_clocks()
        asked.send(None)
        segments: list[Segment] = []
        received, asked_ns = 0, 0
        while True:
            try:
                packet, ancillary, _, address = tap.recvmsg(1 << 17, 64)
            except TimeoutError:
                if asked_ns:
                    break
                asked_ns = _asked_ns(asked)
                continue
            received += 1
            if not asked_ns and received % 256 == 0:
                asked_ns = _asked_ns(asked)
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            at_ns = seconds * 10**9 + nanoseconds
            if asked_ns and at_ns > asked_ns:  # others may use loopback for ever
                break
            if address[2] == socket.PACKET_OUTGOING:  # loopback shows each packet twice
                continue
            segment = parse(packet, at_ns - before.offset_ns, ports)
            if segment is not None:
                segments.append(segment)
        _, dropped = struct.unpack("II", tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    after = read_clocks()
    step_ns = after.offset_ns - before.offset_ns
    asked.send(Captured(segments, dropped, before.uncertain_ns, step_ns))


def _asked_ns(asked: Connection) -> int:
    """Return when the request to end the capture was seen, by the packets' clock; 0 without a request."""
    return time.time_ns() if asked.poll() else 0
