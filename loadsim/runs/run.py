"""A run, from its first checks to its summary. A `Place` makes the load: this machine, or a cluster's clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from loadsim.audit.audit import audit
from loadsim.engine.event_log import Events
from loadsim.errors import ConfigError, LogError, machine_failures
from loadsim.model.ports import Services
from loadsim.monitor.collector import collected
from loadsim.plugins import printing_to_stderr
from loadsim.processes.event_loop import LoopFactory, calls_on_signal, task_group
from loadsim.processes.event_loop import run as run_in_loop
from loadsim.protocols.registry import check_drivers, check_protocols
from loadsim.provisioning.hold import Hold
from loadsim.runs.directory import recorded_events, run_directory, withdraw
from loadsim.runs.log_header import load_of_plan, random_run_id
from loadsim.runs.result import RunResult, write_summary
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.users.plugin_tasks import check_plugin_tasks


@dataclass(frozen=True, slots=True)
class Run:
    """A run before its mailboxes are prepared. `server` is the server's name; `load` is None if the plan is unknown."""

    workload: Workload
    run_id: str
    directory: Path
    services: Services
    server: str
    load: PlannedLoad | None
    watcher: Watcher

    @property
    def scenario(self) -> Scenario:
        return self.workload.scenario

    @asynccontextmanager
    async def recorded(
        self, message: str = "", send: Callable[[Mapping[str, Any]], None] = lambda _: None
    ) -> AsyncIterator[Events]:
        """Yield the events of the load made in the block, and collect from the monitors meanwhile.

        `message` is shown once the monitors are sampling; `send` receives each event. If the block raises
        `ConfigError`, there was no load, and its files are removed.
        """
        try:
            async with collected(self.scenario.monitors, self.directory / "logs"):
                if message:
                    self.watcher.message(message)
                with recorded_events(self.directory, self.scenario, self.watcher, send) as events:
                    self.watcher.stage("load")
                    yield events
        except ConfigError:
            withdraw(self.directory)
            raise


class Place(Protocol):
    """The machines that make a run's load: this one, or a cluster's clients."""

    @property
    def loop_factory(self) -> LoopFactory | None:
        """The factory of the event loop; None for asyncio's own."""

    def check(self, scenario: Scenario) -> Workload:
        """Run all checks that need no server, and return the users' plans. Raises `ConfigError`."""

    def reached(
        self, scenario: Scenario, directory: Path, watcher: Watcher
    ) -> AbstractContextManager[tuple[Services, str]]:
        """Yield the services and the name of the server, which runs at least as long as the block."""

    def loaded(self, run: Run) -> AbstractAsyncContextManager[Hold | None]:
        """Prepare the mailboxes and make the load, which is over when the block begins. Yield the hold if still held.

        Raises `ConfigError` for a fault found before the load, and `RunInvalid` if there is no log here afterwards.
        """


def make_run(scenario: Scenario, place: Place, out: Path | None, even_invalid: bool, watcher: Watcher) -> RunResult:
    """Make a run like `run_locally`, but with the load made at this place. Raises what `Place.loaded` raises."""
    began = datetime.now(UTC)
    with printing_to_stderr() if scenario.probes or scenario.plugins else nullcontext():
        check_protocols(scenario)
        check_plugin_tasks(scenario)
        workload = place.check(scenario)
        with (
            run_directory(out, scenario.name, began) as directory,
            place.reached(scenario, directory, watcher) as (services, server),
        ):
            load = load_of_plan(scenario, watcher, even_invalid=even_invalid)
            run = Run(workload, random_run_id(began), directory, services, server, load, watcher)
            return run_in_loop(_execute(run, place), place.loop_factory)


async def _execute(run: Run, place: Place) -> RunResult:
    """Make the load, audit the mail, and compute the summary. Raises what `Place.loaded` raises."""
    check_drivers(run.scenario, run.services)
    async with place.loaded(run) as hold:
        try:
            await _audit(run, hold)
        finally:
            result = write_summary(run.directory, run.watcher)
        return result


async def _audit(run: Run, hold: Hold | None) -> None:
    """Audit a finished run if its logs require it: without that audit, the run is invalid.

    A signal ends the audit.
    """
    try:
        log = read_logs([run.directory])
    except LogError:  # the summary raises it again
        return
    ended = [source.facts.ended for source in log.sources if source.simulates]
    if not log.header.audited or "early" in ended or not any(ended):
        return
    watcher = run.watcher
    watcher.stage("audit")
    auditing = audit(run.directory, log, run.scenario, run.services, watcher.prepared, hold)
    try:
        with machine_failures(ConfigError):
            async with task_group() as group:
                task = group.create_task(auditing)
                with calls_on_signal(lambda: task.cancelling() or task.cancel()):
                    await asyncio.wait([task])
        why = "interrupted" if task.cancelled() else ""
    except ConfigError as failure:
        why = str(failure)
    if why:
        watcher.warning(f"the mail was not audited: {why}")
