"""A client's costs of TLS: CPU of a log-on, with a full handshake and with a resumed session, and memory.

In front of the null server stands a process that does nothing but TLS, with Python's `ssl` and a certificate of its
own (P-256). All of its sessions can be resumed: it is one process. A Dovecot in its default mode has one process for
each log-on, and resumes where the same one happens to answer.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from bench import tables
from bench.nullserver import HOST, Shape, pinned, started
from bench.part import Part
from bench.processes import Cpus, interleave, run_client, summary
from loadsim.errors import ConfigError

WAYS = {
    "plain": {"tls": "none", "resumes": False},
    "TLS 1.3, whole handshake": {"tls": "implicit", "resumes": False},
    "TLS 1.3, resumed": {"tls": "implicit", "resumes": True},
}


def measure(cpus: Cpus, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Return a row for each way to connect. `size` is the rounds, and the users who log on amid as many idle ones."""
    rounds, sessions = size
    with tempfile.TemporaryDirectory() as place, started(Shape(messages=4), cpus.server) as server:
        certificate = make_certificate(Path(place))
        imap, smtp = server.services.endpoint("imap"), server.services.endpoint("smtp")
        with pinned(cpus.server):
            front = in_front(certificate, imap.port)
        with front as port:
            job = {"what": "log_ons", "loop": "uvloop", "sessions": sessions, "ca_file": str(certificate)}
            variants: dict[tuple[str, ...], Callable[[], Mapping[str, float]]] = {
                (way,): partial(
                    run_client,
                    cpus,
                    {**job, **how, "server": (HOST, imap.port if how["tls"] == "none" else port, smtp.port)},
                )
                for way, how in WAYS.items()
            }
            found = interleave(rounds, variants)
    return [{"way": way, **{name: summary(figures) for name, figures in row.items()}} for (way,), row in found.items()]


def make_certificate(directory: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key, in one PEM file."""
    pem, key = directory / "server.pem", directory / "server.key"
    command = (
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-days", "2", "-subj", "/CN=null.test", "-addext", f"subjectAltName=IP:{HOST}"),
        *("-keyout", str(key), "-out", str(pem)),
    )
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError(
            "bench: expected the openssl command to make a certificate: apt-get install openssl"
        ) from None
    pem.write_text(pem.read_text() + key.read_text())
    return pem


@contextmanager
def in_front(certificate: Path, port: int) -> Iterator[int]:
    """The process that does TLS for this port, while the block lasts; the port where it does."""
    command = [sys.executable, "-m", "bench.tls", json.dumps({"certificate": str(certificate), "port": port})]
    root = Path(__file__).parents[1]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
    assert process.stdout is not None
    try:
        with process.stdout as said:
            listening = said.readline()
            if not listening:
                raise ConfigError(f"bench: TLS in front: expected it to start, it ended with {process.wait()}")
            yield int(listening)
    finally:
        process.kill()
        process.wait()


def context(certificate: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


async def _serve(certificate: str, port: int) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_null, to_null = await asyncio.open_connection(HOST, port)
        await asyncio.gather(relay(reader, to_null), relay(from_null, writer))

    server = await asyncio.start_server(connected, HOST, 0, ssl=context(certificate), backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


TITLE = "TLS: a log-on, and a user who is on and idle (of the client)"
TLS = Part("tls", measure, {TITLE: tables.tls}, smallest=(1, 3), short=(2, 200), full=(5, 500))

if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(**json.loads(sys.argv[1])))
