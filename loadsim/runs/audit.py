"""The audit of a run's mail after its load, while the server is still there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from loadsim.audit.audit import audit
from loadsim.errors import ConfigError, LogError, RunInvalid, machine_failures
from loadsim.model.ports import Services
from loadsim.model.scenario import Scenario
from loadsim.model.workload import Workload
from loadsim.provisioning.sessions import accounts_on_server
from loadsim.runs.watcher import Watcher
from loadsim.timinglog.merge import read_logs
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT

MOST_MESSAGES = 100_000
"""The most messages that are audited by default: from Dovecot, they take 10 s of CPU time here, and a minute on a busy
machine."""


async def audit_run(
    directory: Path, scenario: Scenario, services: Services, watcher: Watcher, most: int = MOST_MESSAGES
) -> None:
    """Audit a run that has reached its end, as its scenario says (`run.audit`); by default, of `most` messages.

    Raises `RunInvalid` if the result cannot be written.
    """
    if scenario.audit is False or not accounts_on_server(scenario):
        return
    try:
        log = read_logs([directory])
    except LogError:  # the summary raises it again
        return
    ended = [source.facts.ended for source in log.sources if source.simulates]
    if not ended or "early" in ended or not any(source.ended for source in log.sources):
        return
    if scenario.audit is None and _messages(scenario, log) > most:
        return
    watcher.stage("audit")
    try:
        with machine_failures(RunInvalid):
            await audit(directory, log, scenario, services, watcher.prepared)
    except ConfigError as failure:
        raise RunInvalid(f"the run has ended, but its mail was not audited: {failure}") from None


def _messages(scenario: Scenario, log: TimingLog) -> int:
    """Return the number of messages of the start state, and of those that were accepted, for each recipient."""
    workload = Workload(scenario)
    start = sum(sum(workload.start_state(user).values()) for user in range(1, scenario.users + 1))
    return start + sum(int(np.count_nonzero(mails["event"] == EVENT["accepted"])) for mails in log.pieces("mails"))
