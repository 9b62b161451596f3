"""Keeping a server on this machine and the generator apart, each on cores of its own (`--pin`)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loadsim.errors import ConfigError
from loadsim.monitor.server_discovery import ServerPlace, with_descendants

PRECEDENCE = 1
"""The lowest of the real-time priorities: before everything that has none."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Who may use which cores; `first` says whether the generator goes before whatever else runs on its own."""

    generator: Sequence[int]
    server: Sequence[int]
    first: bool


def split(cpus: Sequence[int], engines: int) -> tuple[list[int], list[int]]:
    """The generator's cores and the server's: the last for us, one for each engine, but never more than half of them.

    Raises `ConfigError` for fewer than two.
    """
    if len(cpus) < 2:
        raise ConfigError(f"--pin: expected at least 2 cores to keep server and generator apart, found {len(cpus)}")
    ours = min(engines, len(cpus) // 2)
    return sorted(cpus)[-ours:], sorted(cpus)[:-ours]


@contextmanager
def kept_apart(place: ServerPlace, engines: int) -> Iterator[Cores]:
    """Keep the generator (this process, and what it starts from now on) and the server apart while the block lasts.

    What the server starts from now on stays with it; afterwards everybody may run where they could before. As root the
    generator gets real-time precedence on its cores, too: its clocks must not wait for whatever else runs there.
    Raises `ConfigError` when there is one core only, or the server's processes cannot be seen or moved.
    """
    own_cpus = os.sched_getaffinity(0)
    ours, servers = split(sorted(own_cpus), engines)
    movable = place.processes.keys() - {os.getpid()}
    if not movable:
        raise ConfigError("--pin: expected to see the server's processes, found none: root sees all of them")
    before = {}
    for process in movable:
        with suppress(ProcessLookupError):
            before[process] = os.sched_getaffinity(process)
    scheduling = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        for _ in range(2):  # what was started while we went through them descends from one that has been moved
            for process, name in with_descendants(before).items():
                _move(process, name, servers)
        os.sched_setaffinity(0, ours)
        yield Cores(ours, servers, first=_go_first())
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, *scheduling)
        os.sched_setaffinity(0, own_cpus)
        for process, cpus in before.items():
            for each in with_descendants([process]):  # also what was started meanwhile
                with suppress(OSError):
                    _move_threads(each, before.get(each, cpus))


def describe(cores: Cores, place: ServerPlace) -> str:
    """What was done, on one line."""
    return (
        f"Pinned: the generator to {_named(cores.generator)}{', with real-time precedence' if cores.first else ''};"
        f" {place.names} ({len(place.processes)} processes) to {_named(cores.server)}"
    )


def _named(cpus: Sequence[int]) -> str:
    return f"core{'s' if len(cpus) > 1 else ''} {', '.join(map(str, cpus))}"


def _move(process: int, name: str, cpus: Sequence[int]) -> None:
    try:
        _move_threads(process, cpus)
    except (ProcessLookupError, FileNotFoundError):
        pass  # it has ended
    except OSError as failure:
        raise ConfigError(
            f"--pin: expected to be allowed to move {name} (process {process}), found: {failure.strerror}: root is"
        ) from None


def _move_threads(process: int, cpus: Sequence[int] | set[int]) -> None:
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cpus)


def _go_first() -> bool:
    """Give this process, and what it starts, precedence; False when it may not have it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRECEDENCE))
    except PermissionError:
        return False
    return True
