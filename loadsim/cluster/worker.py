"""The process that runs a client's assignment: `python -m loadsim.cluster.worker DIRECTORY`.

A worker prepares the mailboxes of its users, then coordinates its engines, as the controller coordinates workers. It
outlives the agent that started it, and serves the next one. Its measurements are in its directory (`worker_directory`),
so they survive failures of others. It communicates over a `reliable_channel`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from loadsim.analysis.clocks.correction import controller_clock_sample
from loadsim.analysis.clocks.model import Reading
from loadsim.cluster.channel import Failed
from loadsim.cluster.controller_link import ControllerLink, act_on_loss, most_silent_beats
from loadsim.cluster.placement import (
    TO_A_WORKER,
    BeginLoad,
    ClockReading,
    PrepareMailboxes,
    WorkerAssignment,
    fingerprints,
)
from loadsim.cluster.prepare import Change, Inspected, PhaseProgress, Prepared
from loadsim.cluster.reliable_channel import BEAT_S
from loadsim.cluster.worker_directory import EVENTS_NAME, LOGS_NAME, listening_at, locked
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import Message, Over, Refused, Stop, decode, encode
from loadsim.engine.coordinator import Coordinator, start_engine
from loadsim.engine.event_log import Events, closed_at_last
from loadsim.engine.health import check_proc
from loadsim.engine.participant import RemoteControl
from loadsim.errors import ConfigError, RunInvalid, machine_failures
from loadsim.monitor.host import machine_log, run_engines
from loadsim.monitor.probes import FIRST_USER, check_probes, open_probes, sampled
from loadsim.monitor.server_banner import environment_facts
from loadsim.monitor.server_discovery import find_server
from loadsim.processes.event_loop import background_tasks
from loadsim.processes.rlimits import raise_open_file_limit
from loadsim.protocols.registry import check_drivers
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.initialise import inspect, restore
from loadsim.provisioning.preflight import (
    check_outside,
    check_ports,
    check_server_limits,
    check_sources,
    check_submission,
)
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.scenario.population import connections_apart, further_connections
from loadsim.scenario.workload import Workload
from loadsim.users.plugin_tasks import check_plugin_tasks

BEGIN_LIMIT_S = 60.0
"""A worker exits after this long without a first message, or if the controller is this long silent while preparing."""


class Released(Exception):
    """The controller needs no load from this client, or is gone."""


async def check(assigned: WorkerAssignment) -> None:
    """Check that this machine computes the same fingerprints, and can run the assignment. Raises `ConfigError`."""
    assigned.fingerprints.check(
        await asyncio.to_thread(lambda: fingerprints(Workload(assigned.scenario), assigned.everyone))
    )
    check_proc()
    check_sources(assigned.scenario)
    check_ports(assigned.scenario, assigned.assignment)
    check_plugin_tasks(assigned.scenario)
    if FIRST_USER in assigned.assignment:
        check_probes(assigned.scenario.name, assigned.scenario.probes)
    check_drivers(assigned.scenario, assigned.services)
    for users in assigned.per_engine:
        everyone = users.with_senders(assigned.scenario.senders)
        further = further_connections(assigned.scenario, users) + connections_apart(assigned.scenario, users)
        raise_open_file_limit(len(everyone), further)


# --- mailboxes ---


async def prepare(assigned: WorkerAssignment, controller: ControllerLink, control: RemoteControl, hold: Hold) -> None:
    """Prepare the mailboxes of our users, in step with the other clients, and wait until the load is to begin.

    Raises `ConfigError` if a mailbox cannot be prepared, and `Released`.
    """
    change, begin = asyncio.Event(), asyncio.Event()
    progress = PhaseProgress(of=len(assigned.assignment))

    # Report the progress, and follow the controller.
    def visited(phase: str, done: int, of: int) -> None:
        nonlocal progress
        progress = PhaseProgress(phase, done, of)
        if not done:
            report()

    def report() -> None:
        controller.link.send(encode(progress), replaceable=True)

    async def beat() -> None:
        while True:
            report()
            await asyncio.sleep(BEAT_S)

    async def listen() -> None:
        while not begin.is_set():
            match await _next_message(controller):
                case Stop():
                    raise Released
                case Change():
                    change.set()
                case BeginLoad():
                    begin.set()

    async with background_tasks(listen(), beat()):
        # Check the machine and the server, then inspect and change.
        await check(assigned)
        workload, services, users = Workload(assigned.scenario), assigned.services, assigned.assignment
        await check_submission(workload, services, users)
        await check_outside(workload, services)
        await check_server_limits(workload, services, users)
        mode = assigned.scenario.initialise
        inspected = await inspect(workload, services, mode, visited, users)
        report()
        control.send(Inspected())
        await change.wait()
        prepared = await restore(workload, services, mode, inspected, hold.noting(visited))

        # Wait for the other clients.
        report()
        control.send(Prepared(prepared))
        await begin.wait()


async def _next_message(controller: ControllerLink) -> Message:
    """Return the controller's next message. Raises `Released` if it is silent for `BEGIN_LIMIT_S`."""
    while True:
        try:
            async with asyncio.timeout(BEAT_S):
                return decode(await controller.lines.get(), TO_A_WORKER)
        except TimeoutError:
            if controller.link.silent_beats * BEAT_S > BEGIN_LIMIT_S:
                raise Released from None


