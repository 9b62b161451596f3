"""The share of this machine's processors that other programs use while a run is prepared."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from loadsim.model.ports import Services
from loadsim.monitor.core_times import core_times
from loadsim.monitor.host_probe import ReadText, read_proc
from loadsim.monitor.process_groups import OTHERS, SERVER, ProcessGroups, find_processes

MUCH = 0.2
"""From this share of all cores on, users are warned. Interrupts, which count here, too, take a few per cent."""

LEAST_S = 1.0
"""A shorter measurement has too few ticks of the kernel's clock, of 10 ms each."""


class OtherPrograms:
    """Measures, from its creation on, all programs but loadsim and the server under test.

    `server_here` says that the server runs on this machine: if its processes cannot be seen, nothing is known.
    `read` returns a file of /proc.
    """

    def __init__(
        self,
        groups: ProcessGroups,
        *,
        server_here: bool,
        read: ReadText = read_proc,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._groups = groups
        self._server_here = server_here
        self._read = read
        self._now_ns = now_ns
        self._began_ns = now_ns()
        with suppress(OSError):  # a system without /proc has no figures
            groups.take(core_times(read("stat")))

    def share(self) -> float | None:
        """Return the share of all cores that they took since the creation; None if it is unknown."""
        if self._now_ns() - self._began_ns < LEAST_S * 1e9:
            return None
        try:
            times = core_times(self._read("stat"))
            figures = self._groups.take(times)
        except OSError:
            return None
        seen = f"{SERVER}_cpu_cores" in figures or not self._server_here
        others = figures.get(f"{OTHERS}_cpu_cores")
        return others / (len(times) - 1) if seen and others is not None else None

    def warning(self) -> str | None:
        """Return the warning for a busy machine, else None."""
        share = self.share()
        if share is None or share < MUCH:
            return None
        seconds = round((self._now_ns() - self._began_ns) / 1e9)
        return (
            f"other programs used {share:.0%}".replace("%", " %")
            + f" of this machine's processors in the last {seconds} s: the run may become invalid (top shows them)"
        )


def watch_others(services: Services, *, server_here: bool) -> OtherPrograms:
    """Begin to measure all programs but loadsim and the server of these services."""
    return OtherPrograms(ProcessGroups(find_processes(services), {}), server_here=server_here)
