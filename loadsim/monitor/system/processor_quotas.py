"""Processor quotas of the control groups that processes are in, such as containers: how much of a quota they use.

Sources: the kernel's documentation of control groups, version 2 (`cpu.max`, `cpu.stat`) and version 1
(`cpu.cfs_quota_us`, `cpu.stat`, `cpuacct.usage`), and of CFS bandwidth control (`nr_throttled`, `throttled_time`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadsim.control_groups import MOUNTED, groups_of

FIND_EACH_NS = 30 * 10**9
"""A group that processes joined, or a quota that was set, is found at most this late."""


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The counters of a control group with a quota of this many cores. `used_s` is None if it is not counted."""

    at_ns: int
    cores: float
    periods: int
    throttled_periods: int
    throttled_s: float
    used_s: float | None


def quota_cores(group: Path) -> float | None:
    """Return the cores that a control group may keep busy; None without a quota."""
    with suppress(OSError, ValueError):
        quota_us, period_us = (group / "cpu.max").read_text().split()
        return None if quota_us == "max" else int(quota_us) / int(period_us)
    with suppress(OSError, ValueError):
        quota, period = (int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        return quota / period if quota > 0 else None
    return None


def quota_use(group: Path, counted: Path, at_ns: int) -> QuotaUse | None:
    """Read the counters of a control group; None if it has no quota, or has gone.

    `counted` is the directory of version 1 that counts its CPU time.
    """
    cores = quota_cores(group)
    if cores is None:
        return None
    with suppress(OSError, ValueError, KeyError):
        stat = {name: int(number) for name, number in map(str.split, (group / "cpu.stat").read_text().splitlines())}
        throttled_s = stat["throttled_usec"] / 1e6 if "throttled_usec" in stat else stat["throttled_time"] / 1e9
        used_s = stat["usage_usec"] / 1e6 if "usage_usec" in stat else _used_s(counted)
        return QuotaUse(at_ns, cores, stat["nr_periods"], stat["nr_throttled"], throttled_s, used_s)
    return None


def _used_s(counted: Path) -> float | None:
    """Return the CPU time of a group of version 1; None if the kernel does not count it."""
    with suppress(OSError, ValueError):
        return int((counted / "cpuacct.usage").read_text()) / 1e9
    return None


def _counted(process: Path, mounted: Path) -> Mapping[Path, Path]:
    """Return the control groups of a process, each with the directory that counts its CPU time.

    Version 1 may count it in a hierarchy of its own, where container managers make groups of the same names. Under
    other names, it is that of other processes. `process` is its /proc/PID/cgroup.
    """
    groups, counting = (list(groups_of(controller, process, mounted)) for controller in ("cpu", "cpuacct"))
    same = _names(groups, mounted) == _names(counting, mounted)
    return dict(zip(groups, counting if same else groups, strict=True))


def _names(groups: Sequence[Path], mounted: Path) -> list[Sequence[str]]:
    """Return the names of groups of version 1, each within its hierarchy."""
    return [group.relative_to(mounted).parts[1:] for group in groups]


def quota_figures(before: QuotaUse, now: QuotaUse) -> dict[str, float]:
    """Return how near a control group came to its quota; nothing if its counters were reset."""
    passed_s = (now.at_ns - before.at_ns) / 1e9
    periods, throttled = now.periods - before.periods, now.throttled_periods - before.throttled_periods
    throttled_s = now.throttled_s - before.throttled_s
    if passed_s <= 0 or periods < 0 or throttled < 0 or throttled_s < 0:
        return {}
    figures = {
        "quota_cores": now.cores,
        # An idle group has no periods.
        "quota_throttled_share": min(1.0, throttled / periods) if periods else 0.0,
        "quota_throttled_cores": throttled_s / passed_s,
    }
    if before.used_s is not None and now.used_s is not None and now.used_s >= before.used_s:
        # A group may save up a burst, and the kernel hands out the quota in slices.
        figures["quota_busy_share"] = min(1.0, (now.used_s - before.used_s) / passed_s / now.cores)
    return figures


class ProcessorQuotas:
    """Samples the control groups of processes, and of those above them.

    `mounted` has the hierarchies, and `processes` a directory for each process, with its file `cgroup`.
    """

    def __init__(
        self,
        mounted: Path = MOUNTED,
        now_ns: Callable[[], int] = time.monotonic_ns,
        processes: Path = Path("/proc"),
    ) -> None:
        self._mounted = mounted
        self._processes = processes
        self._now_ns = now_ns
        self._groups: Mapping[Path, Path] = {}
        self._find_again_ns = 0
        self._before: Mapping[Path, QuotaUse] = {}

    def take(self, processes: Collection[int]) -> dict[str, float]:
        """Return the figures of the control group that came nearest to its quota; none without a quota."""
        at_ns = self._now_ns()
        if processes and at_ns >= self._find_again_ns:
            self._find_again_ns = at_ns + FIND_EACH_NS
            all_groups: dict[Path, Path] = {}
            for number in processes:
                all_groups |= _counted(self._processes / str(number) / "cgroup", self._mounted)
            self._groups = {group: at for group, at in all_groups.items() if quota_cores(group) is not None}
        now = {group: use for group, at in self._groups.items() if (use := quota_use(group, at, at_ns)) is not None}
        found = [quota_figures(self._before[group], use) for group, use in now.items() if group in self._before]
        self._before = now
        return max(filter(None, found), key=_nearness, default={})


def _nearness(figures: Mapping[str, float]) -> float:
    return max(figures["quota_throttled_share"], figures.get("quota_busy_share", 0.0))
