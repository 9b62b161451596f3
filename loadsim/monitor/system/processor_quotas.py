"""Processor quotas of processes' control groups, such as containers, and how much of each is used.

Source: the kernel's documentation of control groups, version 2 (`cpu.max`, `cpu.stat`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from loadsim.processes.control_groups import MOUNTED, groups_of

FIND_EACH_NS = 30 * 10**9
"""The longest time until a newly joined group, or a newly set quota, is found."""


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """The counters of a control group with a quota of this many cores."""

    at_ns: int
    cores: float
    periods: int
    throttled_periods: int
    throttled_s: float
    used_s: float


def quota_use(group: Path, at_ns: int) -> QuotaUse | None:
    """Read the counters of a control group; None if it has no quota, or is gone."""
    with suppress(OSError, ValueError, KeyError):
        quota_us, period_us = map(int, (group / "cpu.max").read_text().split())  # without a quota, "max"
        stat = {name: int(number) for name, number in map(str.split, (group / "cpu.stat").read_text().splitlines())}
        periods, throttled_periods = stat["nr_periods"], stat["nr_throttled"]
        throttled_s, used_s = stat["throttled_usec"] / 1e6, stat["usage_usec"] / 1e6
        return QuotaUse(at_ns, quota_us / period_us, periods, throttled_periods, throttled_s, used_s)
    return None


def quota_figures(before: QuotaUse, now: QuotaUse) -> dict[str, float]:
    """Return how close a control group came to its quota; nothing if its counters were reset."""
    passed_s = (now.at_ns - before.at_ns) / 1e9
    periods, throttled = now.periods - before.periods, now.throttled_periods - before.throttled_periods
    throttled_s, used_s = now.throttled_s - before.throttled_s, now.used_s - before.used_s
    if passed_s <= 0 or min(periods, throttled, throttled_s, used_s) < 0:
        return {}
    return {
        "quota_cores": now.cores,
        # An idle group has no periods.
        "quota_throttled_share": min(1.0, throttled / periods) if periods else 0.0,
        "quota_throttled_cores": throttled_s / passed_s,
        # A group may save up a burst, and the kernel grants the quota in slices.
        "quota_busy_share": min(1.0, used_s / passed_s / now.cores),
    }


class ProcessorQuotas:
    """Samples processes' control groups and their parent groups; `mounted` describes the hierarchy."""

    def __init__(self, mounted: Path = MOUNTED, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._mounted = mounted
        self._now_ns = now_ns
        self._groups: frozenset[Path] = frozenset()
        self._find_again_ns = 0
        self._before: Mapping[Path, QuotaUse] = {}

    def take(self, processes: Collection[int]) -> dict[str, float]:
        """Return the figures of the control group closest to its quota; none without a quota."""
        at_ns = self._now_ns()
        if processes and at_ns >= self._find_again_ns:
            self._find_again_ns = at_ns + FIND_EACH_NS
            files = (Path(f"/proc/{number}/cgroup") for number in processes)
            groups = {group for file in files for group in groups_of(file, self._mounted)}
            self._groups = frozenset(group for group in groups if quota_use(group, at_ns) is not None)
        now = {group: use for group in self._groups if (use := quota_use(group, at_ns)) is not None}
        figures_of = [quota_figures(self._before[group], use) for group, use in now.items() if group in self._before]
        self._before = now
        shares = itemgetter("quota_throttled_share", "quota_busy_share")
        return max(filter(None, figures_of), key=lambda figures: max(shares(figures)), default={})
