"""One run by the client machines of a cluster, from their parts of it to the answer: `loadsim run --cluster`."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from loadsim.analysis.summary import Summary
from loadsim.cli.live_view import Watch, shown_run
from loadsim.cli.progress import shown_preparation
from loadsim.cluster.agent import DISCARD_RUN, LIST_FILES
from loadsim.cluster.build_fingerprint import build_fingerprint
from loadsim.cluster.collect import collect
from loadsim.cluster.controller import MISSES, Cluster, cluster_at
from loadsim.cluster.placement import Fingerprints, WorkerAssignment, assign_users, check_room, fit_clients, log_bytes
from loadsim.cluster.prepare import Preparation
from loadsim.cluster.scheduler import silence_dask
from loadsim.cluster.security import Way
from loadsim.cluster.worker_channels import worker_channels
from loadsim.engine.abort import AbortCheck
from loadsim.engine.channel import Channel
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.control import StandaloneControl
from loadsim.engine.coordinator import Coordinator, MemberAssignment
from loadsim.engine.event_log import Events, closed_at_last
from loadsim.engine.event_loop import requests_are
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, RunInvalid
from loadsim.model.partition import Assignment, all_users
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario, Server
from loadsim.model.workload import Workload, combine_digests
from loadsim.protocols.registry import check_drivers, needs_one_engine
from loadsim.provisioning.initialise import start_state_after, total
from loadsim.provisioning.sessions import services_of
from loadsim.runs.local import new_run_name, summary_of, withdraw
from loadsim.runs.log_header import run_header
from loadsim.timinglog.planned_load import PlannedLoad

START_AHEAD_S = 0.5
"""How long beforehand the common start is told: every machine has heard of it by then, and every engine of theirs."""

END_LIMIT_S = 30.0
"""How long the processes of a client may take to be gone that has said that it is done, and knows that we heard it. One
that does not know waits for us as long as it may be without a station."""

OpenChannel = Callable[[MemberAssignment], Awaitable[Channel]]
"""To the machine of a part (`worker_channels`)."""

LOOK_S = 1.0
"""How often it is seen who has joined, while clients are waited for."""


def check_scenario(scenario: Scenario) -> None:
    """Whether several machines can make this run. Raises `ConfigError`."""
    if not isinstance(scenario.server, Server):
        raise ConfigError(f"--cluster: {scenario.name}: server: expected one that all machines reach, found embedded")
    if alone := needs_one_engine(scenario):
        raise ConfigError(f"--cluster: {scenario.name}: expected mailboxes on a server, found protocol {alone}")


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """One run of a scenario; `wanted` clients are waited for, None: whoever is there makes it.

    `publish` is shown each snapshot, and so is a screen, unless it is `quiet`. `load` is that of the plan, None if it
    is not known.
    """

    scenario: Scenario
    workload: Workload
    way: Way
    wanted: int | None
    began: datetime
    out: Path
    quiet: bool
    publish: Watch
    load: PlannedLoad | None = None

    async def live(self) -> Summary:
        """See to the clients and the mailboxes, make the load, bring the logs here; what was measured stays whatever
        happens then.

        Raises `ConfigError` for everything that is wrong before there is any load, `RunInvalid` when there was no load
        or its logs are gone.
        """
        services = services_of(self.scenario)
        check_drivers(self.scenario, services)
        silence_dask()
        async with cluster_at(self.way) as cluster:
            hands = await self._dealt(cluster)
            shares = await asyncio.to_thread(self._shares, services, hands)
            run: str = shares[0].header["run"]
            try:
                async with worker_channels(cluster, run) as open_channel:
                    await self._prepare(shares, open_channel)
                    lost = await self._recorded([replace(share, prepared=True) for share in shares], open_channel)
            except ConfigError:  # before there was any load
                withdraw(self.out)
                await forget(cluster, run, [share.name for share in shares])
                raise
            await self._collected(cluster, run, {share.name: share.name in lost for share in shares})
        if not any(self.out.glob("logs/*.tlog")):
            raise RunInvalid("there is no answer yet: all that was measured is still where it was, with the clients")
        return summary_of(self.out)

    def _say(self, line: str) -> None:
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)

    # --- before the load ---

    async def _dealt(self, cluster: Cluster) -> dict[str, list[Assignment]]:
        """Who has which users, among the clients that are there and fit."""
        clients = fit_clients(await self._clients(cluster))
        hands = assign_users(self.scenario.users, clients)
        needed_bytes = {
            name: await asyncio.to_thread(log_bytes, self.workload, of_client) for name, of_client in hands.items()
        }
        check_room(clients, needed_bytes, f"--out {self.out}", shutil.disk_usage(self.out).free)
        for client in clients:
            mine = hands.get(client.name, ())
            engines = f"{len(mine)} engine{'' if len(mine) == 1 else 's'}"
            self._say(f"Client {client.name}: {sum(map(len, mine))} of {self.scenario.users} users, {engines}")
            for run in client.runs:
                self._say(f"Client {client.name} still has the logs of run {run}: see loadsim cluster collect")
        return hands

    async def _clients(self, cluster: Cluster) -> dict[str, dict[str, Any]]:
        """Wait until so many are there as are wanted; what each says of itself. Raises `ConfigError` for none."""
        waiting = ""
        while True:
            try:
                found = await cluster.clients()
                if found and len(found) >= (self.wanted or 1):
                    return found
                why = f"{len(found)} of {self.wanted or 'any'}"
            except (OSError, TimeoutError) as failure:
                why = str(failure) or "no answer"
            if self.wanted is None:
                raise ConfigError(f"--cluster {self.way.address}: expected clients (loadsim client joins), found {why}")
            if why != waiting:
                waiting = why
                self._say(f"Waiting for clients, found {why}")
            await asyncio.sleep(LOOK_S)

    def _shares(self, services: Services, hands: Mapping[str, Sequence[Assignment]]) -> list[WorkerAssignment]:
        """What each client is told to begin with. It takes as long as to plan for all users."""
        server = f"{services.imap.host}:{services.imap.port}"
        digests = {user: self.workload.user_digest(user) for user in all_users(self.scenario.users)}
        start_state = start_state_after(self.workload, self.scenario.initialise)
        header = {
            **run_header(
                self.workload,
                new_run_name(self.began),
                server,
                combine_digests(list(digests.values())),
                start_state,
                load=self.load,
            ),
            "machines": [{"client": name, "users": sum(map(len, mine))} for name, mine in hands.items()],
        }
        losses = self.scenario.cluster
        ours, scenario_digest = build_fingerprint(), self.scenario.digest()
        shares = []
        for name, mine in hands.items():
            plan = combine_digests([digests[user] for user in sorted(chain.from_iterable(mine))])
            agreed = Fingerprints(ours, scenario_digest, start_state, plan)
            shares.append(
                WorkerAssignment(
                    self.scenario,
                    services,
                    name,
                    mine,
                    header,
                    agreed,
                    losses.on_control_loss,
                    losses.control_limit_s,
                )
            )
        return shares

    async def _prepare(self, shares: Sequence[WorkerAssignment], open_channel: OpenChannel) -> None:
        """Have the clients prepare the mailboxes of their users. Raises `ConfigError` for what is wrong with any."""
        channels: dict[str, tuple[Channel, int]] = {}
        for share in shares:
            channel = await open_channel(share)
            channel.send(share.encode_to_prepare())
            channels[f"client {share.name}"] = channel, len(share.assignment)

        async def agree(_: int) -> None:
            """Nobody else is asked."""

        with shown_preparation(quiet=self.quiet) as watch:
            done = await Preparation(channels, watch, MISSES).run(agree)
        for name, prepared in done.items():
            self._say(f"{name[0].upper()}{name[1:]}: {prepared.describe()}")
        if len(done) > 1:
            self._say(total(list(done.values())).describe())

    # --- the load ---

    async def _recorded(self, shares: Sequence[WorkerAssignment], open_channel: OpenChannel) -> Sequence[str]:
        """Make the load, with all files that are about it here but its answer; which clients were lost.

        Raises `ConfigError` when it cannot begin.
        """
        try:
            (self.out / "scenario.yaml").write_text(self.scenario.to_yaml(), encoding="utf-8")
            told = (self.out / "events.jsonl").open("w", encoding="utf-8")
        except OSError as failure:
            raise ConfigError(f"--out {self.out}: expected a directory to write to, found: {failure}") from None
        with closed_at_last(told):
            events = Events(told, hear=self._tell_loss)
            for warning in self.scenario.in_the_clear:
                events.say("warning", what=warning)
            lost = await self._make_load(shares, open_channel, events)
            if events.unwritten:
                print(f"loadsim: {events.unwritten} lines of events.jsonl not written", file=sys.stderr)
            return lost

    async def _make_load(
        self, shares: Sequence[WorkerAssignment], open_channel: OpenChannel, events: Events
    ) -> Sequence[str]:
        """Run the machines until their end, or until the user has had enough, or there is no hope for the run; which
        were lost."""
        hopeless = AbortCheck(self.scenario.abort_on, self.scenario.users)

        def watch(snapshot: LiveSnapshot) -> None:
            self.publish(snapshot)
            show(snapshot)
            why = hopeless.judge(snapshot) or self._loss(pool)
            if why and not pool.stopped:
                events.say("abort", why=why)
                pool.stop(why)

        with shown_run(self.scenario, quiet=self.quiet, clients=lambda: pool.snapshots) as show:
            pool = Coordinator(
                shares, events, watch, StandaloneControl(MonotonicClock(), START_AHEAD_S), open_channel, MISSES
            )
            with requests_are(pool.stop):
                await pool.run()
        return pool.lost

    def _tell_loss(self, event: Mapping[str, Any]) -> None:
        """Who is lost, and since when: nobody should learn that from the answer only."""
        if event["event"] not in ("client lost", "engine lost"):
            return
        engine = f", engine {event['engine']}," if "engine" in event else ""
        after = "" if event["at_s"] is None else f"{event['at_s']:.1f} s: "
        lost = f"client {event['client']}{engine} is lost, with {event['users']} of {self.scenario.users} users"
        print(f"loadsim: {after}{lost}: {event['why']}", file=sys.stderr, flush=True)

    def _loss(self, pool: Coordinator) -> str | None:
        """Why the run should end as some client was lost; None when none was, or the others are to go on."""
        if not pool.lost or self.scenario.cluster.on_client_loss == "continue":
            return None
        return f"client {pool.lost[0]} was lost, and cluster.on_client_loss is stop"

    # --- after it ---

    async def _collected(self, cluster: Cluster, run: str, clients: Mapping[str, bool]) -> None:
        """Bring the logs of all clients here, at the same time; of those that do not come it is said where they are.

        `clients` says of each whether it was lost: then nobody knows when it will have ended.
        """
        later = f"loadsim cluster collect --cluster {self.way.address} --out {self.out} {run} brings what is left there"

        end_limit_s = self.scenario.cluster.control_limit_s + END_LIMIT_S

        async def bring(name: str) -> str | None:
            try:
                await collect(cluster, name, run, self.out, 0.0 if clients[name] else end_limit_s)
            except (ConfigError, RunInvalid) as failure:
                return str(failure)
            return None

        try:
            failures = await asyncio.gather(*map(bring, clients))
        except asyncio.CancelledError:
            print(f"loadsim: {later}", file=sys.stderr)
            raise
        left = [failure for failure in failures if failure is not None]
        for line in [*left, later] if left else ():
            print(f"loadsim: {line}", file=sys.stderr)


async def forget(cluster: Cluster, run: str, clients: Sequence[str]) -> None:
    """Have clients remove what they have of a run that did not begin, as far as they are there."""
    for name in clients:
        with suppress(OSError, TimeoutError, ConfigError):
            if left := await cluster.ask(name, LIST_FILES, run=run):
                await cluster.ask(name, DISCARD_RUN, run=run, collected=left["files"])
