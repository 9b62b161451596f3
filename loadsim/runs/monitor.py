"""Watch a server's machine without making load: write samples of probes to a timing log, for the analysis of a run.

The log goes to standard output: to a file, or to a reader at the other end of a connection.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import FileIO
from typing import Any

from loadsim.engine.clock import MonotonicClock
from loadsim.errors import ConfigError
from loadsim.model.ports import Services
from loadsim.model.terms import MONITOR_NAME
from loadsim.monitor.host import this_machine
from loadsim.monitor.monitor_log import open_monitor_log
from loadsim.monitor.probes import check_probes, open_probes, sampled
from loadsim.monitor.server_discovery import addresses_of, find_server, listening
from loadsim.monitor.system.wall_clock import clock_facts, wall_clock_sample
from loadsim.plugins import printing_to_stderr
from loadsim.processes.event_loop import background_tasks, calls_on_signal, run
from loadsim.runs.watcher import SILENT, Watcher
from loadsim.timinglog.header import MONITOR

WRITE_EACH_S = 1.0
"""The time between two writes: a kill loses at most the samples of this time."""

NOT_WRITTEN = "monitor: expected to write all samples, found: "

FACTS_EACH = 10
"""One write in this many includes the counts of samples and failures."""

Probes = Mapping[str, Mapping[str, Any]]
"""Settings of probes by name."""


def watch_server(probes: Probes, services: Services, name: str, *, watcher: Watcher = SILENT) -> None:
    """Sample probes on the services' machine each second, and write the samples to standard output, until a signal.

    `name` is the monitor's. Sampling also ends when the output has no reader left, or when standard input, a pipe or
    socket, is closed: the machine at the other end is then gone.

    Raises `ConfigError` for wrong names or settings, and for an output that cannot be written.
    """
    if not MONITOR_NAME.fullmatch(name):
        raise ConfigError(f"--name: expected a-z, 0-9 and -, at most 40 characters, found {name!r:.60}")
    if not probes:
        raise ConfigError("monitor: expected at least one probe (--probe host), found none")
    check_probes(MONITOR, probes)
    output = _standard_output()
    with printing_to_stderr():
        run(_watch(probes, services, name, output, watcher))


def _standard_output() -> FileIO:
    """Return a stream to the real standard output, out of reach of plug-ins that print. Raises `ConfigError`."""
    sys.stdout.flush()
    descriptor = os.dup(1)
    if os.isatty(descriptor):
        os.close(descriptor)
        raise ConfigError("monitor: expected a pipe or a file as standard output, found a terminal: add > NAME.tlog")
    os.set_blocking(descriptor, True)
    return FileIO(descriptor, "wb")


@contextmanager
def _calls_at_end_of_input(act: Callable[[], object]) -> Iterator[None]:
    """In the block, call `act` when the standard input ends, if it is a pipe or a socket. All input is discarded."""
    try:
        kind = stat.S_IFMT(os.fstat(0).st_mode)
    except OSError:  # closed before the start
        kind = 0
    if kind not in (stat.S_IFIFO, stat.S_IFSOCK):
        yield
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        with suppress(BlockingIOError):
            try:
                more = bool(os.read(0, 1 << 16))
            except ConnectionError:
                more = False
            if not more:
                loop.remove_reader(0)
                act()

    loop.add_reader(0, read)
    try:
        yield
    finally:
        loop.remove_reader(0)


async def _watch(probes: Probes, services: Services, name: str, output: FileIO, watcher: Watcher) -> None:
    """Open the probes and the log. Sample and write each second, until a signal or a failed write."""
    stopped = asyncio.Event()
    with calls_on_signal(stopped.set), _calls_at_end_of_input(stopped.set):
        opened = await open_probes(MONITOR, probes, services)
        named = tuple(replace(probe, name=f"{probe.name}@{name}") for probe in opened)
        try:
            log = open_monitor_log(name, output)
        except OSError as failure:
            raise ConfigError(f"{NOT_WRITTEN}{failure}") from None

        async def write_each_second() -> None:
            writes = 0
            while True:
                log.health(wall_clock_sample())
                if writes % FACTS_EACH == 0:
                    log.facts({"probes": counts()})
                writes += 1
                if failure := log.flush():
                    watcher.warning(f"samples not written: {failure}")
                    stopped.set()
                await asyncio.sleep(WRITE_EACH_S)

        try:
            log.facts({**this_machine(), **clock_facts(), **_place(services)})
            with sampled(named, log, MonotonicClock()) as counts:
                async with background_tasks(write_each_second()):
                    await stopped.wait()
            log.facts({"ended": "completed"})
        finally:
            try:
                log.close()
            except OSError as failure:
                raise ConfigError(f"{NOT_WRITTEN}{failure}") from None


def _place(services: Services) -> dict[str, Any]:
    """Return True if the server is on this machine; None if its address is here but a port has no listener."""
    endpoints = services.endpoints.values()
    here = find_server(*endpoints).here
    listens = all(any(listening(addresses_of(each.host), each.port)) for each in endpoints)
    return {"server_here": here if not here or listens else None}
