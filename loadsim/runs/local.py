"""A run on this machine: its mailboxes, its load, its summary."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadsim.analysis.reasons import misnamed
from loadsim.engine.abort import AbortCheck, ended_by
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.event_log import Events
from loadsim.engine.health import check_proc
from loadsim.engine.process import Begin, begins_of
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, RunInvalid, machine_failures
from loadsim.findings.formats import length
from loadsim.model.partition import divide
from loadsim.model.ports import Services
from loadsim.monitor.collector import collected
from loadsim.monitor.host import open_machine_log, watched_machine
from loadsim.monitor.probes import OpenedProbe, check_probes, open_probes, sampled
from loadsim.plugins import printing_to_stderr
from loadsim.processes.event_loop import calls_on_signal, fastest_loop, run
from loadsim.processes.rlimits import raise_open_file_limit
from loadsim.protocols.registry import check_drivers, check_protocols
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.preflight import (
    check_accounts,
    check_ports,
    check_server_limits,
    check_sources,
    check_submission,
)
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.runs.audit import audit_run
from loadsim.runs.directory import recorded_events, run_directory, withdraw
from loadsim.runs.log_header import load_of_plan, random_run_id, run_header
from loadsim.runs.needs import check_memory, compared_needs, engine_count, shortages
from loadsim.runs.result import RunResult, write_summary
from loadsim.runs.server import server_facts, server_under_test
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario.document import EMBEDDED
from loadsim.scenario.population import further_connections
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload, plan_digest
from loadsim.timinglog.facts import ACCOUNTS_TAKEN, EarlyEnd
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.timinglog.writer import TimingLogWriter
from loadsim.users.plugin_tasks import check_plugin_tasks


def run_locally(
    scenario: Scenario,
    out: Path | None = None,
    *,
    engines: int | None = None,
    pin: bool = False,
    even_invalid: bool = False,
    watcher: Watcher = SILENT,
) -> RunResult:
    """Run a scenario on this machine as `api.run` does, in a new directory: `out`, or one in `runs` named after it.

    Raises `ConfigError` for a fault found before the load, and `RunInvalid` if the logs are missing after it.
    """
    began = datetime.now(UTC)

    # Check what can be checked without the server.
    check_proc()
    check_protocols(scenario)
    plugins_print = printing_to_stderr if scenario.probes or scenario.plugins else nullcontext
    with plugins_print():
        check_plugin_tasks(scenario)
        check_probes(scenario.name, scenario.probes)
    workload = Workload(scenario)
    engines = _fitting_engines(workload, engines, pin)
    check_sources(scenario)
    check_ports(scenario)

    # Run.
    with (
        plugins_print(),
        run_directory(out, scenario.name, began) as directory,
        server_under_test(scenario, directory) as (services, server),
        server_facts(services, engines, pin, watcher) as facts,
    ):
        load = load_of_plan(scenario, watcher, even_invalid=even_invalid)
        for shortage in shortages(*compared_needs(workload, load, engines, directory), pin=pin):
            watcher.warning(f"warning: {shortage}")
        local_run = _LocalRun(
            scenario=scenario,
            workload=workload,
            run_id=random_run_id(began),
            services=services,
            server=server,
            facts=facts,
            directory=directory,
            engines=engines,
            load=load,
            watcher=watcher,
        )
        return run(local_run.execute(), fastest_loop())


def check_machine(scenario: Scenario, engines: int | None, pin: bool) -> None:
    """Check that this machine has the memory and the open files for all users. Raises `ConfigError`.

    `engines` and `pin` are those of `run_locally`, and are checked, too.
    """
    _fitting_engines(Workload(scenario), engines, pin)


def _fitting_engines(workload: Workload, wanted: int | None, pin: bool) -> int:
    """Return how many engines run the users, with enough open files allowed. Raises `ConfigError` if they cannot."""
    scenario = workload.scenario
    engines = engine_count(scenario, wanted, pin)
    check_memory(*compared_needs(workload, None, engines))
    for each in divide(scenario.users, engines):
        raise_open_file_limit(len(each), further_connections(scenario, each))
    return engines


@dataclass(frozen=True, slots=True)
class _LocalRun:
    """A checked run on a reachable server; `facts` describe server and machine."""

    scenario: Scenario
    workload: Workload
    run_id: str
    services: Services
    server: str
    facts: Mapping[str, Any]
    directory: Path
    engines: int
    load: PlannedLoad | None
    watcher: Watcher

    async def execute(self) -> RunResult:
        """Check and prepare the mailboxes, make the load, audit the mail, compute the summary.

        Raises `ConfigError` for a fault found before the load, and `RunInvalid` if the logs are missing after it.
        """
        check_drivers(self.scenario, self.services)
        probes = await open_probes(self.scenario.name, self.scenario.probes, self.services)
        self.watcher.stage("prepare")
        await check_submission(self.workload, self.services)
        if self.scenario.server != EMBEDDED:  # which has the accounts of the scenario
            await check_accounts(self.scenario, self.services)
        await check_server_limits(self.workload, self.services)
        accounts = [] if self.scenario.server == EMBEDDED else accounts_on_server(self.scenario)
        async with held(accounts, self.services, "run", self.run_id) as hold:
            await self._prepare_and_record(probes, hold)
            try:
                await audit_run(self.directory, self.scenario, self.services, self.watcher, hold)
            finally:
                result = write_summary(self.directory, self.watcher)
            return result

    async def _prepare_and_record(self, probes: tuple[OpenedProbe, ...], hold: Hold) -> None:
        """Bring the mailboxes to their start state, and make the load. Raises `ConfigError` if it cannot begin."""
        mode, progress = self.scenario.initialise, hold.noting(self.watcher.prepared)
        prepared = await initialise(self.workload, self.services, mode, progress)
        self.watcher.message(prepared.describe())
        if monitors := self.scenario.monitors:
            self.watcher.message(f"Starting the monitor{'s' * (len(monitors) > 1)} {', '.join(monitors)}")
        try:
            async with collected(monitors, self.directory / "logs"):
                await self._record(self._begins(prepared.start_state), probes, hold)
        except ConfigError:  # before there was any load
            withdraw(self.directory)
            raise

    async def _record(self, begins: Sequence[Begin], probes: tuple[OpenedProbe, ...], hold: Hold) -> None:
        """Make the load and write all files of the run but its summary. Raises `ConfigError` if it cannot begin."""
        engines = f"{self.engines} engine{'s' * (self.engines > 1)}"
        takes = length(self.scenario.duration_s)
        self.watcher.message(f"Starting {engines}: processes that make the load, for {takes}")
        with recorded_events(self.directory, self.scenario, self.watcher) as events:
            with machine_failures(ConfigError):
                (self.directory / "logs").mkdir(exist_ok=True)  # a monitor's file may be in it
                machine_log = open_machine_log(self.directory / "logs", begins[0].header)
            try:
                await self._make_load(begins, events, machine_log, probes, hold)
            finally:
                with suppress(OSError):  # a full disk; only the figures of the machine are from this log
                    machine_log.close()

    async def _make_load(
        self,
        begins: Sequence[Begin],
        events: Events,
        machine_log: TimingLogWriter,
        probes: tuple[OpenedProbe, ...],
        hold: Hold,
    ) -> None:
        """Run the engines until they end, a request to stop arrives, or the run has become pointless."""
        abort_check = AbortCheck(self.scenario.abort_on, self.scenario.users)

        samples: list[tuple[str, Mapping[str, float]]] = []  # since the last snapshot

        def watch(snapshot: LiveSnapshot) -> None:
            while samples:
                self.watcher.sampled(*samples.pop(0))
            self.watcher.snapshot(snapshot, {})
            by, why = ended_by(coordinator.lost), abort_check.judge(snapshot)
            if hold.lost:
                by, why = ACCOUNTS_TAKEN, hold.lost
            if why and not coordinator.stopped:
                events.write("abort", why=why)
                machine_log.facts(EarlyEnd(by, why).facts)
                coordinator.stop()

        self.watcher.stage("load")
        coordinator = Coordinator(begins, events, watch)
        sampling = sampled(
            probes,
            machine_log,
            MonotonicClock(),
            on_figures=self._warn_of_figures,
            on_sample=lambda probe, figures: samples.append((probe, figures)),
        )
        watched = watched_machine(machine_log, MonotonicClock(), lambda: coordinator.start_ns, self.facts)
        with (
            machine_failures(lambda line: RunInvalid(line) if coordinator.start_ns else ConfigError(line)),
            calls_on_signal(coordinator.stop),
            sampling,
        ):
            async with watched:
                hold.used = True
                await coordinator.run()
            await hold.renew()
        if hold.lost:
            machine_log.facts(EarlyEnd(ACCOUNTS_TAKEN, hold.lost).facts)

    def _warn_of_figures(self, probe: str, figures: Collection[str]) -> None:
        """Warn of the criteria on figures that the first samples of a probe do not have."""
        for lacking in misnamed(self.scenario.criteria, probe, figures):
            self.watcher.warning(f"warning: {lacking.text}")

    def _begins(self, start_state: str | None) -> list[Begin]:
        digest = plan_digest(self.workload)
        header = {
            **run_header(self.workload, self.run_id, self.server, digest, start_state, self.load),
            "client": re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "client",
        }
        per_engine = divide(self.scenario.users, self.engines)
        return begins_of(self.scenario, self.services, per_engine, self.directory / "logs", header)
