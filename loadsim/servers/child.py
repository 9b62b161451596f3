"""An embedded server's process: it reads accounts and lists, reports its ports, and exits with its parent.

Standard input has one JSON line with accounts and lists; its end means that the parent has exited. Standard output gets
one JSON line with the ports; standard error gets errors.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence

BACKLOG = 1024
"""Connections that may wait to be accepted, as all users log on at about the same time."""

Serve = Callable[[Sequence[Sequence[str]], Mapping[str, Sequence[str]]], Coroutine[None, None, None]]
"""Serves accounts (login, address, password) and lists (address, members' addresses) until the end."""


def listen() -> socket.socket:
    """Return a socket that listens on a free loopback port."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it only with a protocol number
    return listening


async def until_end(services: Mapping[str, tuple[socket.socket, str]], versions: Mapping[str, str]) -> None:
    """Report the services' ports and paths to the parent, and wait for SIGTERM or the end of standard input."""
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    loop.add_reader(sys.stdin.fileno(), end.set)
    places = {name: (listening.getsockname()[1], path) for name, (listening, path) in services.items()}
    ready = {"services": places, "versions": versions}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    await end.wait()


def run_child(serve: Serve) -> None:
    """Read accounts and lists, raise the open-file limit, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose users log off first
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        raise SystemExit("expected a line with accounts and lists, found the end of standard input")
    content = json.loads(line)
    asyncio.run(serve(content["accounts"], content["lists"]))
