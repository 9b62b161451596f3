"""Prepare the mailboxes of some users in a process: `python -m loadsim.cluster.prepare_process`.

A worker starts such processes, and exchanges messages with them by their standard input and output (`prepare`). To
make the contents of one mailbox and compare them takes some 50 ms of a core. That would hold up a process that has to
send a heartbeat each second, and several cores do it in a fraction of the time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Self

from loadsim.cluster.prepare import BEAT_S, Inspected, PhaseProgress, Prepared
from loadsim.engine.channel import coordinator_lines, own_pipes
from loadsim.engine.control import Message, Refused, decode, encode, message
from loadsim.engine.event_loop import background_tasks
from loadsim.engine.process import packed, unpacked
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.provisioning.initialise import inspect, restore
from loadsim.timinglog.json_checks import having

PREPARER = (sys.executable, "-P", "-m", "loadsim.cluster.prepare_process")


@message("prepare", having({}))
class PrepareRequest(Message):
    """The first message to such a process: `assignment` has the users, `at_once` limits the visits at a time."""

    scenario: Scenario
    services: Services
    assignment: Assignment
    at_once: int

    def value(self) -> dict[str, Any]:
        about = {"hand": asdict(self.assignment), "at_once": self.at_once}
        return {"values": packed(self.scenario, self.services), **about}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        scenario, services = unpacked(value["values"])
        return cls(scenario, services, Assignment(**value["hand"]), value["at_once"])


class WorkerGone(Exception):
    """The worker that started this process has exited."""


class ProgressReporter:
    """Sends the progress at the beginning of each phase, and once a beat."""

    def __init__(self, send: Callable[[bytes], None], progress: PhaseProgress) -> None:
        self._send = send
        self._progress = progress

    def update(self, progress: PhaseProgress) -> None:
        begins = progress.phase != self._progress.phase
        self._progress = progress
        if begins:
            self.send()

    def send(self) -> None:
        self._send(encode(self._progress))

    async def send_each_beat(self) -> None:
        while True:
            self.send()
            await asyncio.sleep(BEAT_S)


async def run(from_worker: int, to_worker: int) -> None:
    """Run the process. The file descriptors are its ends of the two pipes."""
    async with coordinator_lines(from_worker, to_worker) as (reader, send):
        if line := await reader.readline():
            request = decode(line, (PrepareRequest,))
            with suppress(WorkerGone):
                try:
                    await prepare(request, reader, send)
                except ConfigError as refusal:
                    send(encode(Refused(str(refusal))))


async def prepare(request: PrepareRequest, reader: asyncio.StreamReader, send: Callable[[bytes], None]) -> None:
    """Inspect the mailboxes, and change them when told to. Raises `ConfigError`, and `WorkerGone`."""
    change = asyncio.Event()

    async def listen() -> None:
        while await reader.readline():
            change.set()
        raise WorkerGone

    progress = ProgressReporter(send, PhaseProgress(of=len(request.assignment)))
    workload, mode = Workload(request.scenario), request.scenario.initialise
    about: dict[str, Any] = {
        "progress": lambda *visits: progress.update(PhaseProgress(*visits)),
        "at_once": request.at_once,
    }
    async with background_tasks(listen(), progress.send_each_beat()):
        inspected = await inspect(workload, request.services, mode, users=request.assignment, **about)
        progress.send()
        send(encode(Inspected(len(inspected.to_change))))
        await change.wait()
        done = await restore(workload, request.services, mode, inspected, **about)
        progress.send()
        send(encode(Prepared(done)))
        await asyncio.Event().wait()  # until killed: a preparer that ends before the others counts as lost


def main() -> None:
    """Run on asyncio's own event loop, like all provisioning."""
    asyncio.run(run(*own_pipes()))


if __name__ == "__main__":
    main()
