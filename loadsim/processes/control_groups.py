"""The cores and the memory that this process may use: affinity, and the limits of its control groups.

Source: cgroups(7), and the kernel's documentation of control groups, version 2 (`cpu.max`, `memory.max`). A limit of a
group above ours is ours, too.
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
    """Return the least limit of memory in bytes, and the least that is left below a limit; None without a limit.

    The page cache of files is left, too: the kernel takes it back before a group runs out of memory.
    """
    limits, left = [], []
    for group in groups_of(own_groups, mounted):
        with suppress(OSError, ValueError):
            most, used_bytes = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
            limits.append(most)
            left.append(min(most, max(0, most - used_bytes + _file_cache_bytes(group))))
    return (min(limits), min(left)) if left else None


def _file_cache_bytes(group: Path) -> int:
    """Return the page cache of a group and those below it that the kernel can take back; 0 if it is unknown."""
    with suppress(OSError, ValueError):
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return sum(int(counts.get(f"{state}_file", 0)) for state in ("inactive", "active"))
    return 0


def groups_of(groups: Path, mounted: Path = MOUNTED) -> Iterator[Path]:
    """Yield the directories of a process's control group and of those above it.

    `groups` is its /proc/PID/cgroup. In a container, the directory of its own group may be the highest one that is
    mounted. Yields none for a process that has ended.
    """
    with suppress(OSError, ValueError):
        for line in groups.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            group = mounted / path.lstrip("/")
            if not controllers and ".." not in group.parts:  # else the group is of version 1
                yield from (each for each in (group, *group.parents) if each.is_relative_to(mounted))
