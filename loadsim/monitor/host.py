"""A load-generating machine: runs its engines to their end, and logs samples of the machine and its probes."""

from __future__ import annotations

import asyncio
import platform
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from loadsim.engine.clock import MonotonicClock
from loadsim.engine.coordinator import Coordinator
from loadsim.engine.run_log import RunLog
from loadsim.errors import ConfigError, machine_failures
from loadsim.model.ports import Clock
from loadsim.monitor.host_probe import ReadText, read_proc
from loadsim.monitor.system.core_times import core_times
from loadsim.monitor.system.filesystems import run_storage
from loadsim.monitor.system.wall_clock import clock_facts
from loadsim.processes.event_loop import background_tasks, calls_on_signal
from loadsim.provisioning.hold import Hold
from loadsim.timinglog.facts import ACCOUNTS_TAKEN, EarlyEnd
from loadsim.timinglog.writer import TimingLogWriter

LOG_NAME = "machine"
"""The engine's name in the machine's log, in the file's name and header."""


def tcp_counters(snmp: str) -> dict[str, int]:
    """Return the TCP counters in /proc/net/snmp by their names in RFC 4022 (`OutSegs`, `RetransSegs`)."""
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:"))
    return dict(zip(names, map(int, values), strict=True))


class Machine:
    """Takes samples of this machine. `read` returns a file of /proc by name; raises `OSError` if it is missing."""

    def __init__(self, read: ReadText = read_proc) -> None:
        self._read = read
        self._cores = core_times(read("stat"))
        self._tcp = tcp_counters(read("net/snmp"))

    def take(self) -> dict[str, Any]:
        """Return a sample covering the time since the last one. The timing log's page documents the keys."""
        before, self._cores = self._cores, core_times(self._read("stat"))
        tcp_before, self._tcp = self._tcp, tcp_counters(self._read("net/snmp"))
        # A core switched on meanwhile has no earlier value.
        passed = {name: times - before[name] for name, times in self._cores.items() if name in before}
        whole = passed.pop("cpu")
        return {
            "core_shares": [_share(core.busy, core.total) for core in passed.values()],
            "cpu_share": _share(whole.busy, whole.total),
            "stolen_share": _share(whole.stolen, whole.total),
            "memory_available_bytes": psutil.virtual_memory().available,
            "segments_sent": self._tcp["OutSegs"] - tcp_before["OutSegs"],
            "segments_sent_again": self._tcp["RetransSegs"] - tcp_before["RetransSegs"],
        }


LIBRARIES = ("aioimaplib", "numpy", "uvloop")
"""Libraries that may affect the measured times."""


def this_machine() -> dict[str, Any]:
    """Return this machine's processor, memory and system, Python and libraries; None for unknown values."""
    system = f"{platform.system()} {platform.release()}"
    with suppress(OSError):
        system += f", {platform.freedesktop_os_release()['PRETTY_NAME']}"
    return {
        "processor": _processor() or platform.machine() or None,
        "memory_bytes": psutil.virtual_memory().total or None,
        "system": system,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": {name: installed for name in LIBRARIES if (installed := _installed(name))},
    }


def _processor() -> str | None:
    with suppress(OSError):
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
        return model and model[1].strip()
    return None


def _installed(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0


@contextmanager
def machine_log(directory: Path, header: Mapping[str, Any]) -> Iterator[TimingLogWriter]:
    """Yield the machine's log, a new file next to its engines' logs; `header` is one of theirs.

    Raises `ConfigError` if the file cannot be created.
    """
    begun = {"wall_clock_start": datetime.now(UTC).isoformat(), "engine": LOG_NAME, "engine_users": 0, "hand": None}
    path = directory / f"{header['client']}.{LOG_NAME}.tlog"
    with machine_failures(ConfigError):
        directory.mkdir(exist_ok=True)  # a monitor's file may be in it
        log = TimingLogWriter(path, {**header, **begun}, time.monotonic_ns())
        log.facts({"run_file_system": run_storage(directory)})
        log.facts(clock_facts())
    try:
        yield log
    finally:
        with suppress(OSError):  # a full disk: only the machine's own figures are lost
            log.close()


@asynccontextmanager
async def watched_machine(
    log: RunLog,
    clock: Clock,
    start_ns: Callable[[], int],
    facts: Mapping[str, Any],
    more: Callable[[], Mapping[str, Any]] = dict,
) -> AsyncIterator[None]:
    """Write `facts` about this machine to its log, and a sample each second during the block.

    `start_ns` returns the common start, 0 until it is known. `more` returns further values for each sample.
    """

    async def sample_each_second(machine: Machine) -> None:
        started = False
        while True:
            await asyncio.sleep(1)
            if start_ns() and not started:
                started = True
                log.facts({"start_ns": start_ns()})
            log.health({"at_ns": clock.now_ns(), **machine.take(), **more()})
            log.gather()
            log.write()

    log.facts(facts)
    samplers = []
    with suppress(OSError):  # a system without these files has no samples
        samplers.append(sample_each_second(Machine()))
    async with background_tasks(*samplers):
        yield
    log.facts({"ended": "completed"})


async def run_engines(
    coordinator: Coordinator,
    log: RunLog,
    probing: AbstractContextManager[object],
    facts: Mapping[str, Any],
    hold: Hold,
    settle: Callable[[], Awaitable[None]],
    more: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Run a coordinator's engines until they end or a signal stops them. Meanwhile, write the machine's log.

    `probing` samples probes (`probes.sampled`), `facts` and `more` are those of `watched_machine`. At the end, `settle`
    renews or releases the hold on the accounts, which shows whether it was lost.
    """
    with calls_on_signal(coordinator.stop), probing:
        async with watched_machine(log, MonotonicClock(), lambda: coordinator.start_ns, facts, more):
            hold.used = True
            try:
                await coordinator.run()
            finally:
                if coordinator.early_end is not None:
                    log.facts(coordinator.early_end.facts)
        await settle()
    if hold.lost:
        log.facts(EarlyEnd(ACCOUNTS_TAKEN, hold.lost).facts)
