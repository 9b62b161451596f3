"""A run whose load comes from a cluster's clients: their assignments, mailboxes, load and logs."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from loadsim.cluster.agent import DISCARD_RUN, LIST_FILES
from loadsim.cluster.collect import collect_all
from loadsim.cluster.controller import MISSES, Cluster, cluster_at
from loadsim.cluster.placement import (
    Fingerprints,
    PrepareMailboxes,
    WorkerAssignment,
    assign_users,
    check_room,
    fit_clients,
    plugins_fingerprint,
)
from loadsim.cluster.prepare import PhaseProgress, Preparation
from loadsim.cluster.security import Access
from loadsim.cluster.worker_channels import worker_channels
from loadsim.engine.abort import AbortCheck
from loadsim.engine.channel import Channel
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl, encode
from loadsim.engine.coordinator import Coordinator, OpenChannel
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import Assignment, all_users
from loadsim.model.ports import Services
from loadsim.processes.event_loop import LoopFactory, background_tasks, calls_on_signal
from loadsim.protocols.registry import needs_one_engine
from loadsim.provisioning.initialise import start_state_after, total
from loadsim.provisioning.sessions import services_of
from loadsim.runs.log_header import run_header
from loadsim.runs.needs import LOG_BYTES_PER_TASK
from loadsim.runs.outage import OutageCommand
from loadsim.runs.result import RunResult
from loadsim.runs.run import Run, make_run
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload, combine_digests

START_AHEAD_S = 0.5
"""The time from announcing the common start to the start itself: enough to reach every engine of every client."""

END_LIMIT_S = 30.0
"""The longest time for a client's processes to exit once its last message has been acknowledged.

Without this acknowledgement, a client waits for it up to `cluster.control_limit_s`.
"""


def check_shareable(scenario: Scenario) -> None:
    """Check that several machines can share this scenario. Raises `ConfigError`."""
    if not isinstance(scenario.server, Server):
        raise ConfigError(f"--cluster: {scenario.name}: server: expected one that all machines reach, found embedded")
    if driver := needs_one_engine(scenario):
        raise ConfigError(f"--cluster: {scenario.name}: expected mailboxes on a server, found protocol {driver}")


def run_on_cluster(
    scenario: Scenario,
    access: Access,
    out: Path | None = None,
    *,
    clients: int | None = None,
    even_invalid: bool = False,
    watcher: Watcher = SILENT,
) -> RunResult:
    """Run a scenario on a cluster's clients, in a new directory: `out`, or one in `runs` named after the scenario.

    Wait until this number of clients has joined; None takes those present. Unless `even_invalid`, a run is refused if
    its plan rules out a valid result.

    Raises `ConfigError` for a fault found before the load starts, and `RunInvalid` if no log arrives once it has ended.
    """
    return make_run(scenario, _Clients(access, clients), out, even_invalid, watcher)


@dataclass(frozen=True, slots=True)
class _Clients:
    """A cluster's clients as the `Place` of a run; `wanted` is their number (None: those present)."""

    access: Access
    wanted: int | None
    loop_factory: LoopFactory | None = None

    def check(self, scenario: Scenario) -> Workload:
        workload = Workload(scenario)
        check_shareable(scenario)
        return workload

    @contextmanager
    def reached(self, scenario: Scenario, directory: Path, watcher: Watcher) -> Iterator[tuple[Services, str]]:
        services = services_of(scenario)
        yield services, services.address

    @asynccontextmanager
    async def loaded(self, run: Run) -> AsyncIterator[None]:
        async with cluster_at(self.access) as cluster:
            users = await self._assign_users(run, cluster)
            assignments = await asyncio.to_thread(_assignments, run, users)
            try:
                async with worker_channels(cluster, run.run_id) as open_channel:
                    await _prepare(run, assignments, open_channel)
                    lost = await _make_load(run, assignments, open_channel)
            except ConfigError:  # before there was any load
                await forget(cluster, run.run_id, [assignment.name for assignment in assignments])
                raise
            await self._collect(run, cluster, {each.name: each.name in lost for each in assignments})
        if not {path.stem for path in run.directory.glob("logs/*.tlog")} - run.scenario.monitors.keys():
            raise RunInvalid("there is no summary yet: the clients still have all logs")
        yield

    async def _assign_users(self, run: Run, cluster: Cluster) -> dict[str, list[Assignment]]:
        """Assign the users to clients. Return, for each client, an assignment for each of its engines."""
        watcher, all_of = run.watcher, run.scenario.users
        watcher.stage("join")
        clients = fit_clients(await cluster.joined(self.wanted, watcher.message))
        users = assign_users(all_of, clients, run.scenario.senders)
        if run.scenario.outside and len(users) < len(clients):  # a client without users would take its senders along
            raise ConfigError(
                f"{run.scenario.name}: topology: expected users for each of {len(clients)} clients, since there are"
                f" outside senders, found {all_of}"
            )
        tasks = 0 if run.load is None else sum(map(sum, run.load.tasks.values()))
        for_user = tasks * LOG_BYTES_PER_TASK / all_of
        needed_bytes = {name: round(for_user * sum(map(len, own))) for name, own in users.items()}
        check_room(clients, needed_bytes, f"--out {run.directory}", shutil.disk_usage(run.directory).free)
        for client in clients:
            own = users.get(client.name, ())
            engines = f"{len(own)} engine{'' if len(own) == 1 else 's'}"
            watcher.message(f"Client {client.name}: {sum(map(len, own)):,} of {all_of:,} users, {engines}")
            for run_id in client.runs:
                watcher.message(f"Client {client.name} still has the logs of run {run_id}: see loadsim cluster collect")
        return users

    async def _collect(self, run: Run, cluster: Cluster, clients: Mapping[str, bool]) -> None:
        """Collect the logs of all clients at the same time, and warn about any that stay there.

        `clients` is true for a lost client, whose processes are not awaited, as no one knows when they end.
        """
        run.watcher.stage("collect")
        later = (
            f"loadsim cluster collect --cluster {self.access.address} --out {run.directory} {run.run_id}"
            " brings what is left there"
        )
        end_limit_s = run.scenario.cluster.control_limit_s + END_LIMIT_S
        limits_s = {name: 0.0 if lost else end_limit_s for name, lost in clients.items()}
        try:
            left = await collect_all(cluster, run.run_id, run.directory, limits_s)
        except asyncio.CancelledError:
            run.watcher.warning(later)
            raise
        for line in [*left, later] if left else ():
            run.watcher.warning(line)


