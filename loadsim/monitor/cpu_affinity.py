"""Separate cores for the generator and for a server on this machine (`--pin`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.monitor.server_discovery import ServerPlace, with_descendants

REAL_TIME_PRIORITY = 1
"""The lowest real-time priority, which still takes precedence over all processes without one."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The generator's and the server's cores. With `real_time`, the generator has a real-time priority on its cores.

    With `apart`, the server was moved to its cores; otherwise permission was missing, and it may also run on the
    generator's.
    """

    generator: Sequence[int]
    server: Sequence[int]
    real_time: bool
    apart: bool = True


def split(cpus: Sequence[int], engines: int) -> tuple[list[int], list[int]]:
    """Return the generator's and the server's cores. The generator gets the last ones, one per engine, at most half.

    Raises `ConfigError` for fewer than two cores.
    """
    if len(cpus) < 2:
        raise ConfigError(f"--pin: expected at least 2 cores to keep server and generator apart, found {len(cpus)}")
    ours = min(engines, len(cpus) // 2)
    return sorted(cpus)[-ours:], sorted(cpus)[:-ours]


@contextmanager
def kept_apart(place: ServerPlace, engines: int) -> Iterator[Cores]:
    """Run the generator and the server on separate cores during the block, and restore their cores afterwards.

    The generator is this process; either side's children that start during the block inherit its cores. As root, the
    generator also gets a real-time priority, so that other processes on its cores do not delay its clocks. Server
    processes that cannot be seen or moved for lack of permission stay where they are. Raises `ConfigError` if there is
    only one core.
    """
    own_cpus = os.sched_getaffinity(0)
    ours, servers = split(sorted(own_cpus), engines)
    movable = place.processes.keys() - {os.getpid()}
    apart = bool(movable)
    before = {}
    for process in movable:
        with suppress(ProcessLookupError):
            before[process] = os.sched_getaffinity(process)
    scheduling = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        for _ in range(2):  # a process started during the first pass may descend from one not moved yet
            for process, name in with_descendants(before).items():
                apart &= _moved(process, name, servers)
        os.sched_setaffinity(0, ours)
        yield Cores(ours, servers, real_time=_take_real_time_priority(), apart=apart)
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, *scheduling)
        os.sched_setaffinity(0, own_cpus)
        for process, cpus in before.items():
            for member in with_descendants([process]):  # including those started meanwhile
                with suppress(OSError):
                    _move_threads(member, before.get(member, cpus))


def describe(cores: Cores, place: ServerPlace) -> str:
    generator = f"{_named(cores.generator)}{', with real-time priority' if cores.real_time else ''}"
    if cores.apart:
        count = len(place.processes)
        server = f"{place.names} ({count} process{'es' * (count != 1)})"
        return f"Pinned: the generator to {generator}; {server} to {_named(cores.server)}"
    return f"Pinned: only the generator, to {generator}; {place.names or 'the server'} may run there, too"


def _named(cpus: Sequence[int]) -> str:
    return f"core{'s' if len(cpus) > 1 else ''} {', '.join(map(str, cpus))}"


def _moved(process: int, name: str, cpus: Sequence[int]) -> bool:
    """Move a process. Return False if that is not permitted. Raises `ConfigError` if it cannot run on these cores."""
    try:
        _move_threads(process, cpus)
    except PermissionError:
        return False
    except (ProcessLookupError, FileNotFoundError):
        pass  # it has ended
    except OSError as failure:
        raise ConfigError(
            f"--pin: expected to move {name} (process {process}) to {_named(cpus)}, found: {failure.strerror}"
        ) from None
    return True


def _move_threads(process: int, cpus: Sequence[int] | set[int]) -> None:
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cpus)


def _take_real_time_priority() -> bool:
    """Give this process and its future children a real-time priority. Return False if that is not permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(REAL_TIME_PRIORITY))
    except PermissionError:
        return False
    return True


def leave_real_time_priority() -> None:
    """Drop the real-time priority of the calling thread, and of threads and processes that it will start.

    A thread that only watches must not delay the engines: at equal real-time priority, it would keep a core for as long
    as it works.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
