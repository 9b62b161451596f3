"""The `host` probe: processor, memory, disks and network of the machine it runs on.

Rates and shares cover the time since the last sample, by the kernel's counters and the monotonic clock. Memory and
network come from psutil, the rest from /proc, as psutil reports neither the time in a disk's queue nor core numbers.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services
from loadsim.monitor.process_groups import ProcessGroups, figure_name, find_processes, named_groups
from loadsim.monitor.system.core_times import ALL_CORES, CoreTime, busy_share, core_shares, core_times
from loadsim.monitor.system.disks import DiskCounters, chosen_disks, disk_counters, disk_figures
from loadsim.monitor.system.processor_quotas import ProcessorQuotas

PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}
"""The lines of each pressure stall information file. For the whole machine, `cpu`'s `full` has no meaning."""

PRESSURE_SHARES = frozenset(f"pressure_{name}_{line}_share" for name, lines in PRESSURE.items() for line in lines)

MOST_DISKS = 6
MOST_GROUPS = 10
"""With these limits, a sample has at most 102 figures."""

LOOPBACK = "lo"

ReadText = Callable[[str], str]
"""Returns a file of /proc by name. Raises `OSError`."""


def open_probe(services: Services, disks: str | None = None, groups: str | None = None) -> Probe:
    """Return the function that samples this machine.

    `disks` names disks and `groups` processes, separated by commas. Raises `ConfigError` if these are invalid, or if
    the system has no /proc.
    """
    named = named_groups(_names("groups", groups, MOST_GROUPS))
    wanted = _names("disks", disks, MOST_DISKS)
    try:
        interfaces = network_interfaces()
        chosen = chosen_disks(wanted, disk_counters(read_proc("diskstats")))
        mhz = nominal_mhz(read_proc("cpuinfo"))
        sources = Sources(chosen, interfaces, kernel_pressure(), network_speeds(interfaces), mhz)
        reading_of(read_proc, sources, 0)
    except OSError as error:
        raise ConfigError(f"probe host: expected the files of Linux's /proc, found {error}") from None
    return HostSampler(sources, ProcessGroups(find_processes(services), named)).sample


def _names(setting: str, names: str | None, most: int) -> list[str]:
    """Return the names in a setting. Raises `ConfigError` for anything but text with 1 to `most` names."""
    if names is None:
        return []
    listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else []
    if not 1 <= len(listed) <= most or not all(listed):
        expected = f"1 to {most} names separated by commas"
        raise ConfigError(f"probe host: {setting}: expected {expected}, found {names!r:.60}")
    return listed


def read_proc(name: str) -> str:
    """Return a file of /proc. Raises `OSError`."""
    return Path("/proc", name).read_text(encoding="ascii", errors="replace")


@dataclass(frozen=True, slots=True)
class Sources:
    """The disks, network interfaces and files of /proc/pressure that a probe samples.

    `speeds` has the bytes per second, in each direction, of interfaces whose speed is known. `core_mhz` is the
    nominal clock of a core; None if unknown.
    """

    disks: Sequence[str]
    interfaces: Sequence[str]
    pressure: Sequence[str]
    speeds: Mapping[str, float] = field(default_factory=dict)
    core_mhz: float | None = None


def nominal_mhz(cpuinfo: str, cpufreq: Path = Path("/sys/devices/system/cpu/cpu0/cpufreq")) -> float | None:
    """Return the nominal clock of a core; None if the system does not state it.

    With frequency scaling, `cpuinfo` has the clock of the moment, and `base_frequency` (the driver `intel_pstate`) the
    nominal one, in kHz. Without it, as on virtual machines, the clock in `cpuinfo` is nominal.
    """
    with suppress(OSError, ValueError):
        return int((cpufreq / "base_frequency").read_text(encoding="ascii")) / 1000 or None
    stated = re.search(r"^cpu MHz\s*: ([\d.]+)$", cpuinfo, re.MULTILINE)
    return float(stated[1]) or None if stated and not cpufreq.exists() else None


def network_interfaces(network: Path = Path("/sys/class/net")) -> tuple[str, ...]:
    """Return the physical interfaces or, if there are none, as in a container, all except loopback.

    Bridges, bonds, VLANs and tunnels pass their packets to hardware, and would count them twice.
    """
    every = sorted(path.name for path in network.iterdir()) if network.is_dir() else []
    hardware = [name for name in every if (network / name / "device").exists()]
    return tuple(hardware or (name for name in every if name != LOOPBACK))


def network_speeds(interfaces: Sequence[str]) -> dict[str, float]:
    """Return the speeds, in bytes per second, of interfaces that report one, which few virtual ones do."""
    stated = psutil.net_if_stats()
    return {name: stated[name].speed * 1e6 / 8 for name in interfaces if name in stated and stated[name].speed}


def kernel_pressure() -> tuple[str, ...]:
    """Return the files of /proc/pressure that this kernel has and this user may read."""
    readable = []
    for name in PRESSURE:
        try:
            read_proc(f"pressure/{name}")
        except OSError:  # even if it exists, it may be switched off
            continue
        readable.append(name)
    return tuple(readable)