def _assignments(run: Run, users: Mapping[str, Sequence[Assignment]]) -> list[WorkerAssignment]:
    """Return each client's assignment. This takes as long as planning for all users."""
    # The header of all logs.
    scenario, workload = run.scenario, run.workload
    everyone = all_users(scenario.users).with_senders(scenario.senders)
    digests = {number: workload.user_digest(number) for number in everyone}
    start_state = start_state_after(workload, scenario.initialise)
    plan = combine_digests(list(digests.values()))
    header = {
        **run_header(workload, run.run_id, run.server, plan, start_state, run.load),
        "audited": bool(scenario.audit),
        "machines": [{"client": name, "users": sum(map(len, own))} for name, own in users.items()],
    }

    # An assignment for each client.
    plugins = plugins_fingerprint(scenario)
    assignments = []
    for name, own in users.items():
        own_and_senders = chain.from_iterable(part.with_senders(scenario.senders) for part in own)
        own_plan = combine_digests([digests[number] for number in sorted(own_and_senders)])
        expected = Fingerprints(plugins, start_state, own_plan)
        assignments.append(WorkerAssignment(scenario, run.services, name, own, header, expected))
    return assignments


async def _prepare(run: Run, assignments: Sequence[WorkerAssignment], open_channel: OpenChannel) -> None:
    """Have the clients prepare their users' mailboxes. Raises `ConfigError` if one reports a fault."""
    run.watcher.stage("prepare")
    channels: dict[str, tuple[Channel, int]] = {}
    for assignment in assignments:
        channel = await open_channel(assignment)
        channel.send(encode(PrepareMailboxes(assignment.values())))
        channels[f"client {assignment.name}"] = channel, len(assignment.assignment)

    def watch(progress: PhaseProgress) -> None:
        run.watcher.prepared(progress.phase, progress.done, progress.of)

    done = await Preparation(channels, watch, MISSES).run()
    for name, prepared in done.items():
        run.watcher.message(f"{name[0].upper()}{name[1:]}: {prepared.describe()}")
    if len(done) > 1:
        run.watcher.message(total(list(done.values())).describe())


async def _make_load(run: Run, assignments: Sequence[WorkerAssignment], open_channel: OpenChannel) -> Sequence[str]:
    """Run the clients until they end, a request to stop arrives, or the run has become pointless.

    Return the lost clients. Raises `ConfigError` if the load cannot begin.
    """

    def warn_of_loss(event: Mapping[str, Any]) -> None:
        if event["event"] not in ("client lost", "engine lost"):
            return
        engine = f", engine {event['engine']}," if "engine" in event else ""
        after = "" if event["at_s"] is None else f"{event['at_s']:.1f} s: "
        lost = f"client {event['client']}{engine} is lost, with {event['users']:,} of {run.scenario.users:,} users"
        run.watcher.warning(f"{after}{lost}: {event['why']}")

    abort_check = AbortCheck(run.scenario.abort_on, run.scenario.users)
    async with run.recorded(send=warn_of_loss) as events:
        outage = OutageCommand(run.scenario.outage, run.scenario.duration_s, run.directory, events)
        coordinator = Coordinator(
            [replace(assignment, prepared=True) for assignment in assignments],
            events,
            lambda snapshot: run.watcher.snapshot(snapshot, coordinator.snapshots),
            StandaloneControl(MonotonicClock(), START_AHEAD_S),
            open_channel,
            MISSES,
            judge=lambda snapshot, lost: outage.early_end or abort_check.judge(snapshot, lost),
        )
        with calls_on_signal(coordinator.stop):
            async with background_tasks(outage.run(lambda: coordinator.start_ns)):
                await coordinator.run()
        return coordinator.lost


async def forget(cluster: Cluster, run_id: str, clients: Sequence[str]) -> None:
    """Remove a run that did not begin from the clients that can be reached."""
    for name in clients:
        with suppress(OSError, TimeoutError, ConfigError):
            if left := await cluster.ask(name, LIST_FILES, run=run_id):
                await cluster.ask(name, DISCARD_RUN, run=run_id, collected=left["files"])
