"""The cores and the memory that this process may use: affinity, and the limits of its control groups.

Source: cgroups(7), and the kernel's documentation of control groups, version 2 (`cpu.max`, `memory.max`). The limits of
parent groups also apply.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOUNTED = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores(mounted: Path = MOUNTED, own_groups: Path = OWN_GROUPS) -> int:
    """Return how many cores this process may keep busy, at least 1: a quota of 2.5 cores is 2."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in groups_of(own_groups, mounted):
        with suppress(OSError, ValueError):  # no limit: "max", or no such file
            quota_us, period_us = map(int, (group / "cpu.max").read_text().split())
            cores = min(cores, quota_us // period_us)
    return max(1, cores)


def memory_limits(mounted: Path = MOUNTED, own_groups: Path = OWN_GROUPS) -> tuple[int, int] | None:
    """Return the lowest memory limit, and the least memory left below any limit, in bytes; None if there are no limits.

    The page cache of files counts as left: the kernel reclaims it before a group runs out of memory.
    """
    limits, left = [], []
    for group in groups_of(own_groups, mounted):
        with suppress(OSError, ValueError):
            most, used_bytes = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
            limits.append(most)
            left.append(min(most, max(0, most - used_bytes + _file_cache_bytes(group))))
    return (min(limits), min(left)) if left else None


def _file_cache_bytes(group: Path) -> int:
    """Return the page cache that the kernel can reclaim from a group and its subgroups; 0 if unknown."""
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return sum(int(counts.get(f"{state}_file", 0)) for state in ("inactive", "active"))
    return 0


def groups_of(groups: Path, mounted: Path = MOUNTED) -> Iterator[Path]:
    """Yield the directories of a process's control group and its parent groups.

    `groups` is its /proc/PID/cgroup. In a container, its own group's directory may be the topmost one mounted. Yields
    nothing if the process has ended.
    """
    with suppress(OSError, ValueError):
        for line in groups.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            group = mounted / path.lstrip("/")
            if not controllers and ".." not in group.parts:  # otherwise it is a version 1 group
                yield from (path for path in (group, *group.parents) if path.is_relative_to(mounted))
