"""The audit of a run's mail after its load, while the server is still there."""

from __future__ import annotations

import asyncio
from pathlib import Path

from loadsim.audit.audit import audit
from loadsim.errors import ConfigError, LogError, machine_failures
from loadsim.model.ports import Services
from loadsim.processes.event_loop import calls_on_signal, task_group
from loadsim.provisioning.hold import Hold
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.timinglog.merge import read_logs


async def audit_run(
    directory: Path, scenario: Scenario, services: Services, watcher: Watcher, hold: Hold | None = None
) -> None:
    """Audit a run that has reached its end, if its logs say so: without a result, they make the run invalid.

    A signal ends the audit. `hold` is that of the run, if it lasts.
    """
    try:
        log = read_logs([directory])
    except LogError:  # the summary raises it again
        return
    ended = [source.facts.ended for source in log.sources if source.simulates]
    if not log.header.audited or "early" in ended or not any(source.ended for source in log.sources):
        return
    watcher.stage("audit")
    try:
        with machine_failures(ConfigError):
            async with task_group() as group:
                auditing = group.create_task(audit(directory, log, scenario, services, watcher.prepared, hold))
                with calls_on_signal(lambda: auditing.cancelling() or auditing.cancel()):
                    await asyncio.wait([auditing])
        why = "stopped by hand" if auditing.cancelled() else ""
    except ConfigError as failure:
        why = str(failure)
    if why:
        watcher.warning(f"the mail was not audited: {why}")
