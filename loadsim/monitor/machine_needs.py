"""The needs of a run compared with this machine, before the run: processor, memory, open files, disk.

The figures per user and per task are measured (docs/explanation/performance.md) and rounded to the safe side. They
warn of a run that this machine cannot make; only the run itself shows whether it could.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from math import ceil
from pathlib import Path

import psutil

from loadsim.control_groups import memory_limits, usable_cores
from loadsim.engine.rlimits import open_files_needed
from loadsim.errors import ConfigError
from loadsim.model.population import further_connections
from loadsim.model.run_times import at_least, rounded_up, typed
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_document import EMBEDDED
from loadsim.model.scenario_server import Server
from loadsim.model.terms import STRESS
from loadsim.model.workload import Workload
from loadsim.monitor.server_discovery import is_own
from loadsim.provisioning.planned_size import mailbox_bytes
from loadsim.timinglog.planned_load import PlannedLoad

ENGINE_TASKS_PER_S = 250.0
"""Planned tasks per second of an engine, on a core of its own, whose event loop is late by about 2 ms (99th p.)."""

EMBEDDED_TASKS_PER_S = 100.0
"""Planned tasks per second of the embedded server before its answers become several times slower, on two cores."""

ENGINE_BYTES = 60 << 20
USER_BYTES = 13 << 10
TLS_BYTES = 37 << 10
"""Memory of an engine without users, of a user's connection, and of its TLS."""

EMBEDDED_COPIES = 3
"""The memory of the embedded server for a message, as a multiple of the message's size."""

LOG_BYTES_PER_TASK = 400
"""A planned task's share of the timing logs, with its commands, SYNC, and the samples of each second."""

RESULT_BYTES = 1 << 20
"""The other files of a run directory: score, answer, events, report."""

FILLED_PER_S = 1400
"""Messages per second that loadsim puts into the mailboxes of a Dovecot on two cores."""

BUSIEST_S = 10.0
"""The length of the busiest stretch: a shorter peak passes before anything is late for long."""

LONGER_DAY = 1.1
"""The margin of a longer day for chance: its busiest rate is lower by this factor than what the machine keeps pace
with."""

DAY_STEP = 1.02
"""The growth from one longer day to the next, until one suffices."""

SAMPLED_USERS = 500
"""The most users whose mailboxes are counted; the rest are taken to be like them."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The planned tasks in each of many equal parts of a run, which together take `duration_s`."""

    tasks: tuple[float, ...]
    duration_s: float

    def busiest_per_s(self, times_longer: float = 1.0) -> float:
        """Return the tasks per second of the busiest `BUSIEST_S`, or of the whole run if that is shorter.

        The run may be `times_longer`: its days have the same tasks in more time.
        """
        if not self.tasks:
            return 0.0
        part_s = self.duration_s * times_longer / len(self.tasks)
        parts = min(ceil(BUSIEST_S / part_s), len(self.tasks))
        most = max(sum(self.tasks[at : at + parts]) for at in range(len(self.tasks) - parts + 1))
        return float(most / (parts * part_s))


