"""A run whose load is made by this machine."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadsim.analysis.reasons import misnamed
from loadsim.engine.abort import AbortCheck
from loadsim.engine.clock import MonotonicClock
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.health import check_proc
from loadsim.engine.process import begins_of
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError, RunInvalid, machine_failures
from loadsim.findings.formats import length
from loadsim.model.partition import divide
from loadsim.model.ports import Services
from loadsim.monitor.host import machine_log, run_engines
from loadsim.monitor.probes import OpenedProbe, check_probes, open_probes, sampled
from loadsim.processes.event_loop import LoopFactory, background_tasks, fastest_loop
from loadsim.processes.rlimits import raise_open_file_limit
from loadsim.provisioning.hold import Hold, held
from loadsim.provisioning.initialise import initialise
from loadsim.provisioning.preflight import (
    check_accounts,
    check_outside,
    check_ports,
    check_server_limits,
    check_sources,
    check_submission,
)
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.runs.log_header import run_header
from loadsim.runs.needs import check_memory, compared_needs, engine_count, shortages
from loadsim.runs.outage import OutageCommand
from loadsim.runs.result import RunResult
from loadsim.runs.run import Run, make_run
from loadsim.runs.server import server_facts, server_under_test
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.scenario.document import EMBEDDED
from loadsim.scenario.population import connections_apart, further_connections
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload, plan_digest
from loadsim.timinglog.facts import ACCOUNTS_TAKEN, EarlyEnd


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
    check_proc()
    return make_run(scenario, _ThisMachine(engines, pin), out, even_invalid, watcher)


def check_machine(scenario: Scenario, engines: int | None, pin: bool) -> None:
    """Check that this machine has enough memory and open files for all users. Raises `ConfigError`.

    `engines` and `pin`, as for `run_locally`, are also checked.
    """
    _fitting_engines(Workload(scenario), engines, pin)


def _fitting_engines(workload: Workload, wanted: int | None, pin: bool) -> int:
    """Return the number of engines, each allowed enough open files. Raises `ConfigError` if the users do not fit."""
    scenario = workload.scenario
    engines = engine_count(scenario, wanted, pin)
    check_memory(*compared_needs(workload, None, engines))
    for users in divide(scenario.users, engines):
        further = further_connections(scenario, users) + connections_apart(scenario, users)
        raise_open_file_limit(len(users.with_senders(scenario.senders)), further)
    return engines


@dataclass(slots=True)
class _ThisMachine:
    """This machine as the `Place` of a run; `facts` describe the machine and, once it is reached, the server."""

    wanted: int | None
    pin: bool
    engines: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    loop_factory: LoopFactory | None = field(default_factory=fastest_loop)

    def check(self, scenario: Scenario) -> Workload:
        check_probes(scenario.name, scenario.probes)
        workload = Workload(scenario)
        self.engines = _fitting_engines(workload, self.wanted, self.pin)
        check_sources(scenario)
        check_ports(scenario)
        return workload

    @contextmanager
    def reached(self, scenario: Scenario, directory: Path, watcher: Watcher) -> Iterator[tuple[Services, str]]:
        with (
            server_under_test(scenario, directory) as (services, server),
            server_facts(services, self.engines, self.pin, watcher) as self.facts,
        ):
            yield services, server

    @asynccontextmanager
    async def loaded(self, run: Run) -> AsyncIterator[Hold]:
        scenario, services, watcher = run.scenario, run.services, run.watcher
        for shortage in shortages(*compared_needs(run.workload, run.load, self.engines, run.directory), pin=self.pin):
            watcher.warning(f"warning: {shortage}")
        probes = await open_probes(scenario.name, scenario.probes, services)
        watcher.stage("prepare")
        await check_submission(run.workload, services)
        await check_outside(run.workload, services)
        if scenario.server != EMBEDDED:  # which has exactly these accounts
            await check_accounts(scenario, services)
        await check_server_limits(run.workload, services)
        accounts = [] if scenario.server == EMBEDDED else accounts_on_server(scenario)
        async with held(accounts, services, "run", run.run_id) as hold:
            prepared = await initialise(run.workload, services, scenario.initialise, hold.noting(watcher.prepared))
            watcher.message(prepared.describe())
            await self._make_load(run, prepared.start_state, probes, hold)
            yield hold

    async def _make_load(self, run: Run, start_state: str | None, probes: tuple[OpenedProbe, ...], hold: Hold) -> None:
        """Run the engines until they end, a request to stop arrives, or the run has become pointless."""
        scenario, watcher = run.scenario, run.watcher

        # Describe the run in the header of its logs, and to the user.
        header = {
            **run_header(run.workload, run.run_id, run.server, plan_digest(run.workload), start_state, run.load),
            "client": re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "client",
        }
        logs = run.directory / "logs"
        begins = begins_of(scenario, run.services, divide(scenario.users, self.engines), logs, header)
        if monitors := scenario.monitors:
            watcher.message(f"Starting the monitor{'s' * (len(monitors) > 1)} {', '.join(monitors)}")
        engines, takes = f"{self.engines} engine{'s' * (self.engines > 1)}", length(scenario.duration_s)

        # Report samples and snapshots, and end the load if it is pointless.
        samples: list[tuple[str, Mapping[str, float]]] = []  # since the last snapshot
        abort_check = AbortCheck(scenario.abort_on, scenario.users)

        def warn(probe: str, figures: Collection[str]) -> None:
            """Warn of criteria on figures that are missing from a probe's first samples."""
            for finding in misnamed(scenario.criteria, probe, figures):
                watcher.warning(f"warning: {finding.text}")

        def watch(snapshot: LiveSnapshot) -> None:
            while samples:
                watcher.sampled(*samples.pop(0))
            watcher.snapshot(snapshot, {})

        def judge(snapshot: LiveSnapshot, lost: Sequence[str]) -> EarlyEnd | None:
            if hold.lost:
                return EarlyEnd(ACCOUNTS_TAKEN, hold.lost)
            return outage.early_end or abort_check.judge(snapshot, lost)

        # Run the engines.
        async with run.recorded(f"Starting {engines}: processes that make the load, for {takes}") as events:
            outage = OutageCommand(scenario.outage, scenario.duration_s, run.directory, events)
            with machine_log(logs, begins[0].header) as log:
                coordinator = Coordinator(begins, events, watch, judge=judge)
                probing = sampled(
                    probes, log, MonotonicClock(), on_figures=warn, on_sample=lambda *sample: samples.append(sample)
                )
                with machine_failures(lambda line: RunInvalid(line) if coordinator.start_ns else ConfigError(line)):
                    async with background_tasks(outage.run(lambda: coordinator.start_ns)):
                        await run_engines(coordinator, log, probing, self.facts, hold, hold.renew)
