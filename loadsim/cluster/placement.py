"""The assignments of a cluster run: clients that fit, their users, and the fingerprints that workers must match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from loadsim.build_fingerprint import build_fingerprint
from loadsim.cluster.prepare import Change
from loadsim.engine.control import TO_A_MEMBER, Message, encode, message
from loadsim.engine.coordinator import engines_for
from loadsim.engine.event_log import Events
from loadsim.engine.process import Begin, begins_of, packed, unpacked
from loadsim.errors import ConfigError
from loadsim.model.partition import Assignment, all_users
from loadsim.model.ports import Services
from loadsim.provisioning.initialise import start_state_after
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.workload import Workload, combine_digests

# --- clients that fit ---


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A connected client, as it describes itself (`Agent.describe`)."""

    name: str
    software: str
    cores: int
    free_bytes: int
    runs: Mapping[str, bool]


def fit_clients(descriptions: Mapping[str, Mapping[str, Any]]) -> list[ConnectedClient]:
    """Return the clients with these descriptions, in the same order.

    Raises `ConfigError` for a client whose software differs from ours, or that is busy.
    """
    ours = build_fingerprint()
    for name, about in descriptions.items():
        if (software := about.get("software")) != ours:
            raise ConfigError(f"client {name}: expected {ours}, found {software}")
    clients = [ConnectedClient(name, **about) for name, about in descriptions.items()]
    for client in clients:
        for run, active in client.runs.items():
            if active:
                raise ConfigError(f"client {client.name}: expected nothing at work there, found run {run}")
    return clients


# --- users and disk space of clients ---


def assign_users(users: int, clients: Sequence[ConnectedClient], senders: int = 0) -> dict[str, list[Assignment]]:
    """Assign users to clients in proportion to their cores. Return an assignment for each engine, by client.

    A client without users is left out. Outside senders are in the same places.
    """
    engines = {}
    for client, own in zip(clients, all_users(users).cut([client.cores for client in clients]), strict=True):
        if len(own):
            own_senders = len(own.with_senders(senders)) - len(own)
            engines[client.name] = own.cut([1] * engines_for(len(own), client.cores, own_senders))
    return engines


def check_room(clients: Sequence[ConnectedClient], needed_bytes: Mapping[str, int], here: str, free_bytes: int) -> None:
    """Check that each client has room for its own logs, and the controller (`free_bytes` in `here`) for all.

    Raises `ConfigError`.
    """
    for client in clients:
        needed = needed_bytes.get(client.name, 0)
        if needed > client.free_bytes:
            raise ConfigError(f"client {client.name}: {_expected_room(needed, client.free_bytes)}")
    if sum(needed_bytes.values()) > free_bytes:
        raise ConfigError(f"{here}: {_expected_room(sum(needed_bytes.values()), free_bytes)}")


def _expected_room(needed: int, free: int) -> str:
    return f"expected room for about {needed / 2**20:.0f} MiB of logs, found {free / 2**20:.0f} MiB"


# --- one worker's assignment ---


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Values that controller and worker compute independently, with the same software, and that must match.

    `plugins` names those of the load (`Scenario.plugins`) with their packages. `plan` is the digest of the plans of the
    worker's own users, `start_state` that of all mailboxes; None if mailboxes are left as they are.
    """

    plugins: str
    start_state: str | None
    plan: str

    def check(self, found: Fingerprints) -> None:
        """Compare the controller's fingerprints with the worker's (`found`). Raises `ConfigError` if they differ."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(found, field.name)
            if ours != theirs:
                raise ConfigError(f"{field.name.replace('_', ' ')}: expected the controller's, {ours}, found {theirs}")


def plugins_fingerprint(scenario: Scenario) -> str:
    """Return, on one line, the plug-ins of a scenario's load, with their packages on this machine."""
    return ", ".join(f"{name} of {package}" for name, package in sorted(scenario.plugins.items())) or "none"


def fingerprints(workload: Workload, numbers: Iterable[int]) -> Fingerprints:
    """Compute this machine's fingerprints for a scenario and these users and outside senders.

    This takes about 0.5 ms for each of them and day.
    """
    return Fingerprints(
        plugins=plugins_fingerprint(workload.scenario),
        start_state=start_state_after(workload, workload.scenario.initialise),
        plan=combine_digests([workload.user_digest(number) for number in numbers]),
    )


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """A worker's assignment (`coordinator.MemberAssignment`); `per_engine` has the users of each engine, in order.

    `name` is the client's name, `header` has the fields that all timing logs of the run share, and `fingerprints` are
    the controller's. A worker whose assignment is `prepared` already has it, and has prepared the mailboxes.
    """

    scenario: Scenario
    services: Services
    name: str
    per_engine: Sequence[Assignment]
    header: Mapping[str, Any]
    fingerprints: Fingerprints
    prepared: bool = False

    @property
    def assignment(self) -> Assignment:
        first, last = self.per_engine[0], self.per_engine[-1]
        return Assignment(first.users, first.step, first.begin, last.end)

    @property
    def everyone(self) -> Assignment:
        """The worker's users and outside senders."""
        return self.assignment.with_senders(self.scenario.senders)

    def encode(self) -> bytes:
        return encode(BeginLoad(None if self.prepared else self.values()))

    def values(self) -> str:
        """Return the assignment as text, without commands, which may contain secrets."""
        return packed(replace(self, scenario=self.scenario.without_commands()))

    @classmethod
    def read(cls, values: str) -> Self:
        assigned: Self = unpacked(values)
        return assigned

    def begins(self, logs: Path) -> list[Begin]:
        """Return the `Begin` of each engine, whose timing log is in the directory `logs`."""
        header = {**self.header, "client": self.name}
        return begins_of(self.scenario, self.services, self.per_engine, logs, header)

    def write_ready(self, events: Events, process: int) -> None:
        events.write(
            "client ready", client=self.name, pid=process, users=len(self.assignment), engines=len(self.per_engine)
        )

    def write_lost(self, events: Events, why: str) -> None:
        events.write("client lost", client=self.name, users=len(self.assignment), why=why)


# --- messages to a worker ---


@message("prepare")
class PrepareMailboxes(Message):
    """The first message to a worker: prepare the mailboxes of the users in an assignment, given as `values`."""

    values: str


@message("begin")
class BeginLoad(Message):
    """Make the load of an assignment; None for the one whose mailboxes the worker has prepared."""

    values: str | None


@message("clock")
class ClockReading(Message):
    """At `at_ns` of the client's clock, the controller's showed `controller_ns`, plus or minus `error_ns`.

    `ahead_ns` is the lead of the client's clock, which the controller adds to the common start.
    """

    at_ns: int
    controller_ns: int
    error_ns: int
    ahead_ns: int


TO_A_WORKER = (PrepareMailboxes, Change, BeginLoad, ClockReading, *TO_A_MEMBER)
