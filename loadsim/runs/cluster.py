"""A run on the client machines of a cluster: their assignments, mailboxes and load, the logs, the summary."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from loadsim.cluster.agent import DISCARD_RUN, LIST_FILES
from loadsim.cluster.collect import collect
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
from loadsim.engine.abort import AbortCheck, ended_by
from loadsim.engine.channel import Channel
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl, encode
from loadsim.engine.coordinator import Coordinator, MemberAssignment
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import Assignment, all_users
from loadsim.model.ports import Services
from loadsim.monitor.collector import collected
from loadsim.processes.event_loop import calls_on_signal, run
from loadsim.protocols.registry import check_drivers, check_protocols, needs_one_engine
from loadsim.provisioning.initialise import start_state_after, total
from loadsim.provisioning.sessions import services_of
from loadsim.runs.audit import audit_run
from loadsim.runs.directory import recorded_events, run_directory, withdraw
from loadsim.runs.log_header import load_of_plan, random_run_id, run_header
from loadsim.runs.needs import LOG_BYTES_PER_TASK
from loadsim.runs.result import RunResult, write_summary
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload, combine_digests
from loadsim.timinglog.facts import EarlyEnd
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.users.plugin_tasks import check_plugin_tasks

START_AHEAD_S = 0.5
"""The common start is announced this long beforehand: enough to reach every engine of every client."""

END_LIMIT_S = 30.0
"""The processes of a client exit within this time after it has reported its end and received our receipt.

