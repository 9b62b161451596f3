"""The members of a cluster as processes on test hosts: controller, clients, a run; their costs, and their traffic.

The commands are those that a user types. What they cost is what the kernel says of their processes; what they say to
each other is counted at the controller's network interface, by which there is nothing else once mailboxes are prepared.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench.hosts import INTERFACE, Host
from bench.nullserver import pinned
from bench.processes import LONGEST_S
from bench.runs import loadsim
from loadsim.errors import ConfigError
from loadsim.scenario.run_times import PARTS

LOOK_S = 0.1
JOIN_LIMIT_S = 300.0
GRACE_S = 30.0

JIFFIES = os.sysconf("SC_CLK_TCK")

KINDS = (
    ("engine", "loadsim.engine.process"),
    ("machine", "loadsim.cluster.worker"),
    ("agent", "loadsim client "),
    ("station", "loadsim cluster up "),
    ("run", "loadsim run "),
)
"""Kinds of processes by the words of their command line."""


@dataclass
class Member:
    """A command that is running; what it says is in the file `said`."""

    process: subprocess.Popen[str]
    said: Path

    def lines(self) -> list[str]:
        """Return its output so far."""
        return self.said.read_text(errors="replace").splitlines()

    def until(self, pattern: str, within_s: float = JOIN_LIMIT_S) -> re.Match[str]:
        """Wait for a line in which this is found. Raises `ConfigError` when there will be none."""
        deadline_s = time.monotonic() + within_s
        while True:
            gone = self.process.poll() is not None or time.monotonic() > deadline_s
            for line in self.lines():
                if found := re.search(pattern, line):
                    return found
            if gone:
                last = (self.lines() or ["nothing"])[-1]
                raise ConfigError(f"bench: cluster: expected a line with {pattern!r}, found in the end: {last}")
            time.sleep(LOOK_S)


@contextmanager
def started(said: Path, command: Sequence[str]) -> Iterator[Member]:
    """A command that is running, and is ended with the block.

    It has a session of its own, as at a terminal of its own: the kernel gives sessions equal shares of a busy CPU
    (sched_autogroup), and workers have their own, too.
    """
    with said.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, text=True, start_new_session=True
        )
    try:
        yield Member(process, said)
    finally:
        process.terminate()  # as a service manager ends it; it may have been asked before
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Lab:
    """A controller and its clients. `place` has what they need and leave."""

    place: Path
    controller: Host
    address: str
    up: Member
    clients: dict[str, Member] = field(default_factory=dict)

    def command(self, *arguments: str | Path) -> list[str]:
        """Run a verb on the controller's host that uses the cluster."""
        own = ("--cluster", self.address, "--certs", self.place / "certs")
        return self.controller.command(loadsim(*arguments, *own))

    def roots(self) -> list[int]:
        """The processes of the controller and of the agents."""
        return [self.up.process.pid, *(client.process.pid for client in self.clients.values())]


@contextmanager
def cluster(
    place: Path,
    controller: Host,
    clients: Mapping[str, Host],
    ahead_s: Mapping[str, int],
    clients_on: Sequence[int] | None = None,
    controller_on: Sequence[int] | None = None,
) -> Iterator[Lab]:
    """A controller and clients on these hosts, over TLS; all have joined. `..._on` are the CPUs
    on which they run, None: any.

    The monotonic clock of a client in `ahead_s` is so many seconds ahead of the machine's, in a time namespace.
    """
    certs = loadsim("cluster", "certs", place / "certs")
    subprocess.run(certs, stdout=subprocess.DEVNULL, check=True, timeout=LONGEST_S)
    with ExitStack() as stack:
        listen = ("--listen", f"{controller.address}:0", "--certs", place / "certs")
        with pinned(controller_on):
            up = stack.enter_context(started(place / "up", controller.command(loadsim("cluster", "up", *listen))))
        lab = Lab(place, controller, up.until(r"Controller at (\S+)\. ")[1], up)
        for name, host in clients.items():
            own = ("--cluster", lab.address, "--certs", place / "certs", "--runs", place / "runs" / name)
            command = loadsim("client", "--name", name, *own)
            if name in ahead_s:
                command = ["unshare", "--time", "--monotonic", str(ahead_s[name]), *command]
            with pinned(clients_on):
                lab.clients[name] = stack.enter_context(started(place / f"client-{name}", host.command(command)))
        for name, client in lab.clients.items():
            client.until(f"joined .* as {name}$")
        try:
            yield lab
        finally:
            for client in lab.clients.values():  # all at once
                client.process.send_signal(signal.SIGINT)