# --- the load ---


async def make_load(
    directory: Path,
    assigned: WorkerAssignment,
    controller: ControllerLink,
    control: RemoteControl,
    lock: int,
    hold: Hold,
) -> None:
    """Run the engines of an assignment from their start to their end. They inherit the descriptor `lock`.

    Raises `ConfigError` if the load cannot begin here, `RunInvalid` if no engine was left to make load.
    """
    # Find the server, if it runs on this machine; names may take a while to look up.
    scenario, services = assigned.scenario, assigned.services
    environment = await asyncio.to_thread(
        lambda: environment_facts(find_server(*services.endpoints.values()), services)
    )
    probes = await open_probes(scenario.name, scenario.probes if FIRST_USER in assigned.assignment else {}, services)

    # Open the logs.
    logs = directory / LOGS_NAME
    begins = assigned.begins(logs)
    with machine_failures(ConfigError):
        event_file = (directory / EVENTS_NAME).open("x", encoding="utf-8")
    with closed_at_last(event_file), machine_log(logs, begins[0].header) as log:
        # Run the engines, and follow the controller meanwhile.
        events = Events(event_file, send=partial(control.send_event, client=assigned.name))
        coordinator = Coordinator(begins, events, control.watch, control, partial(start_engine, kept=[lock]))
        control.controlled = coordinator
        readings: deque[dict[str, Any]] = deque(maxlen=1)  # the latest one, until a sample has it
        async with background_tasks(
            act_on_loss(assigned, controller.link, control, coordinator, events), _listen(controller, control, readings)
        ):
            probing = sampled(probes, log, MonotonicClock())
            await run_engines(
                coordinator, log, probing, environment, hold, hold.release, lambda: readings.pop() if readings else {}
            )
        if control.early_end is not None and not hold.lost:
            log.facts(control.early_end.facts)


async def _listen(controller: ControllerLink, control: RemoteControl, readings: deque[dict[str, Any]]) -> None:
    """Follow the controller's messages, and keep its clock readings (`WorkerChannel.send_clock`)."""
    while True:
        line = await controller.lines.get()
        try:
            match decode(line, TO_A_WORKER):
                case ClockReading(at_ns, controller_ns, error_ns, ahead_ns):
                    readings.append(controller_clock_sample(Reading(at_ns, controller_ns, error_ns), ahead_ns))
                case message:
                    control.receive(message)
        except ValueError as problem:
            control.give_up(str(problem))


# --- the process ---


async def run(directory: Path, listening: Callable[[], object], lock: int) -> None:
    """Run the worker until its last message is acknowledged, or until the controller is lost.

    `listening` is called once agents can connect. Engines inherit the descriptor `lock`. If there was no load, the
    directory is removed.
    """
    controller = ControllerLink()
    async with asyncio.TaskGroup() as group:
        agents: set[asyncio.Task[None]] = set()

        def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            agents.add(agent := group.create_task(controller.attend(reader, writer)))
            agent.add_done_callback(agents.discard)

        async with listening_at(directory, attend), background_tasks(controller.beat()):
            listening()
            made_load = await _run_first(directory, controller, lock)
            if not made_load:  # there is nothing to collect
                shutil.rmtree(directory, ignore_errors=True)
        for agent in agents:
            agent.cancel()


async def _run_first(directory: Path, controller: ControllerLink, lock: int) -> bool:
    """Run the assignment in the controller's first message. Return True if there was any load."""
    try:
        async with asyncio.timeout(BEGIN_LIMIT_S):
            first = decode(await controller.lines.get(), TO_A_WORKER)
    except TimeoutError:
        return False
    assert isinstance(first, PrepareMailboxes | BeginLoad)
    assert first.values is not None
    assigned = WorkerAssignment.read(first.values)
    control = RemoteControl(controller.link.send, partial(controller.link.send, replaceable=True))
    made_load = False
    try:
        accounts = accounts_on_server(assigned.scenario, assigned.assignment)
        async with held(accounts, assigned.services, "run", assigned.header["run"]) as hold:
            if isinstance(first, PrepareMailboxes):
                await prepare(assigned, controller, control, hold)
            else:
                await check(assigned)
            made_load = True
            await make_load(directory, assigned, controller, control, lock, hold)
        control.send(Over())
    except Released:
        control.send(Over())
    except ConfigError as refusal:
        made_load = False
        control.send(Refused(f"client {assigned.name}: {refusal}"))
    except RunInvalid as reason:
        control.send(Failed(str(reason)))
    await controller.until_acknowledged(most_silent_beats(assigned))
    return made_load


def main() -> int:
    """Lock the directory and run the worker. Print `listening`, then redirect standard output to standard error."""

    def listening() -> None:
        print("listening", flush=True)  # noqa: T201
        os.dup2(2, 1)

    directory = Path(sys.argv[1])
    os.umask(0o077)
    try:
        with locked(directory) as lock:
            asyncio.run(run(directory, listening, lock))
    except ConfigError as refusal:
        print(f"loadsim: {refusal}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
