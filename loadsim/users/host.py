"""The process that runs a user, as the user sees it: clock, recorder, other users' mail, counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.content.compose import Contents
from loadsim.model.ports import KeptLines, Observer, PortsApart, Recorder
from loadsim.scenario.workload import Workload

Late_s = tuple[float, float, float]
"""The seconds by which a task began late, by cause: user busy, session down, generator late."""


@dataclass(slots=True)
class CompanionCounts:
    """Counts for all companions of a host.

    `tried` companions have completed their first log-on attempt, even if it failed. `failures` includes failed log-ons
    and lost sessions. `looks` are looks for new mail, each with a log-on. `planned_ns` is the time of all companions
    from the common start to the end of the run. `down_ns` is the part of it in which the server did not serve them:
    from a lost session, or from the start of a call that failed or was never answered, to the next success.
    """

    tried: int = 0
    log_ons: int = 0
    log_ons_failed: int = 0
    sessions_lost: int = 0
    failures: int = 0
    looks: int = 0
    listed: int = 0  # new messages
    planned_ns: int = 0
    down_ns: int = 0


@dataclass(slots=True)
class OutsideCounts:
    """Counts of outside senders' messages to unknown recipients, as the server answered them."""

    unknown_refused: int = 0
    unknown_accepted: int = 0


@dataclass(slots=True)
class SessionCounts:
    """Counts for all users of a host, which they update themselves, and for companions and outside senders."""

    users_on: int = 0
    users_ready: int = 0  # they have logged on, and copied their mailbox if their program does
    sessions_lost: int = 0  # including companions
    sessions_restored: int = 0  # likewise
    unannounced: int = 0  # messages that users found in their Inbox at the end
    silent_activities: int = 0  # closed loops only: activities that sent nothing to the server
    companions: CompanionCounts = field(default_factory=CompanionCounts)
    outside: OutsideCounts = field(default_factory=OutsideCounts)


class TaskObserver(Observer, Protocol):
    """Observes the drivers of a user, companion, assistant or outside sender."""

    number: int
    answered_ns: int  # when the running task's last answer arrived; 0 before the first


class Host(Protocol):
    """Runs users. Instants are nanoseconds of the run's clock."""

    start_ns: int  # the common start; 0 before it
    counts: SessionCounts
    workload: Workload
    contents: Contents
    run_id: str
    apart: PortsApart
    plugin_tasks: Mapping[str, Any]  # values are `tasks.Task`, but that module imports this one
    plan: Callable[[Any, bool], Iterator[Any]]  # `activities.plan`, or a replacement
    log_on_slots: asyncio.Semaphore  # limits how many users log on at once before the common start
    log_off_slots: asyncio.Semaphore

    @property
    def recorder(self) -> Recorder: ...

    @property
    def now_ns(self) -> Callable[[], int]: ...

    @property
    def in_turn(self) -> Callable[[Callable[[], object]], None]:
        """Call a function now or in a later turn of the event loop, so that a crowd of users does not block it."""

    def wall_clock_us(self) -> int:
        """Return wall-clock microseconds since 1970, by the run's clock."""

    def mail_accepted(self, message: str, user: int, sender: int | None = None) -> None:
        """Note that the server accepted a message for a user; `sender` may be None only if it is someone else."""

    def mail_seen(self, message: str, user: int, sender: int) -> None:
        """Note that a user has seen a message of this run."""

    def count_task(self, task: str, outcome: str, service_ns: int, late_s: Late_s, clock: str) -> None:
        """Count a task that has ended or was skipped; `service_ns` and its clock count only if it is ok."""

    def lines(self, user: int) -> KeptLines:
        """Return an empty store for a user's or companion's last protocol lines."""

    def failed(self, user: TaskObserver, task: str, failure: TaskFailed) -> str:
        """Count a failure. Return the kind to record."""

    def internal_error(self, error: Exception, during: str, user: int | None = None) -> GeneratorFailed:
        """Report an error in loadsim. Return the failure to record."""

    def user_given_up(self) -> None:
        """Count a user whose own state is broken."""
