"""A run's needs compared with this machine, before the run: processor, memory, open files, disk.

The figures per user and per task are measured (docs/explanation/performance.md) and rounded to the safe side. They can
warn that this machine cannot make a run; only the run itself shows that it can.
"""

from __future__ import annotations

import resource
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from math import ceil
from pathlib import Path

import psutil

from loadsim.engine.coordinator import engines_for
from loadsim.errors import ConfigError
from loadsim.findings.formats import count, data_size
from loadsim.model.ports import Endpoint
from loadsim.model.terms import STRESS
from loadsim.monitor.server_discovery import is_own
from loadsim.processes.control_groups import memory_limits, usable_cores
from loadsim.processes.rlimits import open_files_needed
from loadsim.protocols.registry import needs_one_engine
from loadsim.provisioning.planned_size import mailbox_bytes
from loadsim.scenario.document import EMBEDDED
from loadsim.scenario.population import connections_apart, further_connections
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server
from loadsim.scenario.workload import Workload
from loadsim.timinglog.planned_load import PlannedLoad

ENGINE_TASKS_PER_S = 600.0
"""Planned tasks per second for which an engine takes about 60 % of a core of its own."""

EMBEDDED_TASKS_PER_S = 100.0
"""Planned tasks per second above which the embedded server, on two cores, becomes several times slower."""

ENGINE_BYTES = 60 << 20
USER_BYTES = 13 << 10
TLS_BYTES = 37 << 10
"""Memory for an engine without users, for a user's connection, and for its TLS."""

MAPI_BYTES, MAPI_TLS_BYTES = 8 << 10, 66 << 10
"""Memory for a user of the driver `mapi`, beyond that for two connections, and for their TLS."""

EMBEDDED_COPIES = 3
"""The embedded server's memory for a message, as a multiple of the message's size."""

LOG_BYTES_PER_TASK = 400
"""A planned task's share of the timing logs, including its commands, SYNC, and each second's samples."""

RESULT_BYTES = 1 << 20
"""The other files of a run directory: score, answer, events, report."""

BUSIEST_S = 10.0
"""The length of the busiest stretch: a shorter peak is over before much is late."""

SAMPLED_USERS = 500
"""The most users whose mailboxes are measured; the others are assumed to be like them."""


@dataclass(frozen=True, slots=True)
class Needs:
    """A run's needs on this machine; those that follow from the planned load are None if the load is unknown.

    `open_files` is per engine, `busiest_tasks_per_s` the planned rate in the busiest `BUSIEST_S`. `day_s` is the length
    of the run's day.
    """

    users: int
    engines: int
    open_files: int
    memory_bytes: int
    log_bytes: int | None
    busiest_tasks_per_s: float | None
    day_s: float


@dataclass(frozen=True, slots=True)
class Resources:
    """This machine's resources; `open_files` is None if they are unlimited.

    `tasks_per_s` is the rate at which the engines (or, if `embedded`, the embedded server) can keep up.
    """

    tasks_per_s: float
    cores: int
    memory_bytes: int
    memory_available_bytes: int
    open_files: int | None
    disk_free_bytes: int
    embedded: bool = False


def needs_of(workload: Workload, engines: int, load: PlannedLoad | None) -> Needs:
    scenario = workload.scenario
    users, further = scenario.users, further_connections(scenario) + connections_apart(scenario)
    has_tls = any(endpoint.tls != "none" for endpoint in _endpoints(scenario))
    per_connection = USER_BYTES + (TLS_BYTES if has_tls else 0)
    memory = engines * ENGINE_BYTES + (users + scenario.senders + further) * per_connection
    by_mapi = sum(group.users for group in scenario.topology if group.protocol == "mapi")
    memory += by_mapi * (MAPI_BYTES + (MAPI_TLS_BYTES if has_tls else 0))
    if scenario.server == EMBEDDED:
        sampled = range(1, users + 1, ceil(users / SAMPLED_USERS))
        sampled_bytes = sum(mailbox_bytes(workload, user) for user in sampled)
        memory += round(EMBEDDED_COPIES * sampled_bytes * users / len(sampled))
    tasks: list[int] | None = None
    if load is not None and scenario.run.mode != STRESS:
        tasks = [sum(part) for part in zip(*load.tasks.values(), strict=True)]
    return Needs(
        users=users,
        engines=engines,
        open_files=open_files_needed(ceil((users + scenario.senders) / engines), ceil(further / engines)),
        memory_bytes=memory,
        log_bytes=None if tasks is None else sum(tasks) * LOG_BYTES_PER_TASK + RESULT_BYTES,
        busiest_tasks_per_s=None if tasks is None else busiest_per_s(tasks, load.duration_s if load else 0.0),
        day_s=scenario.run.day_length_s,
    )


def busiest_per_s(tasks: Sequence[float], duration_s: float) -> float:
    """Return the tasks per second in the busiest `BUSIEST_S`, or in the whole of a shorter run.

    `tasks` has the counts in equal parts of the run.
    """
    if not tasks:
        return 0.0
    part_s = duration_s / len(tasks)
    parts = min(ceil(BUSIEST_S / part_s), len(tasks))
    most = max(sum(tasks[begin : begin + parts]) for begin in range(len(tasks) - parts + 1))
    return float(most / (parts * part_s))


