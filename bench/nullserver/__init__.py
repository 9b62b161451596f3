"""The null server: IMAP and SMTP that answer at once from memory, in C, built when it is first needed.

What a client costs shows best on a server that costs next to nothing. It keeps as much as a run of loadsim asks for:
what is submitted appears in the recipients' Inboxes, is announced, and can be fetched, moved and expunged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.hosts import INTERFACE, Host
from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint, Services

SOURCES = Path(__file__).parent
BUILT = Path(__file__).parents[2] / "build" / "nullserver"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wconversion")

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Shape:
    """The server's contents and behaviour; `nullserver -h` names the options."""

    workers: int = 1
    users: int = 100_000
    messages: int = 100  # in an Inbox at the beginning
    folders: int = 40
    folder_messages: int = 5
    body_bytes: int = 1024
    pushes_per_s: float = 0.0  # new messages to each idling connection
    stamped: bool = False  # whether a push says when it was sent: "* OK [SENT <monotonic ns>]" behind EXISTS
    lists: Path | None = None  # as Postfix's virtual_alias_maps have them

    def options(self) -> list[str]:
        """As command line options."""
        numbers = {
            "-w": self.workers,
            "-u": self.users,
            "-m": self.messages,
            "-f": self.folders,
            "-n": self.folder_messages,
            "-z": self.body_bytes,
            "-p": self.pushes_per_s,
        }
        given = [part for option, value in numbers.items() for part in (option, str(value))]
        return [*given, *(["-t"] if self.stamped else []), *(["-l", str(self.lists)] if self.lists else [])]


@dataclass(frozen=True, slots=True)
class NullServer:
    """A running server. `counts` is filled when it has been stopped: commands by name, connections, deliveries."""

    services: Services
    pid: int
    counts: dict[str, int] = field(default_factory=dict)


def compiler() -> str:
    """The C compiler's command. Raises `ConfigError` where there is none."""
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if path := shutil.which(name):
            return path
    raise ConfigError("null server: expected a C compiler (cc), found none: apt-get install gcc libc6-dev")


def build(into: Path = BUILT) -> Path:
    """The server's program, compiled unless it is newer than its sources. Raises `ConfigError` when that fails."""
    sources = [SOURCES / name for name in ("null.h", "imap.h", "fetch.c", "imap.c", "mailbox.c", "main.c", "smtp.c")]
    if into.exists() and into.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return into
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as place:
        program = Path(place) / into.name
        command = [
            compiler(),
            *FLAGS,
            "-o",
            str(program),
            *(str(source) for source in sources if source.suffix == ".c"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ConfigError(f"null server: expected it to compile, the compiler said: {done.stderr.splitlines()[0]}")
        program.replace(into)  # whole or not at all: somebody else may be building it too
    return into


@contextmanager
def started(shape: Shape, cpus: Sequence[int] | None = None, on: Host | None = None) -> Iterator[NullServer]:
    """The server, running on these CPUs (None: on any) for the time of the block, on free ports of 127.0.0.0/8.

    If `on` is a test host, it runs there, and the others reach it at that host's address.
    """
    command = [str(build()), *shape.options()]
    if on is not None:
        command = on.command([*command, "-d", INTERFACE])
    with pinned(cpus):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with process.stdout as said:
            ports: Mapping[str, int] = json.loads(said.readline() or "{}")
            if not ports:
                raise ConfigError(f"null server: expected to start, it ended with status {process.wait()}")
            host = HOST if on is None else on.address
            services = Services(Endpoint(host, ports["imap"]), Endpoint(host, ports["smtp"], connection="kept"))
            server = NullServer(services, process.pid)
            yield server
            process.send_signal(signal.SIGTERM)
            server.counts.update(json.loads(said.readline()))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def pinned(cpus: Sequence[int] | None) -> Iterator[None]:
    """This process, and what it starts, runs on these CPUs only while the block lasts; None leaves it alone."""
    before = os.sched_getaffinity(0)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
