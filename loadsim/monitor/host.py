"""How a machine is while load is made on it, each second: cores, memory, TCP segments that had to be sent again.

Everything comes from files of /proc that stay open; a sample takes about a tenth of a millisecond.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from loadsim.engine.run_log import RunLog
from loadsim.model.ports import Clock
from loadsim.monitor.filesystems import run_storage
from loadsim.timinglog.writer import TimingLogWriter

LOG_NAME = "machine"
"""What stands in the place of an engine: in the name of the machine's log, and in its header."""

FILES = ("/proc/stat", "/proc/meminfo", "/proc/loadavg", "/proc/net/snmp", "/proc/net/sockstat")
LONGEST_BYTES = 1 << 20
"""No file of these is as long, on however many cores."""


@dataclass(frozen=True, slots=True)
class CoreTime:
    """What a core has done since the machine was started, in ticks; stolen is what another machine on the same
    hardware did with it."""

    busy: int
    stolen: int
    idle: int

    def __sub__(self, before: CoreTime) -> CoreTime:
        return CoreTime(self.busy - before.busy, self.stolen - before.stolen, self.idle - before.idle)

    @property
    def total(self) -> int:
        """All of it."""
        return self.busy + self.stolen + self.idle


def core_times(stat: str) -> dict[str, CoreTime]:
    """By name, the cores in /proc/stat, and their sum as `cpu` (proc_stat(5)). Waiting for a disk is idle."""
    times = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu"):
            # guest time stands in `user` already
            user, nice, system, idle, io_wait, interrupts, soft_interrupts, stolen = map(int, fields[:8])
            busy = user + nice + system + interrupts + soft_interrupts
            times[name] = CoreTime(busy, stolen, idle + io_wait)
    return times


def tcp_counters(snmp: str) -> dict[str, int]:
    """The counters of TCP in /proc/net/snmp, by the names of RFC 4022 (`OutSegs`, `RetransSegs`)."""
    names, values = (line.split()[1:] for line in snmp.splitlines() if line.startswith("Tcp:"))
    return dict(zip(names, map(int, values), strict=True))


def _number_after(text: str, *words: str) -> int:
    """The first number after words that follow each other somewhere before it."""
    for word in words:
        text = text[text.index(word) + len(word) :]
    return int(text.split(maxsplit=1)[0])


class OpenFiles:
    """Reads files that stay open, from their beginning each time."""

    def __init__(self, paths: tuple[str, ...] = FILES) -> None:
        self._descriptors = {path: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths}

    def __call__(self, path: str) -> str:
        return os.pread(self._descriptors[path], LONGEST_BYTES, 0).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


class Machine:
    """Takes samples of this machine; `read` gives the text of a file of /proc."""

    def __init__(self, read: Callable[[str], str]) -> None:
        self._read = read
        self._cores = core_times(read("/proc/stat"))
        self._tcp = tcp_counters(read("/proc/net/snmp"))

    def take(self) -> dict[str, Any]:
        """How it was since the last take; the keys are documented with the timing log."""
        before, self._cores = self._cores, core_times(self._read("/proc/stat"))
        tcp_before, self._tcp = self._tcp, tcp_counters(self._read("/proc/net/snmp"))
        # a core that was switched on or off meanwhile has no past to be compared with
        passed = {name: times - before[name] for name, times in self._cores.items() if name in before}
        whole = passed.pop("cpu")
        return {
            "core_shares": [_share(core.busy, core.total) for core in passed.values()],
            "cpu_share": _share(whole.busy, whole.total),
            "stolen_share": _share(whole.stolen, whole.total),
            "load_1min": float(self._read("/proc/loadavg").split(maxsplit=1)[0]),
            "memory_available_bytes": _number_after(self._read("/proc/meminfo"), "MemAvailable:") * 1024,
            "tcp_sockets": _number_after(self._read("/proc/net/sockstat"), "TCP:", "inuse"),
            "segments_sent": self._tcp["OutSegs"] - tcp_before["OutSegs"],
            "segments_sent_again": self._tcp["RetransSegs"] - tcp_before["RetransSegs"],
        }


LIBRARIES = ("aioimaplib", "aiosmtplib", "numpy", "uvloop")
"""What may have a part in the times, beside Python itself."""


def this_machine() -> dict[str, Any]:
    """What this machine is, for the record: its processor, memory and system, Python and libraries; None is unknown."""
    system = f"{platform.system()} {platform.release()}"
    with suppress(OSError):
        system += f", {platform.freedesktop_os_release()['PRETTY_NAME']}"
    return {
        "processor": _after("/proc/cpuinfo", "model name") or platform.machine() or None,
        "memory_bytes": int((_after("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) * 1024 or None,
        "system": system,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libraries": {name: found for name in LIBRARIES if (found := _installed(name))},
    }


def _after(path: str, key: str) -> str | None:
    """What stands behind the first `key:` of a file of /proc."""
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() == key:
                return value.strip()
    return None


def _installed(name: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0


def open_machine_log(directory: Path, header: Mapping[str, Any]) -> TimingLogWriter:
    """The log of this machine, beside those of its engines; `header` is that of one of them. Raises `OSError`."""
    begun = {"wall_clock_start": datetime.now(UTC).isoformat(), "engine": LOG_NAME, "engine_users": 0, "hand": None}
    path = directory / f"{header['client']}.{LOG_NAME}.tlog"
    log = TimingLogWriter(path, {**header, **begun}, time.monotonic_ns())
    log.facts({"run_file_system": run_storage(directory)})
    return log


@asynccontextmanager
async def watched_machine(
    log: RunLog,
    clock: Clock,
    start_ns: Callable[[], int],
    facts: Mapping[str, Any],
    look: Callable[[], Mapping[str, Any]],
    beside: Callable[[], Mapping[str, Any]] = dict,
) -> AsyncIterator[None]:
    """Write a sample of this machine into its log each second, as long as the block lasts, and `facts` about it.

    `start_ns` says when the common start was, or 0 before it has come; `look` finds facts that can be seen then only;
    `beside` is asked what else stands in the next sample.
    """
    log.facts(facts)
    try:
        async with AsyncExitStack() as stack:
            with suppress(OSError):  # a machine that shows nothing of itself is not watched
                machine = Machine(stack.enter_context(OpenFiles()))
                group = await stack.enter_async_context(asyncio.TaskGroup())
                watching = _watch(machine, log, clock, start_ns, look, beside)
                stack.callback(group.create_task(watching).cancel)
            yield
    except BaseExceptionGroup as failures:  # what went wrong in the block is the block's, not the group's
        raise failures.exceptions[0] from None
    log.facts({"ended": "completed"})


async def _watch(
    machine: Machine,
    log: RunLog,
    clock: Clock,
    start_ns: Callable[[], int],
    look: Callable[[], Mapping[str, Any]],
    beside: Callable[[], Mapping[str, Any]],
) -> None:
    started = False
    while True:
        await asyncio.sleep(1)
        if start_ns() and not started:
            started = True
            log.facts({"start_ns": start_ns()})
            log.facts(look())
        log.health({"at_ns": clock.now_ns(), **machine.take(), **beside()})
        log.gather()
        log.write()