@dataclass(frozen=True, slots=True)
class Needs:
    """The needs of a run on this machine; None if the planned load is unknown.

    `open_files` are those of one engine. `messages` are those of the start state, in the mailboxes of all `users`.
    `day_s` is the length of a day of the run.
    """

    users: int
    engines: int
    open_files: int
    memory_bytes: int
    log_bytes: int | None
    pace: Pace | None
    messages: int
    day_s: float

    @property
    def busiest_tasks_per_s(self) -> float | None:
        """The tasks per second of the busiest `BUSIEST_S`."""
        return None if self.pace is None else self.pace.busiest_per_s()


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of this machine; None if unknown or unlimited.

    `tasks_per_s` is what the engines, or the embedded server, are expected to keep pace with; `embedded`: the latter.
    """

    tasks_per_s: float
    cores: int
    memory_bytes: int | None
    memory_available_bytes: int | None
    open_files: int | None
    disk_free_bytes: int | None
    embedded: bool = False


def needs_of(workload: Workload, users: Collection[int], engines: int, load: PlannedLoad | None) -> Needs:
    """Return the needs of these users in `engines` processes, by the planned load of all users."""
    scenario = workload.scenario
    share = len(users) / scenario.users
    further = further_connections(scenario, users)
    per_connection = USER_BYTES + (TLS_BYTES if _has_tls(scenario) else 0)
    memory = engines * ENGINE_BYTES + (len(users) + further) * per_connection
    each = list(users)[:: ceil(len(users) / SAMPLED_USERS)]
    stands_for = len(users) / len(each)
    if scenario.server == EMBEDDED:
        memory += round(EMBEDDED_COPIES * stands_for * sum(mailbox_bytes(workload, user) for user in each))
    pace = None
    if load is not None and scenario.run.mode != STRESS:
        together = (sum(part) * share for part in zip(*load.tasks.values(), strict=True))
        pace = Pace(tuple(together), load.duration_s)
    return Needs(
        users=len(users),
        engines=engines,
        open_files=open_files_needed(ceil(len(users) / engines), ceil(further / engines)),
        memory_bytes=memory,
        log_bytes=None if pace is None else round(sum(pace.tasks) * LOG_BYTES_PER_TASK) + RESULT_BYTES,
        pace=pace,
        messages=round(stands_for * sum(sum(workload.start_state(user).values()) for user in each)),
        day_s=scenario.run.day_length_s,
    )


def _has_tls(scenario: Scenario) -> bool:
    return isinstance(scenario.server, Server) and scenario.server.imap.tls != "none"


def resources_for(scenario: Scenario, engines: int, directory: Path) -> Resources:
    """Return the resources of this machine for a run with its logs in `directory`, which need not exist yet."""
    cores = usable_cores()
    at_once = min(engines, max(1, cores // 2) if _server_is_here(scenario) else cores)
    tasks_per_s = at_once * ENGINE_TASKS_PER_S
    memory_bytes, available_bytes = _memory()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    existing = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.is_dir())
    return Resources(
        tasks_per_s=min(tasks_per_s, EMBEDDED_TASKS_PER_S) if scenario.server == EMBEDDED else tasks_per_s,
        cores=cores,
        memory_bytes=memory_bytes,
        memory_available_bytes=available_bytes,
        open_files=None if most_files == resource.RLIM_INFINITY else most_files,
        disk_free_bytes=shutil.disk_usage(existing).free,
        embedded=scenario.server == EMBEDDED,
    )


def _server_is_here(scenario: Scenario) -> bool:
    """Return whether the server shares this machine, as far as its host says without a name server."""
    if not isinstance(scenario.server, Server):
        return True
    host = scenario.server.imap.host
    with suppress(ValueError):
        return is_own(ip_address(host))
    return host == "localhost"


def _memory() -> tuple[int, int]:
    """Return the total and the available memory in bytes, at most those of our control groups."""
    memory = psutil.virtual_memory()
    found = memory.total, memory.available
    limits = memory_limits() or found
    return min(found[0], limits[0]), min(found[1], limits[1])


def check_memory(needs: Needs, resources: Resources) -> None:
    """Raise `ConfigError` for a run that cannot fit into this machine's memory."""
    if resources.memory_bytes is not None and needs.memory_bytes > resources.memory_bytes:
        raise ConfigError(
            f"topology: expected users that fit into the {_size(resources.memory_bytes)} of this machine's memory,"
            f" found {needs.users:,} users, which need about {_size(needs.memory_bytes)}; take fewer users, or"
            f" {'another server' if resources.embedded else 'several machines (loadsim run --cluster)'}"
        )