@dataclass(frozen=True, slots=True)
class HostSample:
    """The machine's counters and levels at one moment.

    `times` is keyed by core; `counters` by figure, which is the increase per second, and source: an interface, or "".
    `disks` is keyed by the disks' names in figures.
    """

    at_ns: int
    times: Mapping[str, CoreTime]
    counters: Mapping[tuple[str, str], float]
    disks: Mapping[str, DiskCounters]
    levels: Mapping[str, float]


def reading_of(read: ReadText, sources: Sources, at_ns: int) -> HostSample:
    """Read the machine's files. Raises `OSError` or `ValueError` if one is missing. Disks may be missing."""
    times = core_times(read("stat"))
    memory = psutil.virtual_memory()
    counters: dict[tuple[str, str], float] = dict(network_counters(sources.interfaces))
    for name in sources.pressure:
        for line in PRESSURE[name]:
            # Seconds stalled per second: a share.
            stalls = read(f"pressure/{name}")
            total_us = stalls[stalls.index(line) :].partition("total=")[2].split(maxsplit=1)[0]
            counters[f"pressure_{name}_{line}_share", ""] = int(total_us) / 1e6
    levels = {
        "cores": len(times) - 1,
        "memory_available_bytes": memory.available,
        "memory_used_share": 1 - memory.available / memory.total,
        **({} if sources.core_mhz is None else {"core_mhz": sources.core_mhz}),
    }
    all_disks = disk_counters(read("diskstats")) if sources.disks else {}
    disks = {figure_name(name): all_disks[name] for name in sources.disks if name in all_disks}  # others were removed
    return HostSample(at_ns, times, counters, disks, levels)


def network_counters(interfaces: Sequence[str]) -> Iterator[tuple[tuple[str, str], int]]:
    for name, counted in psutil.net_io_counters(pernic=True, nowrap=False).items():
        if name in interfaces:
            yield ("network_received_bytes_per_s", name), counted.bytes_recv
            yield ("network_sent_bytes_per_s", name), counted.bytes_sent


def rates(before: Mapping[tuple[str, str], float], now: Mapping[tuple[str, str], float], s: float) -> dict[str, float]:
    """Return each figure's increase per second, summed over its sources.

    A figure with a counter that decreased, such as a recreated interface's, is left out.
    """
    increases: defaultdict[str, float] = defaultdict(float)
    reset = set()
    for (figure, source), counter in now.items():
        increase = counter - before.get((figure, source), counter)
        increases[figure] += increase
        if increase < 0:
            reset.add(figure)
    return {figure: increase / s for figure, increase in increases.items() if figure not in reset}


def busiest_core(before: Mapping[str, CoreTime], now: Mapping[str, CoreTime]) -> dict[str, float]:
    """Return the busiest core's busy share; a core switched on since has none."""
    known = now.keys() & before.keys() - {ALL_CORES}
    shares = [share for name in known if (share := busy_share(now[name] - before[name])) is not None]
    return {"busiest_core_busy_share": max(shares)} if shares else {}


def network_busy_share(before: HostSample, now: HostSample, speeds: Mapping[str, float]) -> dict[str, float]:
    """Return the busiest interface's share of its speed, receiving or sending; nothing if no speed is known."""
    passed_s = (now.at_ns - before.at_ns) / 1e9
    shares = [
        (now.counters[key] - before.counters[key]) / passed_s / speed
        for name, speed in speeds.items()
        for key in (("network_received_bytes_per_s", name), ("network_sent_bytes_per_s", name))
        if key in now.counters and key in before.counters
    ]
    # A negative increase means that a counter was reset.
    return {"network_busy_share": min(1.0, max(shares))} if shares and min(shares) >= 0 else {}


def figures_between(before: HostSample, now: HostSample, speeds: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the rates and shares between two readings; none if no time has passed.

    `speeds` are the network interfaces', in bytes per second.
    """
    passed_ns = now.at_ns - before.at_ns
    if passed_ns <= 0:
        return {}
    figures = core_shares(now.times[ALL_CORES] - before.times[ALL_CORES])
    figures |= rates(before.counters, now.counters, passed_ns / 1e9)
    figures |= busiest_core(before.times, now.times) | network_busy_share(before, now, speeds or {})
    for name in figures.keys() & PRESSURE_SHARES:
        # The kernel adds a stall when part of it ends; within milliseconds, that may exceed the time passed.
        figures[name] = min(1.0, figures[name])
    for name in now.disks.keys() & before.disks.keys():
        for figure, value in disk_figures(before.disks[name], now.disks[name], passed_ns / 1e6).items():
            figures[f"disk_{name}_{figure}"] = value
    return figures


class HostSampler:
    """Samples the machine. The first sample has only levels."""

    def __init__(self, sources: Sources, groups: ProcessGroups) -> None:
        self._sources = sources
        self._groups = groups
        self._quotas = ProcessorQuotas()
        self._before: HostSample | None = None

    def sample(self) -> dict[str, float]:
        """Return the figures since the last sample. Raises `OSError` or `ValueError` if something cannot be read."""
        now = reading_of(read_proc, self._sources, time.monotonic_ns())
        figures = {**now.levels, **(figures_between(self._before, now, self._sources.speeds) if self._before else {})}
        self._before = now
        figures |= self._groups.take(now.times)
        figures |= self._quotas.take(self._groups.watched)
        return {name: float(f"{value:.6g}") for name, value in figures.items()}
