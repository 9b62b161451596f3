"""The location of the server under test: whether it is on this machine, its processes, and the cores they may use."""

from __future__ import annotations

import os
import socket
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from loadsim.model.ports import Endpoint
from loadsim.monitor.system.processes import process_at, process_numbers

LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""

FIRST_PROCESS = 1
"""The number of an init, which may hold sockets of services not started yet, or of a container's mail server."""

INITS = frozenset({"systemd", "init"})
"""The names of first processes that do not serve mail."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """The server's location. `here` is True if it is on this machine, None if its name does not resolve.

    `processes` has the names of those that listen on its ports and of their descendants, by number; it is empty if they
    are not visible. `cpus` are the cores that any of them may use.
    """

    here: bool | None
    processes: Mapping[int, str]
    cpus: frozenset[int]

    @property
    def names(self) -> str:
        return ", ".join(sorted(set(self.processes.values())))

    def shares(self, cpus: Iterable[int]) -> bool | None:
        """Return whether the server may run on one of these cores; None if unknown."""
        if not self.here:
            return self.here
        if self.cpus:
            return bool(self.cpus & set(cpus))
        return True if len(set(cpus)) == os.cpu_count() else None  # all cores include the server's


def find_server(*endpoints: Endpoint) -> ServerPlace:
    """Find the server of these endpoints, which counts as here if any of them is."""
    known = [(addresses_of(endpoint.host), endpoint.port) for endpoint in endpoints]
    local = [(addresses, port) for addresses, port in known if any(map(is_own, addresses))]
    if not local:
        return ServerPlace(False if all(addresses for addresses, _ in known) else None, {}, frozenset())
    holders = processes_holding({inode for addresses, port in local for inode in listening(addresses, port)})
    first = process_at(FIRST_PROCESS)
    processes = with_descendants(holders - {FIRST_PROCESS} if first is None or first.name in INITS else holders)
    cpus: set[int] = set()
    for process in processes:
        with suppress(ProcessLookupError):
            cpus |= os.sched_getaffinity(process)
    return ServerPlace(True, processes, frozenset(cpus))


def addresses_of(host: str) -> frozenset[IPv4Address | IPv6Address]:
    """Return a host name's addresses; none if it does not resolve."""
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(ip_address(str(address[0]).partition("%")[0]) for *_, address in answers)


def is_own(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is this machine's: only then can a socket be bound to it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.bind((str(address), 0))
    except OSError:
        return False
    return True


def listening(addresses: Iterable[IPv4Address | IPv6Address], port: int) -> Iterator[int]:
    """Yield the inodes of sockets that listen on this port at one of the addresses or the wildcard address."""
    wanted = {*addresses, IPv4Address(0), IPv6Address(0)}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(FileNotFoundError):  # no IPv6 here
            for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                local, _, local_port = fields[1].partition(":")
                if fields[3] == LISTENING and int(local_port, 16) == port and _address(local) in wanted:
                    yield int(fields[9])


def _address(digits: str) -> IPv4Address | IPv6Address:
    """Parse an address as the kernel prints it: words of 32 bits, in this machine's byte order."""
    words = [int(digits[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(digits), 8)]
    address = ip_address(b"".join(words))
    if address.version == 6 and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def processes_holding(inodes: set[int]) -> set[int]:
    """Return the processes that have one of these sockets open, as far as permissions allow inspecting them."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    holding = set()
    for process in process_numbers():
        with suppress(OSError):  # it has exited, or there is no permission
            if any(_target(file) in wanted for file in Path(f"/proc/{process}/fd").iterdir()):
                holding.add(process)
    return holding


def _target(file: Path) -> str:
    with suppress(OSError):
        return str(file.readlink())
    return ""


def with_descendants(processes: Iterable[int]) -> dict[int, str]:
    """Return the names of these processes and of all their descendants, by number."""
    names: dict[int, str] = {}
    children = defaultdict(list)
    for process in process_numbers():
        if (present := process_at(process)) is not None:
            names[process] = present.name
            children[present.parent].append(process)
    family: dict[int, str] = {}
    waiting = [process for process in processes if process in names]
    while waiting:
        process = waiting.pop()
        if process not in family:
            family[process] = names[process]
            waiting += children[process]
    return family