def shortages(needs: Needs, resources: Resources, *, pin: bool = False) -> list[str]:
    """Return what this machine probably lacks for a run, each with a remedy. With `pin`, it has half the cores."""
    found = []
    busiest = needs.busiest_tasks_per_s
    if busiest is not None and busiest > resources.tasks_per_s and resources.embedded:
        found.append(
            f"the embedded server may be slow: in its busiest {BUSIEST_S:g} s this run plans {busiest:,.0f} tasks per"
            f" second, and that server keeps pace with about {resources.tasks_per_s:,.0f}; take"
            f" {_slower(needs, resources.tasks_per_s)}"
        )
    elif busiest is not None and busiest > resources.tasks_per_s:
        found.append(
            f"this run may become invalid: in its busiest {BUSIEST_S:g} s it plans {busiest:,.0f} tasks per second, and"
            f" this machine ({_counted(resources.cores, 'core')}{' with --pin' if pin else ''},"
            f" {_counted(needs.engines, 'engine')}) keeps pace with"
            f" about {resources.tasks_per_s:,.0f}; take {_slower(needs, resources.tasks_per_s)}, or more"
            " machines"
        )
    present = resources.memory_available_bytes
    if present is not None and needs.memory_bytes > present:
        found.append(
            f"memory may run out: the run needs about {_size(needs.memory_bytes)}, available are {_size(present)}"
        )
    if resources.open_files is not None and needs.open_files > resources.open_files:
        found.append(
            f"open files will run out: each engine needs {needs.open_files:,}, its hard limit is"
            f" {resources.open_files:,}; take more --engines, or raise it as root with `ulimit -n {needs.open_files}`"
        )
    free = resources.disk_free_bytes
    if needs.log_bytes is not None and free is not None and needs.log_bytes > free:
        found.append(f"the disk may fill up: the logs need about {_size(needs.log_bytes)}, free are {_size(free)}")
    return found


def _slower(needs: Needs, tasks_per_s: float) -> str:
    """Return the day or the users with which the busiest rate is at most this one, rounded to the safe side."""
    assert needs.pace is not None
    factor = needs.pace.busiest_per_s() / tasks_per_s
    users = int(needs.users / factor)
    unit = int(10 ** max(len(str(users)) - 2, 0))
    fewer = f"about {users // unit * unit:,} users" if users >= 2 else "fewer users"
    day_s = rounded_up(needs.day_s * factor * LONGER_DAY)
    while LONGER_DAY * needs.pace.busiest_per_s(day_s / needs.day_s) > tasks_per_s:
        day_s = rounded_up(day_s * DAY_STEP)
    return f"a day of about {at_least(day_s)} (--set run.day_length={typed(day_s)}), or {fewer}"


def describe(needs: Needs, resources: Resources) -> list[str]:
    """Return the needs of a run, and what this machine has, as lines."""
    logs = "" if needs.log_bytes is None else f", logs {_size(needs.log_bytes)}{_available(resources.disk_free_bytes)}"
    lines = [
        f"Needs, about: memory {_size(needs.memory_bytes)}{_available(resources.memory_available_bytes)}{logs}",
        f"Open files: {needs.open_files:,} in each of {_counted(needs.engines, 'engine')}"
        + ("" if resources.open_files is None else f" ({resources.open_files:,} allowed)"),
    ]
    if needs.busiest_tasks_per_s is not None:
        lines.append(
            f"Busiest {BUSIEST_S:g} s: {needs.busiest_tasks_per_s:,.1f} tasks per second;"
            f" {'the embedded server' if resources.embedded else 'this machine'} keeps pace with about"
            f" {resources.tasks_per_s:,.0f}, if nothing else keeps it busy"
        )
    if needs.messages:
        took = timedelta(seconds=ceil(needs.messages / FILLED_PER_S))
        lines.append(
            f"First preparation: {needs.messages:,} messages into {needs.users:,} mailboxes,"
            f" about {took} on a Dovecot with two cores"
        )
    return lines


def _available(size_bytes: int | None) -> str:
    return "" if size_bytes is None else f" ({_size(size_bytes)} available)"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _size(size_bytes: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            value = size_bytes / factor
            return f"{value:,.1f} {unit}" if value < 10 else f"{value:,.0f} {unit}"
    return f"{size_bytes:,.0f} bytes"
