"""Facts about a whole timing log, added by its maker as they become known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from loadsim.documents.typed import Within, Wrong, show
from loadsim.errors import LogError
from loadsim.model.state_checks import Violation
from loadsim.timinglog.documents import Count, Instant_ns, Length_ns, Seconds, read_as

Cause = Literal["abort_on", "users lost", "accounts taken", "outage failed"]
ABORT_ON, USERS_LOST, ACCOUNTS_TAKEN, OUTAGE_FAILED = "abort_on", "users lost", "accounts taken", "outage failed"
"""Why a run ended early: `abort_on`, which judges the server, or a fault of the machines that make the load.

`USERS_LOST`: `abort_on` ended the run after a client or engine was lost; it cannot tell lost users from those whom the
server leaves without a session. `ACCOUNTS_TAKEN`: another loadsim changed the mailboxes; a run that had already ended
gets this fact as well. `OUTAGE_FAILED`: the command of `run.outage` failed.
"""


class EarlyEnd(NamedTuple):
    """An early end: `by` is a `Cause`; `why` states the figure and the limit."""

    by: str
    why: str

    @property
    def facts(self) -> dict[str, str]:
        return {"ended_by": self.by, "ended_why": self.why}


Core = Annotated[int, Within(0, 2**16)]


class FileSystem(NamedTuple):
    """A mounted file system. `source` is usually a device; `model` is its disk's, None if unknown."""

    type: str
    source: str
    mounted_at: str
    options: str
    model: str | None


class ProbeCounts(NamedTuple):
    """A probe's package, and how many samples and failures it had."""

    package: str
    samples: Count
    failures: Count
    last_failure: str | None


class StateChecked(NamedTuple):
    """The number of users for whom the server's state was checked, and the first violation of each rule."""

    users: Count
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True)
class CompanionTotals:
    """The final counts for an engine's companions (`users.host.CompanionCounts`), and their number."""

    count: Length_ns
    tried: Length_ns
    log_ons: Length_ns
    log_ons_failed: Length_ns
    sessions_lost: Length_ns
    failures: Length_ns
    looks: Length_ns
    listed: Length_ns
    planned_ns: Length_ns
    down_ns: Length_ns


class OutsideTotals(NamedTuple):
    """The final counts of an engine's outside senders (`users.host.OutsideCounts`)."""

    unknown_refused: Count
    unknown_accepted: Count


def _within_plan(totals: CompanionTotals) -> CompanionTotals:
    if totals.down_ns > totals.planned_ns:
        raise Wrong("at most planned_ns", totals.down_ns, "down_ns")
    return totals


class LogFacts(NamedTuple):
    """Facts about an engine, a machine or a monitor; those that the log does not state are None."""

    start_ns: Instant_ns | None = None
    began_ns: Instant_ns | None = None
    watched_until_ns: Instant_ns | None = None
    drain_s: Seconds | None = None
    ended: Literal["completed", "early", "given up"] | None = None
    ended_by: Cause | None = None
    ended_why: str | None = None
    given_up_why: str | None = None
    lost_users: Count | None = None
    users_given_up: Count | None = None
    undelivered: Count | None = None
    unannounced: Count | None = None
    foreign: Count | None = None
    flags_not_kept: tuple[str, ...] | None = None
    unlooked: tuple[Count, ...] | None = None
    silent_activities: Count | None = None
    sessions_lost: Count | None = None
    sessions_restored: Count | None = None
    own_faults: Mapping[str, Count] | None = None
    companions: Annotated[CompanionTotals, _within_plan] | None = None
    outside: OutsideTotals | None = None
    log_on_methods: tuple[str, ...] | None = None
    state_checks: StateChecked | None = None
    collection: str | None = None
    boot_id: str | None = None
    wall_clock_error_ns: Length_ns | None = None
    server_here: bool | None = None
    shares_cpus: bool | None = None
    pinned: bool | None = None
    generator_cpus: tuple[Core, ...] | None = None
    server_cpus: tuple[Core, ...] | None = None
    imap_greeting: str | None = None
    smtp_greeting: str | None = None
    processor: str | None = None
    memory_bytes: Count | None = None
    system: str | None = None
    python: str | None = None
    libraries: Mapping[str, str] | None = None
    probes: Mapping[str, ProbeCounts] | None = None
    run_file_system: FileSystem | None = None


OF_MONITORS = frozenset(
    (
        *("processor", "memory_bytes", "system", "python", "libraries"),
        *("boot_id", "wall_clock_error_ns", "server_here", "probes", "ended", "collection"),
    )
)
"""The facts in a monitor's file. Others are rejected: a monitor is not part of the generator."""


def read_facts(document: Mapping[str, Any], where: str, monitor: str | None) -> LogFacts:
    """Read a log's facts; `monitor` is the monitor's name if this is a monitor's file. Raises `LogError`."""
    facts = read_as(LogFacts, document, where)
    if monitor is None:
        return facts
    for name in (name for name in LogFacts._fields if name not in OF_MONITORS):
        if (value := getattr(facts, name)) is not None:
            raise LogError(f"{where}: {name}: expected no such fact of a monitor, found {show(value)}")
    if facts.ended not in (None, "completed"):
        raise LogError(f"{where}: ended: expected completed of a monitor, found {show(facts.ended)}")
    for probe in facts.probes or ():
        check_monitored(f"{where}: probes", probe, monitor)
    return facts


def check_monitored(where: str, probe: str, monitor: str) -> None:
    if not probe.endswith(f"@{monitor}"):
        raise LogError(f"{where}: expected names that end with @{monitor}, found {show(probe)}")