A client without the receipt waits for us as long as `cluster.control_limit_s` says.
"""

OpenChannel = Callable[[MemberAssignment], Awaitable[Channel]]
"""Opens the channel to the worker of an assignment (`worker_channels`)."""


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
    """Run a scenario on the clients of a cluster, in a new directory: `out`, or one in `runs` named after the scenario.

    Wait until `clients` clients have joined; None takes those that are there. A run that cannot become valid by its
    plan is refused, unless `even_invalid`.

    Raises `ConfigError` for a fault found before the load, and `RunInvalid` if no log arrived here after it.
    """
    began = datetime.now(UTC)
    check_protocols(scenario)
    check_plugin_tasks(scenario)
    workload = Workload(scenario)
    check_shareable(scenario)
    with run_directory(out, scenario.name, began) as directory:
        load = load_of_plan(scenario, watcher, even_invalid=even_invalid)
        return run(_ClusterRun(scenario, workload, access, clients, began, directory, load, watcher).execute())


@dataclass(frozen=True, slots=True)
class _ClusterRun:
    """A checked run; `wanted` is the number of clients to wait for, None for those that are there."""

    scenario: Scenario
    workload: Workload
    access: Access
    wanted: int | None
    began: datetime
    directory: Path
    load: PlannedLoad | None
    watcher: Watcher

    async def execute(self) -> RunResult:
        """Assign the users, prepare the mailboxes, make the load, collect the logs, compute the summary.

        Raises `ConfigError` for a fault found before the load, and `RunInvalid` if no log arrived here after it.
        """
        services = services_of(self.scenario)
        check_drivers(self.scenario, services)
        async with cluster_at(self.access) as cluster:
            users = await self._assign_users(cluster)
            assignments = await asyncio.to_thread(self._assignments, services, users)
            run_id: str = assignments[0].header["run"]
            try:
                async with worker_channels(cluster, run_id) as open_channel:
                    await self._prepare(assignments, open_channel)
                    prepared = [replace(assignment, prepared=True) for assignment in assignments]
                    async with collected(self.scenario.monitors, self.directory / "logs"):
                        lost = await self._record(prepared, open_channel)
            except ConfigError:  # before there was any load
                withdraw(self.directory)
                await forget(cluster, run_id, [assignment.name for assignment in assignments])
                raise
            await self._collect(cluster, run_id, {each.name: each.name in lost for each in assignments})
        if not {path.stem for path in self.directory.glob("logs/*.tlog")} - self.scenario.monitors.keys():
            raise RunInvalid("there is no summary yet: the clients still have all logs")
        try:
            await audit_run(self.directory, self.scenario, services, self.watcher)
        finally:
            result = write_summary(self.directory, self.watcher)
        return result

    # --- before the load ---

    async def _assign_users(self, cluster: Cluster) -> dict[str, list[Assignment]]:
        """Assign users to compatible clients: by client, one assignment for each of its engines."""
        self.watcher.stage("join")
        clients = fit_clients(await cluster.joined(self.wanted, self.watcher.message))
        users = assign_users(self.scenario.users, clients)
        tasks = 0 if self.load is None else sum(map(sum, self.load.tasks.values()))
        for_user = tasks * LOG_BYTES_PER_TASK / self.scenario.users
        needed_bytes = {name: round(for_user * sum(map(len, own))) for name, own in users.items()}
        check_room(clients, needed_bytes, f"--out {self.directory}", shutil.disk_usage(self.directory).free)
        for client in clients:
            own = users.get(client.name, ())
            engines = f"{len(own)} engine{'' if len(own) == 1 else 's'}"
            self.watcher.message(
                f"Client {client.name}: {sum(map(len, own)):,} of {self.scenario.users:,} users, {engines}"
            )
            for run_id in client.runs:
                self.watcher.message(
                    f"Client {client.name} still has the logs of run {run_id}: see loadsim cluster collect"
                )
        return users

    def _assignments(self, services: Services, users: Mapping[str, Sequence[Assignment]]) -> list[WorkerAssignment]:
        """Return the assignment of each client. It takes as long as planning for all users."""
        # Header of all logs.
        digests = {user: self.workload.user_digest(user) for user in all_users(self.scenario.users)}
        start_state = start_state_after(self.workload, self.scenario.initialise)
        plan = combine_digests(list(digests.values()))
        run_id = random_run_id(self.began)
        header = {
            **run_header(self.workload, run_id, services.address, plan, start_state, self.load),
            "audited": bool(self.scenario.audit),
            "machines": [{"client": name, "users": sum(map(len, own))} for name, own in users.items()],
        }

        # An assignment for each client.
        plugins = plugins_fingerprint(self.scenario)
        assignments = []
        for name, own in users.items():
            own_plan = combine_digests([digests[user] for user in sorted(chain.from_iterable(own))])
            assignments.append(
                WorkerAssignment(
                    self.scenario, services, name, own, header, Fingerprints(plugins, start_state, own_plan)
                )
            )
        return assignments

    async def _prepare(self, assignments: Sequence[WorkerAssignment], open_channel: OpenChannel) -> None:
        """Have the clients prepare the mailboxes of their users. Raises `ConfigError` if one reports a fault."""
        self.watcher.stage("prepare")
        channels: dict[str, tuple[Channel, int]] = {}
        for assignment in assignments:
            channel = await open_channel(assignment)
            channel.send(encode(PrepareMailboxes(assignment.values())))
            channels[f"client {assignment.name}"] = channel, len(assignment.assignment)

        def watch(progress: PhaseProgress) -> None:
            self.watcher.prepared(progress.phase, progress.done, progress.of)

        done = await Preparation(channels, watch, MISSES).run()
        for name, prepared in done.items():
            self.watcher.message(f"{name[0].upper()}{name[1:]}: {prepared.describe()}")
        if len(done) > 1:
            self.watcher.message(total(list(done.values())).describe())

    # --- the load ---

    async def _record(self, assignments: Sequence[WorkerAssignment], open_channel: OpenChannel) -> Sequence[str]:
        """Run the clients until they end, a request to stop arrives, or the run has become pointless.

        Write the files of the run that are not from clients. Return the lost clients. Raises `ConfigError` if the load
        cannot begin.
        """
        abort_check = AbortCheck(self.scenario.abort_on, self.scenario.users)

        def watch(snapshot: LiveSnapshot) -> None:
            self.watcher.snapshot(snapshot, coordinator.snapshots)
            why = abort_check.judge(snapshot)
            if why and not coordinator.stopped:
                events.write("abort", why=why)
                coordinator.stop(EarlyEnd(ended_by(coordinator.lost), why))

        with recorded_events(self.directory, self.scenario, self.watcher, self._warn_of_loss) as events:
            self.watcher.stage("load")
            control = StandaloneControl(MonotonicClock(), START_AHEAD_S)
            coordinator = Coordinator(assignments, events, watch, control, open_channel, MISSES)
            with calls_on_signal(coordinator.stop):
                await coordinator.run()
            return coordinator.lost

    def _warn_of_loss(self, event: Mapping[str, Any]) -> None:
        if event["event"] not in ("client lost", "engine lost"):
            return
        engine = f", engine {event['engine']}," if "engine" in event else ""
        after = "" if event["at_s"] is None else f"{event['at_s']:.1f} s: "
        lost = f"client {event['client']}{engine} is lost, with {event['users']:,} of {self.scenario.users:,} users"
        self.watcher.warning(f"{after}{lost}: {event['why']}")

    # --- after it ---

    async def _collect(self, cluster: Cluster, run_id: str, clients: Mapping[str, bool]) -> None:
        """Collect the logs of all clients at the same time, and warn of those that stay there.

        `clients` is true for a lost client: when its processes end is unknown.
        """
        self.watcher.stage("collect")
        later = (
            f"loadsim cluster collect --cluster {self.access.address} --out {self.directory} {run_id}"
            " brings what is left there"
        )
        end_limit_s = self.scenario.cluster.control_limit_s + END_LIMIT_S

        async def collect_one(name: str) -> str | None:
            try:
                await collect(cluster, name, run_id, self.directory, 0.0 if clients[name] else end_limit_s)
            except (ConfigError, RunInvalid) as failure:
                return str(failure)
            return None

        try:
            failures = await asyncio.gather(*map(collect_one, clients))
        except asyncio.CancelledError:
            self.watcher.warning(later)
            raise
        left = [failure for failure in failures if failure is not None]
        for line in [*left, later] if left else ():
            self.watcher.warning(line)


async def forget(cluster: Cluster, run_id: str, clients: Sequence[str]) -> None:
    """Remove the files of a run that did not begin from the clients that can be reached."""
    for name in clients:
        with suppress(OSError, TimeoutError, ConfigError):
            if left := await cluster.ask(name, LIST_FILES, run=run_id):
                await cluster.ask(name, DISCARD_RUN, run=run_id, collected=left["files"])
