"""One engine in its own process: `python -m loadsim.engine.process`, started by the coordinator of its machine.

It speaks the control protocol (`control`) on standard input and output, and writes its own timing log, so that its
measurements survive other engines' failures.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from loadsim.engine.channel import coordinator_lines, own_pipes
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import TO_A_MEMBER, Message, Over, Refused, decode, encode, message
from loadsim.engine.engine import Engine, EngineLoad, EngineOptions, EngineRecords
from loadsim.engine.event_log import Events
from loadsim.engine.participant import RemoteControl
from loadsim.errors import ConfigError, machine_failures
from loadsim.model.content.compose import Contents
from loadsim.model.partition import Assignment
from loadsim.model.ports import Services
from loadsim.model.state_checks import StateChecks
from loadsim.processes.event_loop import fastest_loop
from loadsim.protocols.registry import open_apart, open_assistants, open_companions, open_drivers, outside_driver
from loadsim.protocols.sasl.choice import used_methods
from loadsim.protocols.transport import ACKNOWLEDGEMENTS
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.writer import TimingLogWriter
from loadsim.users.plugin_tasks import load_tasks


def packed(value: object) -> str:
    """Return a value as text, for `begin`.

    Values are sent instead of file names, as files might change between two reads. Unpickling them is safe: an engine
    receives them only from the process that started it, and a worker only from its controller. Passwords travel no
    other way.
    """
    return b64encode(pickle.dumps(value)).decode()


def unpacked(text: str) -> Any:
    return pickle.loads(b64decode(text))  # noqa: S301 - see packed


@message("begin")
class Begin(Message):
    """The first message to an engine, with everything that it needs; `log` is the path of its new timing log."""

    scenario: Scenario
    services: Services
    assignment: Assignment
    log: str
    header: Mapping[str, Any]

    @property
    def name(self) -> str:
        engine: str = self.header["engine"]
        return engine

    def write_ready(self, events: Events, process: int) -> None:
        events.write("engine ready", engine=self.name, pid=process, users=len(self.assignment))

    def write_lost(self, events: Events, why: str) -> None:
        events.write("engine lost", engine=self.name, users=len(self.assignment), why=why)

    def encode(self) -> bytes:
        return encode(self)

    def value(self) -> dict[str, Any]:
        about = {"hand": asdict(self.assignment), "log": self.log, "header": self.header}
        return {"values": packed((self.scenario, self.services)), **about}

    @classmethod
    def read(cls, value: Mapping[str, Any]) -> Self:
        scenario, services = unpacked(value["values"])
        return cls(scenario, services, Assignment(**value["hand"]), value["log"], value["header"])


def begins_of(
    scenario: Scenario, services: Services, per_engine: Sequence[Assignment], logs: Path, header: Mapping[str, Any]
) -> list[Begin]:
    """Return the first message to each engine of a client, whose logs are to be in the directory `logs`."""
    scenario = scenario.without_commands()
    begins = []
    for engine, users in enumerate(per_engine, 1):
        own = {"engines": len(per_engine), "engine": str(engine), "engine_users": len(users), "hand": asdict(users)}
        log = logs / f"{header['client']}.{engine}.tlog"
        begins.append(Begin(scenario, services, users, str(log), {**header, **own}))
    return begins


async def run(from_coordinator: int, to_coordinator: int) -> None:
    """Run an engine process; the file descriptors are its ends of the two pipes."""
    async with coordinator_lines(from_coordinator, to_coordinator) as (reader, send):
        coordinator = RemoteControl(send)
        if line := await reader.readline():
            begin = decode(line, (Begin,))
            try:
                await _run_engine(begin, coordinator, reader)
                coordinator.send(Over())
            except ConfigError as refusal:
                coordinator.send(Refused(str(refusal)))


async def _listen(coordinator: RemoteControl, reader: asyncio.StreamReader) -> None:
    """Receive messages until the pipe ends; then give the run up, because the coordinator is gone."""
    try:
        while line := await reader.readline():
            coordinator.receive(decode(line, TO_A_MEMBER))
    except ValueError as problem:
        coordinator.give_up(str(problem))
    else:
        coordinator.give_up("the process that kept it in step is gone")


async def _run_engine(begin: Begin, coordinator: RemoteControl, reader: asyncio.StreamReader) -> None:
    # Prepare.
    scenario = begin.scenario
    workload = Workload(scenario)
    contents = Contents(workload.seed)
    checks = StateChecks(scenario.client.check_state, workload.seed)
    services = replace(begin.services, state_checks=checks)
    drivers = open_drivers(workload, contents, services)
    load = EngineLoad(
        workload,
        begin.assignment,
        drivers,
        contents,
        begin.header["run"],
        open_companions(scenario, services),
        open_assistants(scenario, services),
        load_tasks(scenario),
        apart=open_apart(services),
        senders=workload.senders_of(begin.assignment),
        outside=outside_driver(scenario, drivers),
    )
    contents.prepare()
    clock = MonotonicClock()
    epoch_ns, epoch = clock.now_ns(), datetime.now(UTC)
    header = {
        **begin.header,
        "event_loop": type(asyncio.get_running_loop()).__module__,
        "acknowledgements": ACKNOWLEDGEMENTS,
        "wall_clock_start": epoch.isoformat(),
    }
    # Open the log.
    with machine_failures(ConfigError):
        log = TimingLogWriter(Path(begin.log), header, epoch_ns)
    checks.record = lambda: log.facts({"state_checks": checks.document})
    # Run.
    events = Events(None, send=partial(coordinator.send_event, engine=begin.name))
    try:
        async with asyncio.TaskGroup() as group:
            options = EngineOptions(clock, time.time_ns() // 1000, coordinator, writes_aside=True)
            engine = Engine(load, EngineRecords(log, events, coordinator.watch), options)
            coordinator.controlled = engine
            listening = group.create_task(_listen(coordinator, reader))
            await engine.run()
            listening.cancel()
    finally:
        _close(log, events, checks)


def _close(log: TimingLogWriter, events: Events, checks: StateChecks) -> None:
    """Close the log. If the disk is full, report that records are lost; analysis will find a log without an end."""
    try:
        log.facts({"log_on_methods": used_methods(), "state_checks": checks.document})
        log.close()
    except OSError as failure:
        events.write("log incomplete", why=str(failure))
        with suppress(OSError):  # standard error may be a file on the same disk
            print(f"loadsim: timing log incomplete: {failure}", file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    """Run an engine on the fastest event loop. If this machine runs short of something, it ends with one line."""
    from_coordinator, to_coordinator = own_pipes()
    with (
        machine_failures(lambda line: SystemExit(f"loadsim: {line}")),
        asyncio.Runner(loop_factory=fastest_loop()) as runner,
    ):
        runner.run(run(from_coordinator, to_coordinator))


if __name__ == "__main__":
    main()
