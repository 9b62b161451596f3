"""Cores and memory used by groups of processes: the server's, loadsim's own, others by name, and all the rest.

Reading a process costs 10 to 20 us, so with hundreds of processes, readings are less frequent than samples. Their
median cost counts, so that an unusually long one leaves no gap.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import median_low

from loadsim.errors import ConfigError
from loadsim.model.ports import Endpoint, Services
from loadsim.monitor.server_cores import ServerCores
from loadsim.monitor.server_discovery import addresses_of, find_server, is_own
from loadsim.monitor.system.core_times import ALL_CORES, CoreTime
from loadsim.monitor.system.processes import BusiestThread, ProcessTimes

SERVER, LOADSIM, OTHERS = "server", "loadsim", "others"

READING_SHARE = 0.008
FINDING_SHARE = 0.001
"""The largest share of a core for reading processes, and for finding the server's again."""

LAST_READINGS = 5
"""The number of readings whose median cost decides when the next one is due."""

FIND_EACH_NS = 30 * 10**9
"""The longest time until a server that was reloaded, or joined by another instance, is found again."""

FORWARDERS = frozenset(("docker-proxy", "rootlessport", "slirp4netns", "pasta", "pasta.avx2", "ssh"))
"""Programs that listen on behalf of a server in a container or on another machine."""

LONGEST_COMMAND = 15
"""The kernel keeps this many bytes of a process's name (proc_pid_comm(5))."""

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def find_processes(services: Services) -> Callable[[], frozenset[int]]:
    """Return a function that finds the server's processes, or none unless all are visible.

    Names are resolved once, here: later, a failing name server would hide the server.
    """
    endpoints = [
        Endpoint(str(address), port)
        for host, port in dict.fromkeys((service.host, service.port) for service in services.endpoints.values())
        for address in sorted(addresses_of(host), key=str)
        if is_own(address)
    ]

    def find() -> frozenset[int]:
        listening = [find_server(endpoint).processes for endpoint in endpoints]
        names = {number: name for processes in listening for number, name in processes.items()}
        # A server in this process, as in tests, cannot be told apart from loadsim.
        if not all(listening) or os.getpid() in names or FORWARDERS.intersection(names.values()):
            return frozenset()
        return frozenset(names)

    return find if endpoints else frozenset


