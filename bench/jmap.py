"""The cost of idle users of the driver `jmap`, each with a stream of events, next to as many of `imap` in IDLE.

`imap` is on the null server, `jmap` on the server of its tests (tests/support/jmap_peer): only the cost of the client
counts. The servers deliver new mail at an equal rate, at which users look.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from bench import tables
from bench.client import account, message
from bench.nullserver import HOST, Shape, pinned, started
from bench.part import Part
from bench.processes import Cpus, run_client
from bench.tls import context, in_front, make_certificate
from loadsim.errors import ConfigError

MESSAGES = 4
"""The messages in each Inbox at the beginning."""

BODY_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Idle:
    """A number of users, the new messages for all of them together, and for how long they wait."""

    users: int
    pushes_per_s: float
    seconds: float
    tls: bool = False


def measure(cpus: Cpus, loads: list[Idle]) -> list[dict[str, Any]]:
    """Return a row for each driver under each load."""
    return [row for load in loads for row in (_imap(cpus, load), _jmap(cpus, load))]


def _imap(cpus: Cpus, load: Idle) -> dict[str, Any]:
    shape = Shape(messages=MESSAGES, pushes_per_s=load.pushes_per_s / load.users, body_bytes=BODY_BYTES)
    with tempfile.TemporaryDirectory() as place, started(shape, cpus.server) as null:
        imap, smtp = null.services.endpoint("imap"), null.services.endpoint("smtp")
        certificate = make_certificate(Path(place)) if load.tls else None
        with pinned(cpus.server):
            front = in_front(certificate, imap.port) if certificate else nullcontext(imap.port)
        with front as port:
            return _row(cpus, load, {"client": "imap", "server": (HOST, port, smtp.port)}, certificate)


def _jmap(cpus: Cpus, load: Idle) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        certificate = make_certificate(Path(place)) if load.tls else None
        with pinned(cpus.server):
            server = _server(load, certificate)
        with server as port:
            return _row(cpus, load, {"client": "jmap", "server": (HOST, port)}, certificate)


def _row(cpus: Cpus, load: Idle, server: dict[str, Any], certificate: Path | None) -> dict[str, Any]:
    job = {"what": "idle", "loop": "uvloop", "sessions": load.users, "seconds": load.seconds, **server}
    found = run_client(cpus, {**job, "ca_file": str(certificate) if certificate else None})
    looks_per_s = found.pop("looks") / load.seconds
    driver = f"{server['client']}, TLS" if load.tls else server["client"]
    return {"driver": driver, "users": load.users, "looks_per_s": looks_per_s, **found}


@contextmanager
def _server(load: Idle, certificate: Path | None) -> Iterator[int]:
    """The JMAP server, which delivers mail at this rate, while the block lasts; its port."""
    job = {**asdict(load), "certificate": str(certificate) if certificate else None}
    command = [sys.executable, "-m", "bench.jmap", json.dumps(job)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])
    assert process.stdout is not None
    try:
        with process.stdout as said:
            listening = said.readline()
            if not listening:
                raise ConfigError(f"bench: JMAP server: expected it to start, it ended with {process.wait()}")
            yield int(listening)
    finally:
        process.kill()
        process.wait()


async def _serve(users: int, pushes_per_s: float, certificate: str | None, **_: Any) -> None:
    peer, messages = import_module("tests.support.jmap_peer"), import_module("tests.support.jmap_peer.messages")
    numbers = count()

    def deliver(to: Any) -> None:
        to.deliver(messages.Message(b"X-Number: %d\r\n" % next(numbers) + message(BODY_BYTES)))

    known = [account(number) for number in range(1, users + 1)]
    own = [peer.User(each.login, each.address, each.password) for each in known]
    async with peer.jmap_peer(own, tls=context(certificate) if certificate else None) as server:
        accounts = list(server.accounts.values())
        for each in accounts * MESSAGES:
            deliver(each)
        print(server.base.rpartition(":")[2], flush=True)
        while True:
            for each in accounts:
                await asyncio.sleep(1 / pushes_per_s)
                deliver(each)


JMAP_USERS = Part(
    "jmap_users",
    measure,
    {"Idle users of `jmap` with event streams, next to `imap`": tables.idle},
    smallest=[Idle(5, 20.0, 0.5), Idle(5, 20.0, 0.5, tls=True)],
    full=[Idle(500, 50.0, 10.0), Idle(5000, 50.0, 20.0), Idle(500, 50.0, 10.0, tls=True)],
)

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(**json.loads(sys.argv[1])))