def resources_for(scenario: Scenario, engines: int, directory: Path) -> Resources:
    """Return this machine's resources for a run that keeps its logs in `directory`, which need not exist yet."""
    cores = usable_cores()
    shared = all(_is_here(each.host) for each in _endpoints(scenario))  # host names are not looked up
    at_once = min(engines, max(1, cores // 2) if shared else cores)
    tasks_per_s = at_once * ENGINE_TASKS_PER_S
    memory_bytes, available_bytes = _memory()
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.is_dir())
    return Resources(
        tasks_per_s=min(tasks_per_s, EMBEDDED_TASKS_PER_S) if scenario.server == EMBEDDED else tasks_per_s,
        cores=cores,
        memory_bytes=memory_bytes,
        memory_available_bytes=available_bytes,
        open_files=None if most_files == resource.RLIM_INFINITY else most_files,
        disk_free_bytes=shutil.disk_usage(existing).free,
        embedded=scenario.server == EMBEDDED,
    )


def _endpoints(scenario: Scenario) -> Collection[Endpoint]:
    return scenario.server.endpoints.values() if isinstance(scenario.server, Server) else ()


def _is_here(host: str) -> bool:
    with suppress(ValueError):
        return is_own(ip_address(host))
    return host == "localhost"


def _memory() -> tuple[int, int]:
    """Return the total and the available memory in bytes, within our control groups' limits."""
    memory = psutil.virtual_memory()
    limits = memory_limits() or (memory.total, memory.available)
    return min(memory.total, limits[0]), min(memory.available, limits[1])


def check_memory(needs: Needs, resources: Resources) -> None:
    """Raise `ConfigError` for a run that does not fit into this machine's memory."""
    if needs.memory_bytes > resources.memory_bytes:
        raise ConfigError(
            f"topology: expected users that fit into the {data_size(resources.memory_bytes)} of this machine's memory,"
            f" found {needs.users:,} users, which need about {data_size(needs.memory_bytes)}; take fewer users, or"
            f" {'another server' if resources.embedded else 'several machines (loadsim run --cluster)'}"
        )


def shortages(needs: Needs, resources: Resources, *, pin: bool = False) -> list[str]:
    """Return shortages that a run will probably meet on this machine, each with a remedy. `pin` halves the cores."""
    lines = []
    busiest = needs.busiest_tasks_per_s
    if busiest is not None and busiest > resources.tasks_per_s:
        begin = "the embedded server may be slow" if resources.embedded else "this run may become invalid"
        cores = f"{count(resources.cores, 'core')}{' with --pin' if pin else ''}"
        machine = f"this machine ({cores}, {count(needs.engines, 'engine')})"
        minutes = ceil(needs.day_s * busiest / resources.tasks_per_s / 60)
        lines.append(
            f"{begin}: in its busiest {BUSIEST_S:g} s it plans {busiest:,.0f} tasks per second, and"
            f" {'that server' if resources.embedded else machine} keeps pace with about {resources.tasks_per_s:,.0f};"
            f" take about --set run.day_length={minutes}m, or fewer users"
        )
    available = resources.memory_available_bytes
    if needs.memory_bytes > available:
        needed, there = data_size(needs.memory_bytes), data_size(available)
        lines.append(f"memory may run out: the run needs about {needed}, available are {there}")
    if resources.open_files is not None and needs.open_files > resources.open_files:
        lines.append(
            f"open files will run out: each engine needs {needs.open_files:,}, its hard limit is"
            f" {resources.open_files:,}; take more --engines, or raise it as root with `ulimit -n {needs.open_files}`"
        )
    free = resources.disk_free_bytes
    if needs.log_bytes is not None and needs.log_bytes > free:
        lines.append(
            f"the disk may fill up: the logs need about {data_size(needs.log_bytes)}, free are {data_size(free)}"
        )
    return lines


def describe(needs: Needs, resources: Resources) -> list[str]:
    available, free = data_size(resources.memory_available_bytes), data_size(resources.disk_free_bytes)
    logs = "" if needs.log_bytes is None else f", logs {data_size(needs.log_bytes)} ({free} available)"
    allowed = "" if resources.open_files is None else f" ({resources.open_files:,} allowed)"
    lines = [
        f"Needs, about: memory {data_size(needs.memory_bytes)} ({available} available){logs}",
        f"Open files: {needs.open_files:,} in each of {count(needs.engines, 'engine')}{allowed}",
    ]
    if needs.busiest_tasks_per_s is not None:
        lines.append(
            f"Busiest {BUSIEST_S:g} s: {needs.busiest_tasks_per_s:,.1f} tasks per second;"
            f" {'the embedded server' if resources.embedded else 'this machine'} keeps pace with about"
            f" {resources.tasks_per_s:,.0f}, if nothing else keeps it busy"
        )
    return lines


def compared_needs(
    workload: Workload, load: PlannedLoad | None, engines: int | None = None, directory: Path = Path("runs")
) -> tuple[Needs, Resources]:
    """Return a run's needs with this number of engines (None: the default), and this machine's resources.

    `directory` is the run's; `load` is None if unknown.
    """
    engines = engine_count(workload.scenario, engines, pin=False)
    resources = resources_for(workload.scenario, engines, directory)
    return needs_of(workload, engines, load), resources


def engine_count(scenario: Scenario, wanted: int | None, pin: bool) -> int:
    """Return the number of engines: the wanted one or, by default, one that suits the cores, which `pin` halves.

    Raises `ConfigError` for fewer than one, more than users, or several with a driver that needs a single process.
    """
    in_memory = needs_one_engine(scenario)
    if wanted is None:
        cores = usable_cores()
        return 1 if in_memory else engines_for(scenario.users, cores // 2 if pin else cores, scenario.senders)
    most = 1 if in_memory else scenario.users
    if not 1 <= wanted <= most:
        why = f" with protocol {in_memory}, whose mail system is in the engine" if in_memory else ""
        raise ConfigError(f"--engines: expected a number from 1 to {most}{why}, found {wanted}")
    return wanted
