"""Test hosts: network namespaces of this machine, joined by a wire of their own that leads nowhere else.

Each host has a loopback interface and one network interface, whose other end is a port of a bridge; the bridge lies in
a namespace, too. Nothing touches the machine's own network, and no packet can leave. Names are unique, so that several
labs do not meet; who made one removes it, with all processes that are still on its hosts. All of it takes root.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadsim.servers.command import find, run

NETWORK = "198.18.0"
"""RFC 2544: kept free for benchmarks, and routed nowhere."""

INTERFACE = "eth0"
"""A host's way to the others."""

MOST_HOSTS = 200

_BRIDGE = "wire"
_GRACE_S = 10.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Host:
    """One test host, `address` as the others see it. What runs on it shares files and processes with the machine."""

    address: str
    namespace: str
    wire: str
    port: str

    def command(self, arguments: Sequence[str | Path]) -> list[str]:
        """The command line that runs this on the host; it becomes this program, with the same process id."""
        return [_ip(), "netns", "exec", self.namespace, *map(str, arguments)]

    def run(
        self, arguments: Sequence[str | Path], timeout_s: float, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end with any exit status; its output is text. `options` are those of `subprocess.run`."""
        return subprocess.run(
            self.command(arguments), capture_output=True, text=True, timeout=timeout_s, check=False, **options
        )

    def start(self, arguments: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start it; what still runs when the lab is removed is ended then. `options` as for `subprocess.Popen`."""
        return subprocess.Popen(self.command(arguments), text=True, **options)

    def cut(self) -> None:
        """Let nothing through any more, either way; as with a distant broken cable, no end is notified."""
        self._plug("nomaster")

    def mend(self) -> None:
        """Let everything through again."""
        self._plug(f"master {_BRIDGE}")

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Cut as long as the block lasts."""
        self.cut()
        try:
            yield
        finally:
            self.mend()

    def pids(self) -> list[int]:
        """Processes that are on this host."""
        return [int(pid) for pid in run("ip", ("netns", "pids", self.namespace)).split()]

    def _plug(self, where: str) -> None:
        run("ip", ("-n", self.wire, *f"link set dev {self.port} {where}".split()))


@contextmanager
def hosts(count: int, grace_s: float = _GRACE_S) -> Iterator[list[Host]]:
    """Yield `count` hosts on one wire, each of which reaches the others; remove them and their processes.

    Processes that are left when the block ends are asked to end, and made to after `grace_s`.

    Raises `ConfigError` where namespaces, bridges or virtual cables cannot be made.
    """
    if not 1 <= count <= MOST_HOSTS:
        raise ValueError(f"expected 1 to {MOST_HOSTS} hosts, found {count}")
    lab = f"{os.environ.get('LOADSIM_LAB', 'lst')}-{secrets.token_hex(4)}"  # a test run finds its labs by their names
    with ExitStack() as stack:
        wire = stack.enter_context(_namespace(f"{lab}-wire", grace_s))
        run("ip", ("-n", wire, *f"link add {_BRIDGE} type bridge stp_state 0".split()))
        run("ip", ("-n", wire, *f"link set {_BRIDGE} up".split()))
        made = []
        for number in range(1, count + 1):
            namespace = stack.enter_context(_namespace(f"{lab}-{number}", grace_s))
            host = Host(f"{NETWORK}.{number}", namespace, wire, f"port{number}")
            _plug_in(host)
            made.append(host)
        yield made


def _plug_in(host: Host) -> None:
    for namespace, words in (
        (host.namespace, "link set lo up"),
        (host.namespace, f"link add {INTERFACE} type veth peer name {host.port} netns {host.wire}"),
        (host.wire, f"link set {host.port} master {_BRIDGE} up"),
        (host.namespace, f"address add {host.address}/24 dev {INTERFACE}"),
        (host.namespace, f"link set {INTERFACE} up"),
    ):
        run("ip", ("-n", namespace, *words.split()))


@contextmanager
def _namespace(name: str, grace_s: float) -> Iterator[str]:
    """A namespace of this name, removed with the processes that are in it."""
    run("ip", ("netns", "add", name))
    try:
        yield name
    finally:
        _end_processes(name, grace_s)
        run("ip", ("netns", "del", name))


def _end_processes(namespace: str, grace_s: float) -> None:
    """Ask them to end, then insist."""
    for request, within_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _GRACE_S)):
        deadline_s = time.monotonic() + within_s
        for pid in _living(namespace):
            with suppress(ProcessLookupError):
                os.kill(pid, request)
                os.kill(pid, signal.SIGCONT)  # one that was stopped is not asked before it goes on
        while _living(namespace) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)


def _living(namespace: str) -> list[int]:
    """Return its processes, without zombies."""
    pids = [int(pid) for pid in run("ip", ("netns", "pids", namespace)).split()]
    return [pid for pid in pids if not _has_ended(pid)]


def _has_ended(pid: int) -> bool:
    """Return if it is a zombie, or gone (proc(5))."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def _ip() -> str:
    path = find("ip")
    assert path is not None  # hosts are made with it
    return path
