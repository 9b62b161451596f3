"""Prepare the mailboxes of some users in a process: `python -m loadsim.cluster.prepare_process`.

A worker starts such processes, and exchanges messages with them by their standard input and output (`prepare`). To
make the contents of one mailbox and compare them takes some 50 ms of a core. That would hold up a process that has to
send a heartbeat each second, and several cores do it in a fraction of the time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from loadsim.cluster.background import background_tasks
from loadsim.cluster.prepare import BEAT_S, PhaseProgress
from loadsim.engine.channel import own_pipes, pipes_to_pool
from loadsim.engine.control import decode, encode
from loadsim.engine.process import packed, unpacked
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.provisioning.initialise import inspect, restore

PREPARER = (sys.executable, "-P", "-m", "loadsim.cluster.prepare_process")


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """The first message to such a process: `assignment` has the users, `at_once` limits the visits at a time."""

    scenario: Scenario
    services: Services
    assignment: Assignment
    at_once: int

    def encode(self) -> bytes:
        """Return the message as a line."""
        about = {"hand": asdict(self.assignment), "at_once": self.at_once}
        return encode(prepare={"values": packed(self.scenario, self.services), **about})

    @classmethod
    def decode(cls, line: bytes) -> PrepareRequest:
        """Read such a line."""
        _, about = decode(line)
        scenario, services = unpacked(about["values"])
        return cls(scenario, services, Assignment(**about["hand"]), about["at_once"])


class WorkerGone(Exception):
    """The worker that started this process has exited."""


class ProgressReporter:
    """Sends the progress at the beginning of each phase, and once a beat."""

    def __init__(self, send: Callable[[bytes], None], progress: PhaseProgress) -> None:
        self._send = send
        self._progress = progress

    def update(self, phase: str, done: int, of: int) -> None:
        """Take the progress of the visits (`provisioning.sessions.Progress`)."""
        begins = phase != self._progress.phase
        self._progress = PhaseProgress(phase, done, of)
        if begins:
            self.send()

    def send(self) -> None:
        """Send the progress now."""
        self._send(encode(progress=self._progress))

    async def send_each_beat(self) -> None:
        """Send the progress once a beat, without end."""
        while True:
            self.send()
            await asyncio.sleep(BEAT_S)


async def run(from_worker: int, to_worker: int) -> None:
    """Run the process. The file descriptors are its ends of the two pipes."""
    async with pipes_to_pool(from_worker, to_worker) as (reader, send):
        if line := await reader.readline():
            with suppress(WorkerGone):
                try:
                    await prepare(PrepareRequest.decode(line), reader, send)
                except ConfigError as refusal:
                    send(encode(refused=str(refusal)))


async def prepare(request: PrepareRequest, reader: asyncio.StreamReader, send: Callable[[bytes], None]) -> None:
    """Inspect the mailboxes, and change them when told to. Raises `ConfigError`, and `WorkerGone`."""
    change = asyncio.Event()

    async def listen() -> None:
        while await reader.readline():
            change.set()
        raise WorkerGone

    progress = ProgressReporter(send, PhaseProgress(of=len(request.assignment)))
    workload, mode = Workload(request.scenario), request.scenario.initialise
    about: dict[str, Any] = {"progress": progress.update, "at_once": request.at_once}
    async with background_tasks(listen(), progress.send_each_beat()):
        inspected = await inspect(workload, request.services, mode, users=request.assignment, **about)
        progress.send()
        send(encode(inspected=len(inspected.to_change)))
        await change.wait()
        done = await restore(workload, request.services, mode, inspected, **about)
        progress.send()
        send(encode(prepared=asdict(done)))
        await asyncio.Event().wait()  # until killed: a preparer that ends before the others counts as lost


def main() -> None:
    """Run on asyncio's own event loop, like all provisioning."""
    asyncio.run(run(*own_pipes()))


if __name__ == "__main__":
    main()
