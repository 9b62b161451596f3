"""One engine in its own process: `python -m loadsim.engine.process`, started by the coordinator of its machine.

It uses the control protocol (`control`) on standard input and output, and writes its own timing log: its measurements
survive a failure of the others.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from loadsim.engine.channel import own_pipes, pipes_to_pool
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import decode, encode
from loadsim.engine.engine import Dependencies, Engine
from loadsim.engine.event_log import Events
from loadsim.engine.event_loop import fastest_loop
from loadsim.engine.participant import EventForwarder, RemoteControl
from loadsim.errors import ConfigError
from loadsim.model.content.compose import Contents
from loadsim.model.partition import Assignment, slice_of
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.protocols.registry import open_drivers
from loadsim.timinglog.writer import TimingLogWriter


def packed(scenario: Scenario, services: Services) -> str:
    """Return a scenario and services as text, for `begin`.

    Values travel instead of files, which might change between two reads. Unpickling them is safe: an engine receives
    only from the process that started it, and a worker only from its controller. Passwords travel only this way.
    """
    return b64encode(pickle.dumps((scenario, services))).decode()


def unpacked(values: str) -> tuple[Scenario, Services]:
    """Return the inverse of `packed`."""
    scenario, services = pickle.loads(b64decode(values))  # noqa: S301 - see packed
    return scenario, services


@dataclass(frozen=True, slots=True)
class Begin:
    """All that an engine needs. `header` is that of its timing log, a new file at `log`."""

    scenario: Scenario
    services: Services
    assignment: Assignment
    log: str
    header: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The engine's name."""
        engine: str = self.header["engine"]
        return engine

    def say_ready(self, events: Events, process: int) -> None:
        """Write the event that the engine is ready, in the process with this id."""
        events.say("engine ready", engine=self.name, pid=process, users=len(self.assignment))

    def say_lost(self, events: Events, why: str) -> None:
        """Write the event that the engine is lost."""
        events.say("engine lost", engine=self.name, users=len(self.assignment), why=why)

    def encode(self) -> bytes:
        """Return the line that begins an engine."""
        about = {"hand": asdict(self.assignment), "log": self.log, "header": self.header}
        return encode(begin={"values": packed(self.scenario, self.services), **about})

    @classmethod
    def decode(cls, about: Mapping[str, Any]) -> Begin:
        """Return the inverse of `encode`."""
        scenario, services = unpacked(about["values"])
        return cls(scenario, services, Assignment(**about["hand"]), about["log"], about["header"])


async def run(from_coordinator: int, to_coordinator: int) -> None:
    """Run an engine process; the file descriptors are its ends of the two pipes."""
    async with pipes_to_pool(from_coordinator, to_coordinator) as (reader, send):
        coordinator = RemoteControl(send)
        if line := await reader.readline():
            _, about = decode(line)
            try:
                await _run_engine(Begin.decode(about), coordinator, reader)
                coordinator.send(over=True)
            except ConfigError as refusal:
                coordinator.send(refused=str(refusal))


async def _listen(coordinator: RemoteControl, reader: asyncio.StreamReader) -> None:
    """Receive messages to the end of the pipe; then give the run up, because the coordinator is gone."""
    try:
        while line := await reader.readline():
            coordinator.receive(line)
    except ValueError as problem:
        coordinator.give_up(str(problem))
    else:
        coordinator.give_up("the process that kept it in step is gone")


async def _run_engine(begin: Begin, coordinator: RemoteControl, reader: asyncio.StreamReader) -> None:
    # Prepare.
    scenario = begin.scenario
    workload = Workload(scenario)
    contents = Contents(workload.seed)
    drivers = open_drivers(workload, contents, begin.services)
    contents.prepare()
    clock = MonotonicClock()
    epoch_ns, epoch = clock.now_ns(), datetime.now(UTC)
    header = {
        **begin.header,
        "event_loop": type(asyncio.get_running_loop()).__module__,
        "wall_clock_start": epoch.isoformat(),
    }
    # Open the log.
    try:
        log = TimingLogWriter(Path(begin.log), header, epoch_ns)
    except OSError as failure:
        raise ConfigError(f"{begin.log}: expected to write a timing log, found: {failure}") from None
    # Run.
    part = slice_of(begin.header)
    events = Events(cast(Any, EventForwarder(coordinator, engine=begin.name)))
    try:
        async with asyncio.TaskGroup() as group:
            engine = Engine(
                Dependencies(
                    workload=workload,
                    drivers=drivers,
                    contents=contents,
                    recorder=log,
                    events=events,
                    clock=clock,
                    watch=coordinator.watch,
                    control=coordinator,
                ),
                users=begin.assignment,
                run_id=begin.header["run"],
                wall_clock_us=time.time_ns() // 1000,
                writes_aside=True,
                here=part.assignment(scenario.users) if part else None,
            )
            coordinator.controlled = engine
            listening = group.create_task(_listen(coordinator, reader))
            await engine.run()
            listening.cancel()
    finally:
        _close(log, events)


def _close(log: TimingLogWriter, events: Events) -> None:
    """Close the log. If the disk is full, report that records are lost; analysis finds a log without an end."""
    try:
        log.close()
    except OSError as failure:
        events.say("log incomplete", why=str(failure))
        with suppress(OSError):  # standard error may be a file on the same disk
            print(f"loadsim: timing log incomplete: {failure}", file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    """Run an engine on the fastest event loop."""
    from_coordinator, to_coordinator = own_pipes()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(run(from_coordinator, to_coordinator))


if __name__ == "__main__":
    main()
