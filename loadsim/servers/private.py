"""Parts shared by private instances of Debian's mail servers: ports, directories, starting and stopping."""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from loadsim.errors import ConfigError
from loadsim.model.host_port import is_loopback
from loadsim.model.ports import Services
from loadsim.servers.master import Master, PortTaken
from loadsim.servers.program_name import program_name
from loadsim.servers.running import RunningServer

LOOPBACK = "127.0.0.1"
LONGEST_SOCKET_PATH = 107
PORTS = range(20000, 32768)
"""Ports below the kernel's range for outgoing connections, so that none of these can take one before it is used."""
PORT_ATTEMPTS = 5

Server = TypeVar("Server", bound="PrivateServer")


class PrivateServer(RunningServer):
    """A running instance. `notes` are sentences about changes it made to the machine, and about who can use it."""

    def __init__(self, services: Services, masters: Sequence[Master], description: str, notes: Sequence[str]) -> None:
        self.services = services
        self.notes = tuple(notes)
        self._masters = tuple(masters)
        self._description = description

    def describe(self) -> str:
        return f"{self._description} (private instance on this machine)"

    def pids(self) -> frozenset[int]:
        return frozenset().union(*(master.pids() for master in self._masters))

    def stop(self) -> None:
        """Stop the masters, the last one first, and wait until none of their processes is left."""
        for master in reversed(self._masters):
            master.stop()


class Directory(NamedTuple):
    """An instance's directory, to be created with this mode and owner."""

    path: Path
    mode: int = 0o755
    uid: int = 0


def start_masters(starts: Iterable[tuple[Callable[[], Master], Callable[[Master], None]]]) -> list[Master]:
    """Start masters in turn, each with a function that waits until it is ready. If one fails, all are stopped."""
    masters: list[Master] = []
    with stopped_on_error(masters):
        for start, await_ready in starts:
            masters.append(start())
            await_ready(masters[-1])
    return masters


@contextmanager
def stopped_on_error(masters: Sequence[Master]) -> Iterator[None]:
    """Stop the masters, the last one first, if the block does not end normally."""
    try:
        yield
    except BaseException:
        for master in reversed(masters):
            master.stop()
        raise


def on_free_ports(
    address: str, imap_port: int | None, smtp_port: int | None, start: Callable[[int, int], Server]
) -> Server:
    """Start a server on these ports for IMAP and SMTP; None means a free port.

    Servers cannot bind port 0, so if another process takes a chosen port first, others are tried. Raises `PortTaken` if
    a given port is taken.
    """
    for attempt in range(1, PORT_ATTEMPTS + 1):
        try:
            return start(imap_port or free_port(address), smtp_port or free_port(address))
        except PortTaken:
            if attempt == PORT_ATTEMPTS or None not in (imap_port, smtp_port):
                raise
    raise AssertionError("the last attempt returns or raises")


def check_programs(kind: str, programs: Mapping[str, str]) -> None:
    """Raise `ConfigError` unless the packages are installed and the user is root.

    `programs` maps each Debian package to a program that it installs.
    """
    missing = [name for name, path in programs.items() if not Path(path).exists()]
    if missing:
        raise ConfigError(
            f"server: {kind}: expected {', '.join(missing)} to be installed: apt-get install {' '.join(programs)}"
        )
    if os.geteuid() != 0:
        program = program_name(for_root=True)
        raise ConfigError(f"server: {kind}: expected to be root; run it as: sudo {program} server {kind} ...")


def prepare_directories(root: Path, directories: Iterable[Directory], sockets: Iterable[Path] = ()) -> None:
    """Create the directories below `root`. `sockets` are the Unix sockets that a server creates there.

    Raises `ConfigError` if the servers' users cannot enter the directories, or if configuration files or sockets cannot
    hold their paths.
    """
    check_path("directory", root)
    longest = max((len(str(path)) + 10 for path in sockets), default=0)
    if longest > LONGEST_SOCKET_PATH:
        raise ConfigError(
            f"server: directory: expected at most {LONGEST_SOCKET_PATH - longest + len(str(root))} characters, since"
            f" it holds sockets, found {len(str(root))}: {root}"
        )
    root.mkdir(mode=0o711, parents=True, exist_ok=True)
    for above in (root, *root.parents):
        if not above.stat().st_mode & 0o001:
            raise ConfigError(
                f"server: directory: expected other users to be able to enter {above}, found mode"
                f" {above.stat().st_mode & 0o777:04o}: choose another directory, such as /tmp"
            )
    for path, mode, uid in directories:
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        os.chown(path, uid, -1)


def check_path(setting: str, path: Path) -> None:
    """Raise `ConfigError` for a path that would need quoting in a configuration or a shell command."""
    if not re.fullmatch(r"[\w./-]+", str(path), re.ASCII):
        raise ConfigError(f"server: {setting}: expected a path of letters, digits and ._-/, found {str(path)!r}")


def strangers_note(address: str) -> list[str]:
    """Return a sentence about who can log on, if the address is not loopback."""
    if is_loopback(address):
        return []
    return [f"It listens on {address}: anyone who can reach it can log on by guessing a simulated user's password."]


def check_address(address: str) -> None:
    """Raise `ConfigError` unless this machine has the address."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            raise ConfigError(f"server: expected an address of this machine to listen on, found {address}") from None


def free_port(address: str = LOOPBACK) -> int:
    """Return a port that is free on this address. Another process may take it before the server binds it."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
