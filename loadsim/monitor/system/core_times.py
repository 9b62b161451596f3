"""Times of a machine's cores in /proc/stat, and their shares."""

from __future__ import annotations

from collections.abc import Iterable
from operator import sub
from typing import NamedTuple

ALL_CORES = "cpu"
"""The name of the sum of all cores."""


class CoreTime(NamedTuple):
    """A core's time since the machine started, in ticks; `stolen` went to another machine on the same hardware.

    `user` includes niced and guest time, `system` interrupts. In `io_wait`, a core is idle while waiting for a disk.
    """

    user: int
    system: int
    idle: int
    io_wait: int
    stolen: int

    def __sub__(self, before: CoreTime) -> CoreTime:
        return CoreTime(*map(sub, self, before))

    @property
    def busy(self) -> int:
        return self.user + self.system

    @property
    def total(self) -> int:
        return self.busy + self.idle + self.io_wait + self.stolen


def core_times(stat: str) -> dict[str, CoreTime]:
    """Return the cores' times in /proc/stat by name, with their sum as `ALL_CORES` (proc_stat(5))."""
    times = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu"):
            # `user` includes guest time
            user, nice, system, idle, io_wait, interrupts, soft_interrupts, stolen = map(int, fields[:8])
            times[name] = CoreTime(user + nice, system + interrupts + soft_interrupts, idle, io_wait, stolen)
    return times


def added(times: Iterable[CoreTime]) -> CoreTime:
    return CoreTime(*map(sum, zip(CoreTime(0, 0, 0, 0, 0), *times, strict=True)))


def busy_share(passed: CoreTime) -> float | None:
    """Return the share of time in which a core was busy; None if no tick has passed."""
    # While another machine has a core, it cannot be used.
    times = _not_negative(passed)
    return (times.busy + times.stolen) / times.total if times.total > 0 else None


def core_shares(passed: CoreTime) -> dict[str, float]:
    times = _not_negative(passed)
    if (busy := busy_share(times)) is None:
        return {}
    parts = {"user": times.user, "system": times.system, "iowait": times.io_wait, "steal": times.stolen}
    return {f"cpu_{name}_share": part / times.total for name, part in parts.items()} | {"cpu_busy_share": busy}


def _not_negative(passed: CoreTime) -> CoreTime:
    """Return a time without the decreases that `io_wait` may have (proc_stat(5))."""
    return passed._replace(idle=max(0, passed.idle), io_wait=max(0, passed.io_wait))
