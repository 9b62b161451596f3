"""The cores on which the server's processes may run, and their use.

`taskset`, `--pin`, systemd's `CPUAffinity=` and a control group's cpuset limit a process to some of its machine's
cores. The kernel keeps one set per thread that reflects all these limits (sched_getaffinity(2), cpuset(7)).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress

from loadsim.monitor.system.core_times import CoreTime, added, core_shares
from loadsim.monitor.system.processes import Process

CoreSet = frozenset[int]
"""The numbers of the cores on which a thread may run."""


def core_sets(number: int, process: Process) -> frozenset[CoreSet]:
    """Return the distinct core sets of a process's threads; none if it ended. Raises `OSError` if they are hidden."""
    sets = set()
    with suppress(ProcessLookupError, FileNotFoundError):
        # Most processes have one thread; listing threads costs ten times as much as asking for its cores.
        threads = [number] if process.threads == 1 else map(int, os.listdir(f"/proc/{number}/task"))  # noqa: PTH208
        for thread in threads:
            with suppress(ProcessLookupError):
                sets.add(frozenset(os.sched_getaffinity(thread)))
    return frozenset(sets)


def core_name(number: int) -> str:
    return f"cpu{number}"


class ServerCores:
    """Follows the cores of the server's processes across readings."""

    def __init__(self) -> None:
        self._cores: CoreSet = frozenset()
        self._times: Mapping[str, CoreTime] = {}

    def take(
        self,
        processes: Mapping[int, Process],
        server: Set[int],
        named: Set[int],
        loadsim: Set[int],
        times: Mapping[str, CoreTime],
        ticks: Mapping[int, int],
        ticks_per_core: float,
    ) -> dict[str, float]:
        """Return the figures since the last reading; none if the server's cores are unknown.

        `named` are the processes in named groups, `times` those of each core, `ticks` those of each process since the
        last reading. In that time, a core has `ticks_per_core`. If the server's cores have changed, only levels are
        known.
        """
        before_cores, before = self._cores, self._times
        self._cores, self._times = frozenset(), times
        try:
            sets = {number: core_sets(number, processes[number]) for number in server | named | loadsim}
        except OSError:  # a security module hides them
            return {}
        cores = _union(sets[number] for number in server)
        names = [core_name(core) for core in cores]
        # A container's /proc/stat may number its cores from 0 (lxcfs). If only the server is pinned, its numbers may
        # appear there, but not the others'.
        if not cores or not all(core_name(core) in times for core in _union(sets.values())):
            return {}
        self._cores = cores
        different = frozenset().union(*(sets[number] for number in server | named))
        figures: dict[str, float] = {"server_cores": len(cores), "server_core_sets": len(different)}
        if not ticks or cores != before_cores or not all(name in before for name in names):
            return figures
        passed = added(times[name] - before[name] for name in names)
        if not (shares := core_shares(passed)):
            return figures
        # For processes that may also run elsewhere, the share on these cores is unknown: they count as others.
        only_here = {number for number, own in sets.items() if number in server or (own and _union([own]) <= cores)}
        of_groups = sum(ticks.get(number, 0) for number in only_here)
        return figures | {
            "server_cores_busy_share": shares["cpu_busy_share"],
            "server_cores_steal_share": shares["cpu_steal_share"],
            "server_cores_taken_by_others": max(0, passed.busy - of_groups) / ticks_per_core,
        }


def _union(sets: Iterable[Collection[CoreSet]]) -> CoreSet:
    return frozenset(core for alternatives in sets for cores in alternatives for core in cores)
