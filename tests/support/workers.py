"""Workers of a cluster without agents: a controller's side of their channel, played by a test."""

import asyncio
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from patience import PATIENCE_S
from timing_samples import HEADER
from virtual_runs import quiet, scenario_of

from loadsim.cluster.channel import WorkerChannel
from loadsim.cluster.placement import WorkerAssignment, fingerprints
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.worker_directory import EVENTS_NAME, LOGS_NAME
from loadsim.engine.channel import Channel
from loadsim.model.partition import divide
from loadsim.model.ports import Services
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.sections import Losses
from loadsim.scenario.workload import Workload
from loadsim.timinglog.reader import TimingLog, read_log

CONTROL_LIMIT_S = 2.0
AGENT = """
import asyncio, os, sys
from pathlib import Path
from loadsim.cluster.worker_directory import connect, start_worker
async def main(place):
    if not place.exists():
        process = start_worker(place)
    reader, writer = await connect(place)
    loop = asyncio.get_running_loop()
    from_station = asyncio.StreamReader(limit=1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(from_station), os.fdopen(0, "rb", 0))
    async def down():
        while line := await from_station.readline():
            writer.write(line)
    telling = asyncio.create_task(down())
    while line := await reader.readline():
        os.write(1, line)
asyncio.run(main(Path(sys.argv[1])))
"""
"""An agent: starts the machine if there is none, and relays lines between its own pipes and the machine's socket."""


class Client:
    """A client: a directory for its worker, its agent, and the controller's channel to it by that agent."""

    def __init__(self, place: Path, share: WorkerAssignment) -> None:
        self.place = place / share.name
        self.share = share
        self.channel = WorkerChannel()
        self.agent: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def logs(self) -> dict[str, TimingLog]:
        return {path.name.split(".")[1]: read_log(path) for path in sorted((self.place / LOGS_NAME).glob("*.tlog"))}

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (self.place / EVENTS_NAME).read_text().splitlines()
        return [event for line in lines if (event := json.loads(line))["event"] == name]

    async def open(self) -> Channel:
        self._tasks = [asyncio.create_task(self._attend()), asyncio.create_task(self._beat())]
        return self.channel

    async def close(self) -> None:
        """Leave neither agent nor task, once the worker's last message is acknowledged."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S if self.channel.ended else 0):
                await self._tasks[0]
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _attend(self) -> None:
        self.agent = agent = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AGENT, self.place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 26
        )
        assert agent.stdin is not None
        assert agent.stdout is not None
        self.channel.link.attach(agent.stdin.write)
        try:
            while (line := await agent.stdout.readline()).endswith(b"\n"):
                self.channel.link.feed(line)
        finally:
            self.channel.link.detach()
            with suppress(ProcessLookupError):
                agent.kill()
            await agent.wait()
        self.channel.end("no agent was left")

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self.channel.link.beat()


class Agreed:
    """A share for each client of a scenario: so many engines each."""

    def __init__(self, place: Path, scenario: Scenario, services: Services, engines: Mapping[str, int]) -> None:
        scenario = replace(scenario, cluster=Losses(CONTROL_LIMIT_S))
        assignments = divide(scenario.users, sum(engines.values()))
        header = HEADER | {
            "users": scenario.users,
            "scenario_digest": scenario.digest(),
            "duration_s": scenario.duration_s,
        }
        workload = Workload(scenario)
        self.clients = []
        for name, number in engines.items():
            mine = [assignments.pop(0) for _ in range(number)]
            ours = fingerprints(workload, sorted(chain.from_iterable(mine)))
            share = WorkerAssignment(scenario, services, name, mine, header, ours)
            self.clients.append(Client(place, share))


def wait_for_end(process: int) -> None:
    """Wait until a process of any parent is gone."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(process)
        try:
            assert select.select([descriptor], [], [], PATIENCE_S)[0], "it lives on"
        finally:
            os.close(descriptor)


def on_fake(place: Path, users: int = 4, ramp_up: str = "0s", seconds: int = 6, **client: Any) -> Scenario:
    """Users who browse three times in so many seconds, in an engine's memory."""
    limits = {"drain": "1s", "grace": "1s"}
    profile = quiet(browse={"per_day": 3})
    return scenario_of(
        place / "scenario", (profile, users), day=f"{seconds}s", ramp_up=ramp_up, limits=limits, client=client
    )
