"""A storage test on all machines of a cluster at the same time, each with its own disks and recording."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadsim.cluster.agent import TEST_STORAGE
from loadsim.cluster.controller import Cluster, cluster_at
from loadsim.cluster.placement import fit_clients
from loadsim.cluster.security import Access
from loadsim.errors import ConfigError, RunInvalid
from loadsim.processes.event_loop import background_tasks, calls_on_signal, run, task_group
from loadsim.runs.directory import create_directory, discard
from loadsim.storage.member import STOP
from loadsim.storage.recording import RECORDING, Tell
from loadsim.storage.runs import Test
from loadsim.storage.scenario import StorageScenario
from loadsim.storage.verdict import LOADED

MOST_SILENT_S = 60.0  # a client is lost after this silence: it sends a beat each second


def test_together(
    queue: Sequence[StorageScenario], test: Test, out: Path, tell: Tell, access: Access, clients: int | None
) -> list[Path]:
    """Test the first scenario on each client of a cluster; return the clients' directories, named after them, in `out`.

    Wait until this many clients have joined; None takes those present. When one ends early, all end. Raises
    `ConfigError` before any measurement, and `RunInvalid` if a client's test does not begin.
    """

    async def make() -> list[Path]:
        async with cluster_at(access) as cluster:
            names = [client.name for client in fit_clients(await cluster.joined(clients, tell))]
            made = [create_directory(out / name, name, RECORDING) for name in names]
            recordings = {place.name: place / RECORDING for place, _ in made}
            order = json.dumps({"test": test, "scenarios": list(map(asdict, queue))}).encode() + b"\n"
            try:
                await _Together(cluster, recordings, order, tell, 3 if test in LOADED else 1).run()
            finally:
                for place, created in made:
                    if not recordings[place.name].stat().st_size:
                        discard(place, created)
        return [place for place, _ in made]

    return run(make())


@dataclass(slots=True)
class _Together:
    """All clients' tests, which meet `meetings` times, the last time when their windows end."""

    cluster: Cluster
    recordings: dict[str, Path]
    order: bytes
    tell: Tell
    meetings: int
    comms: dict[str, Any] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    over: bool = False
    stops: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def run(self) -> None:
        with calls_on_signal(self._stop):
            async with background_tasks(self._send_stops()), task_group() as group:
                for name in self.recordings:
                    group.create_task(self._follow(name))
        for name, path in self.recordings.items():
            if not path.stat().st_size:
                raise RunInvalid(f"client {name}: ended before its test began")

    def _stop(self) -> None:
        """End all tests, or they would wait for each other. A second call ends tests whose disks hang."""
        self.over = True
        self.stops.release()

    async def _send_stops(self) -> None:
        while await self.stops.acquire():
            await self._send_all(STOP)

    async def _send_all(self, line: bytes) -> None:
        for comm in list(self.comms.values()):
            with suppress(OSError):
                await comm.write([line])

    async def _follow(self, name: str) -> None:
        """Receive a client's test until the connection ends. A lost client's recording has no end."""
        try:
            async with self.cluster.connected(name) as comm:
                await comm.write({"op": TEST_STORAGE, "reply": False})
                await comm.write([self.order])
                self.comms[name] = comm
                if self.over:
                    await comm.write([STOP])
                while True:
                    async with asyncio.timeout(MOST_SILENT_S):
                        lines = await comm.read()
                    for line in lines:
                        await self._receive(name, *json.loads(line))
        except (OSError, TimeoutError) as closed:
            if name not in self.comms:
                raise ConfigError(f"client {name}: expected an agent, found: {closed or 'no answer'}") from None
        del self.comms[name]
        if self.meetings and not self.over:  # the others would wait for it
            self._stop()

    async def _receive(self, name: str, kind: str, text: str) -> None:
        match kind:
            case "record":
                with self.recordings[name].open("a", encoding="utf-8") as file:
                    file.write(text)
            case "tell":
                self.tell(f"{name}: {text}")
            case "arrive":
                self.arrived.add(name)
                if self.arrived == self.recordings.keys():
                    self.arrived.clear()
                    self.meetings -= 1
                    await self._send_all(b"all there\n")
            case "leave" if not self.over:
                self._stop()
            case "refused":
                raise ConfigError(f"client {name}: {text}")
            case "failed":
                raise RunInvalid(f"client {name}: {text}")