# --- a run, watched -------------------------------------------------------------------------------------------------


class Traffic(NamedTuple):
    """Data received and sent by an interface since it was made, in bytes with all headers, and in packets."""

    received_bytes: int
    received_packets: int
    sent_bytes: int
    sent_packets: int


def traffic(pid: int) -> Traffic:
    """Of the host that this process is on."""
    for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == INTERFACE:
            columns = [int(figure) for figure in figures.split()]
            return Traffic(columns[0], columns[1], columns[8], columns[9])
    raise ConfigError(f"bench: cluster: expected an interface {INTERFACE}, found none")


class Kind(NamedTuple):
    """All processes of a kind: how many, their CPU time so far, and (where it was asked for) their memory.

    Memory is proportional: what several processes share is divided among them.
    """

    processes: int
    cpu_s: float
    memory_kib: int


def processes_below(roots: Sequence[int]) -> list[int]:
    """These and their children, and so on, as far as they live."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children[int(stat.read_text().rpartition(")")[2].split()[1])].append(int(stat.parent.name))
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return found


def costs(roots: Sequence[int], memory: bool = False) -> dict[str, Kind]:
    """Return the costs of those processes, by their kind."""
    found: dict[str, Kind] = {}
    for pid in processes_below(roots):
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            kind = next((kind for kind, words in KINDS if words in line), "other")
            columns = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            before = found.get(kind, Kind(0, 0.0, 0))
            cpu_s = (int(columns[11]) + int(columns[12])) / JIFFIES
            found[kind] = Kind(
                before.processes + 1, before.cpu_s + cpu_s, before.memory_kib + (_memory_kib(pid) if memory else 0)
            )
    return found


def _memory_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


@dataclass
class Watched:
    """A run as it was watched: the time of each phase, and its traffic and costs then, by the monotonic clock."""

    began_s: float
    ended_s: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    traffics: list[tuple[float, Traffic]] = field(default_factory=list)
    at_work: list[tuple[float, dict[str, Kind]]] = field(default_factory=list)
    status: int | None = None

    def between(self, begin_s: float, end_s: float) -> tuple[float, Traffic]:
        """Return the length of the longest stretch of looks within these instants, and its traffic."""
        within = [each for each in self.traffics if begin_s <= each[0] <= end_s]
        (first_s, first), (last_s, last) = within[0], within[-1]
        return last_s - first_s, Traffic(*(after - before for before, after in zip(first, last, strict=True)))


def watch(command: Sequence[str], said: Path, interface_of: int, roots: Sequence[int], work_s: float) -> Watched:
    """Run `loadsim run` to its end, looking at the controller's interface all the time, and at costs in the work.

    `interface_of` is a process of the controller. The costs are told a fifth into the work, and four fifths into it.
    """
    with (
        said.with_suffix(".json").open("w") as printed,
        said.open("w") as sink,
        subprocess.Popen(
            command, stdout=printed, stderr=sink, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process,
    ):
        seen = Watched(time.monotonic())
        try:
            while process.poll() is None:
                _look(seen, process.pid, said, interface_of, roots, work_s)
                if time.monotonic() - seen.began_s > LONGEST_S:
                    raise ConfigError("bench: loadsim run: expected it to end, it goes on")
                time.sleep(LOOK_S)
        except BaseException:
            process.kill()
            raise
        seen.ended_s = time.monotonic()
        seen.status = process.returncode
    return seen


def _look(seen: Watched, pid: int, said: Path, interface_of: int, roots: Sequence[int], work_s: float) -> None:
    seen.traffics.append((time.monotonic(), traffic(interface_of)))
    for line in said.read_text(errors="replace").splitlines():
        phase = line.partition(":")[0]
        if phase in PARTS:
            seen.phases.setdefault("work", time.monotonic())
        elif re.fullmatch("log-on|finish|drain|log-off|over|Waiting.*", phase):
            seen.phases.setdefault(phase, time.monotonic())
    if "work" in seen.phases and len(seen.at_work) < 2:
        share = (0.2, 0.8)[len(seen.at_work)]
        if time.monotonic() - seen.phases["work"] >= share * work_s:
            at_s = time.monotonic()
            seen.at_work.append((at_s, costs([pid, *roots], memory=not seen.at_work)))