class ProcessGroups:
    """Reads the groups. `find` returns the server's processes; `named` maps groups to process names."""

    def __init__(
        self,
        find: Callable[[], frozenset[int]],
        named: Mapping[str, str],
        now_ns: Callable[[], int] = time.monotonic_ns,
        cost_ns: Callable[[], int] = time.thread_time_ns,
        times: ProcessTimes | None = None,
        busiest_thread: BusiestThread | None = None,
    ) -> None:
        self._find = find
        self._named = named
        self._now_ns = now_ns
        self._cost_ns = cost_ns
        self._times = times or ProcessTimes()
        self._busiest_thread = busiest_thread or BusiestThread()
        self._ticks_of_others = Counter[str]()
        self._server: set[int] = set()
        self._loadsim = {os.getpid()}
        self._read_at_ns = self._read_again_ns = 0
        self._find_again_ns = self._find_at_latest_ns = 0
        self._costs_ns: deque[int] = deque(maxlen=LAST_READINGS)
        self._busy_ticks = 0
        self._server_cores = ServerCores()

    @property
    def watched(self) -> frozenset[int]:
        """The processes of the server and of the named groups at the last reading."""
        named = (number for number, process in self._times.processes.items() if process.name in self._named.values())
        return frozenset((*self._server, *named))

    def take(self, times: Mapping[str, CoreTime]) -> dict[str, float]:
        """Return the figures since the last reading; none while reading would cost too much.

        `times` are each core's, and all cores' together, since the machine started.
        """
        at_ns, cost_ns = self._now_ns(), self._cost_ns()
        if at_ns < self._read_again_ns:
            return {}
        ticks = self._times.take()
        reading_ns = self._cost_ns() - cost_ns
        self._find_server(at_ns)
        cost_ns = self._cost_ns()
        self._assign()
        busy_ticks = times[ALL_CORES].busy
        figures = self._figures(ticks, times, busy_ticks - self._busy_ticks, at_ns - self._read_at_ns)
        self._busy_ticks, self._read_at_ns = busy_ticks, at_ns
        self._costs_ns.append(reading_ns + self._cost_ns() - cost_ns)
        self._read_again_ns = at_ns + round(median_low(self._costs_ns) / READING_SHARE)
        return figures

    def _find_server(self, at_ns: int) -> None:
        """Find the server again: as soon as none of its processes is left, else from time to time."""
        if at_ns < (self._find_at_latest_ns if self._server - self._times.ended else self._find_again_ns):
            return
        cost_ns = self._cost_ns()
        self._server |= self._find()
        self._find_again_ns = at_ns + round((self._cost_ns() - cost_ns) / FINDING_SHARE)
        self._find_at_latest_ns = max(self._find_again_ns, at_ns + FIND_EACH_NS)

    def _assign(self) -> None:
        """Add the children of each group. A process stays in its group if its parent ends before it."""
        self._server -= self._times.ended
        self._loadsim -= self._times.ended
        for number, process in self._times.processes.items():  # parents come first
            if process.parent in self._server:
                self._server.add(number)
            elif process.parent in self._loadsim:
                self._loadsim.add(number)
        self._server &= self._times.processes.keys()
        self._loadsim -= self._server  # loadsim also starts servers

    def _figures(
        self, ticks: Mapping[int, int], times: Mapping[str, CoreTime], busy_ticks: int, passed_ns: int
    ) -> dict[str, float]:
        processes = self._times.processes
        members: dict[str, Collection[int]] = {SERVER: self._server, LOADSIM: self._loadsim}
        for group, name in self._named.items():
            members[group] = [number for number, process in processes.items() if process.name == name]
        named = {number for group in self._named for number in members[group]}
        figures: dict[str, float] = {}
        for group, numbers in members.items():
            if numbers:
                figures[f"{group}_rss_bytes"] = sum(processes[number].rss_pages for number in numbers) * PAGE_BYTES
        if passed_ns <= 0:
            return figures
        per_tick = 1e9 / TICKS_PER_S / passed_ns
        figures |= self._server_cores.take(
            processes, self._server, named, self._loadsim, times, ticks, ticks_per_core=1 / per_tick
        )
        if not ticks:
            return figures
        for group, numbers in members.items():
            if numbers:
                figures[f"{group}_cpu_cores"] = sum(ticks.get(number, 0) for number in numbers) * per_tick
        of_mail = {number: processes[number] for number in (*self._server, *named)}
        if busiest := self._busiest_thread.take(of_mail):
            figures[f"server_thread_{figure_name(busiest[0])}_cores"] = busiest[1] * per_tick
        grouped = {number for numbers in members.values() for number in numbers}
        of_others = Counter[str]()
        for number in processes.keys() - grouped:
            of_others[figure_name(processes[number].name)] += ticks.get(number, 0)
        self._ticks_of_others += of_others
        for name, _ in self._ticks_of_others.most_common(1):
            figures[f"others_{name}_cores"] = of_others[name] * per_tick
        rest = busy_ticks - sum(ticks.get(number, 0) for number in grouped)
        # The kernel samples cores but counts processes exactly (proc_stat(5)), so the difference may be negative.
        figures[f"{OTHERS}_cpu_cores"] = max(0, rest) * per_tick
        return figures


def named_groups(names: Sequence[str]) -> dict[str, str]:
    """Return process names, as the kernel shortens them, by group. Raises `ConfigError` for unusable ones."""
    named: dict[str, str] = {}
    for name in names:
        shortened = name.encode()[:LONGEST_COMMAND].decode(errors="replace")
        group = figure_name(shortened)
        if group in (*named, SERVER, LOADSIM, OTHERS) or not group[0].isalpha():
            expected = f"different names that begin with a letter, none of them {SERVER}, {LOADSIM} or {OTHERS}"
            raise ConfigError(f"probe host: groups: expected {expected}, found {name!r:.60}")
        named[group] = shortened
    return named


def figure_name(name: str) -> str:
    """Return a name for use in a figure's name: in lower case, with `_` for anything but letters and digits."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name.lower())
