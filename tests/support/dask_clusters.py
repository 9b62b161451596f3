"""A cluster over Dask in the processes of one machine."""

import asyncio
import io
import json
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from virtual_runs import NOWHERE
from workers import Agreed, Client, on_fake

from bench.hosts import Host
from loadsim.cluster.controller import MISSES, Cluster
from loadsim.cluster.own_dask import PAGES_ADDRESS, Scheduler, Security
from loadsim.cluster.own_dask import Client as Control
from loadsim.cluster.worker_channels import worker_channels
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.event_log import Events
from loadsim.engine.snapshot import LiveSnapshot

RUN = "run-1"
AGENT = """
import asyncio, logging, sys
from pathlib import Path
from loadsim.cluster.agent import Agent, serve
from loadsim.cluster.own_dask import Security
logging.getLogger("distributed").setLevel(logging.CRITICAL)
asyncio.run(serve(sys.argv[1], sys.argv[2], Agent(Path(sys.argv[3]), ()), Security(), sys.argv[4]))
"""


NO_LAB: Mapping[str, Host] = {}


class Agents:
    """Processes of agents, on this host or others, for a scheduler here; each has a place for runs of its own."""

    def __init__(self, scheduler: Scheduler, place: Path, lab: Mapping[str, Host]) -> None:
        """`lab` says which agent is on which host; those that are not in it are on this one, on loopback."""
        self._scheduler = scheduler
        self._place = place
        self._lab = lab
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        for name in names:
            runs = self._place / name
            runs.mkdir(exist_ok=True)
            host = self._lab.get(name)
            address = host.address if host else "127.0.0.1"
            command = [sys.executable, "-c", AGENT, self._scheduler.address, name, str(runs), address]
            self._processes[name] = subprocess.Popen(host.command(command) if host else command)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self._processes[name].wait()

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def quiet_dask() -> Iterator[None]:
    """Dask warns of every agent that is lost, which is what happens here."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@asynccontextmanager
async def cluster(
    place: Path, *names: str, address: str = "127.0.0.1", lab: Mapping[str, Host] = NO_LAB
) -> AsyncIterator[tuple[Cluster, Agents]]:
    """A scheduler here, agents of these names, and the controller's view of them."""
    security = Security()
    async with (
        asyncio.timeout(PATIENCE_S),
        Scheduler(protocol="tcp", host=address, port=0, dashboard_address=PAGES_ADDRESS) as scheduler,
        Control(scheduler.address, asynchronous=True, set_as_default=False) as control,
    ):
        agents = Agents(scheduler, place, lab)
        try:
            agents.start(*names)
            await control.wait_for_workers(len(names))
            yield Cluster(control, security), agents
        finally:
            agents.end()


def conduct(
    place: Path,
    clients: Sequence[Client],
    watch: Callable[[LiveSnapshot, Agents], None] = lambda *_: None,
    address: str = "127.0.0.1",
    lab: Mapping[str, Host] = NO_LAB,
) -> list[dict[str, Any]]:
    """A whole run of these over a cluster of their agents; the controller's events."""
    told = io.StringIO()

    async def main() -> None:
        names = [client.share.name for client in clients]
        shares = [client.share for client in clients]
        async with (
            cluster(place, *names, address=address, lab=lab) as (controller, agents),
            worker_channels(controller, RUN) as open_channel,
        ):
            await Coordinator(
                shares,
                Events(told),
                lambda snapshot: watch(snapshot, agents),
                StandaloneControl(MonotonicClock(), 0.5),
                open_channel,
                MISSES,
            ).run()

    asyncio.run(main())
    return [json.loads(line) for line in told.getvalue().splitlines()]


def shared(place: Path, *names: str, seconds: int = 6) -> list[Client]:
    """Clients with one engine each, two users a client; an agent's runs are in a directory of the client's name."""
    scenario = on_fake(place, users=2 * len(names), seconds=seconds)
    clients = Agreed(place, scenario, NOWHERE, dict.fromkeys(names, 1)).clients
    for client in clients:
        client.place = place / client.share.name / RUN
    return clients
