"""The report of a check of a server: what was found, and whether a scenario can run with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadsim.errors import TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Severity
from loadsim.provisioning.answers import meaning


@dataclass(frozen=True, slots=True)
class Observation:
    """A subject, and what was seen of it. An invalid `finding` keeps the scenario from running."""

    subject: str
    seen: str
    finding: Finding | None = None

    @property
    def lacks(self) -> bool:
        return self.finding is not None and self.finding.severity is Severity.INVALID

    @property
    def is_fault(self) -> bool:
        return self.finding is not None and self.finding.severity in (Severity.INVALID, Severity.MISSED)


@dataclass(frozen=True, slots=True)
class TriedTask:
    """A task with a driver: the commands that it used, and the longest time that it took; or why it failed.

    `driver` is the driver's name with that of the mail program (`Group.module`).
    """

    driver: str
    task: str
    commands: tuple[str, ...]
    seconds: float
    failure: Observation | None = None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Everything that a check found. `accounts` are the log-on names of the accounts that it used.

    `monitors` is about those of the scenario.
    """

    accounts: tuple[str, ...]
    server: tuple[Observation, ...]
    tasks: tuple[TriedTask, ...]
    mail: tuple[Observation, ...]
    seconds: float = 0.0
    leftovers: tuple[str, ...] = ()
    monitors: tuple[Observation, ...] = ()

    @property
    def lacks(self) -> Sequence[Finding]:
        """The findings that keep the scenario from running, one for each code."""
        found: dict[Code, Finding] = {}
        for one in [*self.observed, *(task.failure for task in self.tasks if task.failure is not None)]:
            if one.finding is not None and one.lacks:
                found.setdefault(one.finding.code, one.finding)
        return [*found.values()]

    @property
    def observed(self) -> Sequence[Observation]:
        return [*self.server, *self.mail, *self.monitors]

    @property
    def wrong(self) -> Sequence[Finding]:
        """The faults of the server with which the scenario can run, but misses a criterion."""
        return [one.finding for one in self.observed if one.finding is not None and one.is_fault and not one.lacks]

    @property
    def can_run(self) -> bool:
        return not self.lacks


def lacking(
    subject: str, failure: TaskFailed, *, sender: str = "", recipient: str = "", to_list: bool = False
) -> Observation:
    return Observation(subject, str(failure), meaning(failure, sender, recipient, to_list))
