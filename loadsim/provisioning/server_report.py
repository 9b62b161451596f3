"""A server check's report: its observations, and whether the scenario can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadsim.errors import TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding
from loadsim.findings.severity import Severity
from loadsim.provisioning.answers import meaning


@dataclass(frozen=True, slots=True)
class Observation:
    """A subject, and what was observed about it. A `finding` that is invalid keeps the scenario from running.

    The finding is only reliable if no one else uses the mailboxes of these `users`.
    """

    subject: str
    seen: str
    finding: Finding | None = None
    users: tuple[int, ...] = ()

    @property
    def lacks(self) -> bool:
        return self.finding is not None and self.finding.severity is Severity.INVALID

    @property
    def is_fault(self) -> bool:
        return self.finding is not None and self.finding.severity in (Severity.INVALID, Severity.MISSED)


@dataclass(frozen=True, slots=True)
class TriedTask:
    """A task tried with a driver: the commands it used and the longest time it took, or why it failed.

    `driver` names the driver and the mail program (`Group.driver_name`).
    """

    driver: str
    task: str
    commands: tuple[str, ...]
    seconds: float
    failure: Observation | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server's extensions and the form of its answers, for tables of servers; empty or None if not observed.

    Keywords are those that the server itself set on delivered and appended mail. `copyuid` is where COPYUID stands in
    the answer to MOVE. `announced_ms` is the time from an APPEND until another session, in IDLE, received the first
    EXISTS. `missing_folder` is the answer to SELECT of a missing folder.
    """

    imap_capabilities: tuple[str, ...] = ()
    smtp_extensions: tuple[str, ...] = ()
    permanent_flags: str = ""
    delivered_keywords: tuple[str, ...] | None = None
    appended_keywords: tuple[str, ...] | None = None
    copyuid: str = ""
    announced_ms: float | None = None
    missing_folder: str = ""
    append_limit_bytes: int | None = None
    message_limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """Everything that a check found. `accounts` are the log-on names of the accounts that it used.

    `monitors` has observations on the scenario's monitors; `ended` says why the check ended early.
    """

    accounts: tuple[str, ...]
    server: tuple[Observation, ...]
    tasks: tuple[TriedTask, ...]
    mail: tuple[Observation, ...]
    seconds: float = 0.0
    leftovers: tuple[str, ...] = ()
    monitors: tuple[Observation, ...] = ()
    facts: ServerFacts = field(default_factory=ServerFacts)
    ended: str = ""

    @property
    def lacks(self) -> Sequence[Finding]:
        """The findings that keep the scenario from running, one per code."""
        first: dict[Code, Finding] = {}
        for observation in [*self.observed, *(task.failure for task in self.tasks if task.failure is not None)]:
            if observation.finding is not None and observation.lacks:
                first.setdefault(observation.finding.code, observation.finding)
        return [*first.values()]

    @property
    def observed(self) -> Sequence[Observation]:
        return [*self.server, *self.mail, *self.monitors]

    @property
    def wrong(self) -> Sequence[Finding]:
        """The server's faults with which the scenario can run but misses a criterion."""
        return [seen.finding for seen in self.observed if seen.finding is not None and seen.is_fault and not seen.lacks]

    @property
    def can_run(self) -> bool:
        return not self.lacks and not self.ended


def lacking(
    subject: str, failure: TaskFailed, *users: int, sender: str = "", recipient: str = "", to_list: bool = False
) -> Observation:
    return Observation(subject, str(failure), meaning(failure, sender, recipient, to_list), users)
