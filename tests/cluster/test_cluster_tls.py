"""Station and agents with certificates, as they are for: over mutual TLS between test hosts, and nobody else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mailservers import short_directory
from patience import PATIENCE_S

from bench.hosts import Host, hosts
from loadsim.cluster import certs
from loadsim.cluster.build_fingerprint import build_fingerprint

pytestmark = pytest.mark.nightly(part="hosts")

AT_THE_DOOR_S = 2.0
"""How long a stranger's agent may try."""

STATION = """
import asyncio, json, logging, sys
from pathlib import Path
import dask
from distributed import Client, Scheduler
from loadsim.cluster.agent import DASK_SETTINGS
from loadsim.cluster.bundle import load_bundle
from loadsim.cluster.security import PAGES_ADDRESS, mutual_tls
from loadsim.cluster.controller import Cluster

async def main():
    security = mutual_tls(load_bundle(Path(sys.argv[1])))
    with dask.config.set(DASK_SETTINGS):
        async with Scheduler(
            protocol="tls", host=sys.argv[2], port=0, dashboard_address=PAGES_ADDRESS, security=security
        ) as scheduler, Client(scheduler.address, security=security, asynchronous=True) as control:
            print(scheduler.address, flush=True)
            cluster = Cluster(control, security)
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(await cluster.clients()), flush=True)

logging.getLogger("distributed").setLevel(logging.CRITICAL)
asyncio.run(main())
"""
"""Says where it listens, and for each line which clients there are."""

AGENT = """
import asyncio, logging, sys
from pathlib import Path
from loadsim.cluster.agent import serve
from loadsim.cluster.bundle import load_bundle
from loadsim.cluster.security import mutual_tls

logging.getLogger("distributed").setLevel(logging.CRITICAL)
security = mutual_tls(load_bundle(Path(sys.argv[1])))
asyncio.run(serve(sys.argv[2], sys.argv[3], Path(sys.argv[4]), security, sys.argv[5]))
"""


@contextmanager
def station(host: Host, bundle: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A station on the host, and where it listens."""
    arguments = [sys.executable, "-c", STATION, bundle, host.address]
    with host.start(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
        process.stdin.close()


def clients(process: subprocess.Popen[str]) -> str:
    """What the station knows of its clients, as JSON."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(file=process.stdin, flush=True)
    return process.stdout.readline()


@contextmanager
def agent(host: Host, bundle: Path, address: str, name: str, runs: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent on the host, killed at the end."""
    runs.mkdir()
    arguments = [sys.executable, "-c", AGENT, bundle, address, name, runs, host.address]
    with host.start(arguments) as process:
        try:
            yield process
        finally:
            process.kill()


async def until_there(process: subprocess.Popen[str], name: str) -> str:
    """What the station says when the client is among those that it knows."""
    async with asyncio.timeout(PATIENCE_S):
        while f'"{name}"' not in (said := await asyncio.to_thread(clients, process)):
            pass
    return said


def test_an_agent_on_another_host_joins_with_its_bundle_and_no_stranger_does() -> None:
    """The client's certificate has no address of its host's: it is known by its name. The stranger's is of another CA.

    The station asks the client over TLS, the other way round, what it is.
    """
    with short_directory() as place, hosts(3, grace_s=AT_THE_DOOR_S) as (first, second, third):
        for directory in (place / "ours", place / "theirs"):
            certs.make(directory, [certs.station([first.address]), certs.client("load1")], 10, 10)
        with (
            station(first, place / "ours/station") as (address, process),
            agent(third, place / "theirs/clients/load1", address, "stranger", place / "b") as stranger,
            agent(second, place / "ours/clients/load1", address, "load1", place / "a"),
        ):
            assert address.startswith(f"tls://{first.address}:")
            said = asyncio.run(until_there(process, "load1"))
            assert f'"{build_fingerprint()}"' in said
            with pytest.raises(subprocess.TimeoutExpired):
                stranger.wait(AT_THE_DOOR_S)
            assert "stranger" not in clients(process)
