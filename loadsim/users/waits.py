"""The running task's waits for the server, from which its end and the generator's share are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from loadsim.model.records import LOOP, NO_CLOCK, Arrival
from loadsim.users.host import Host


class Answerer(Protocol):
    """The mail of a user or outside sender."""

    host: Host
    now: Callable[[], int]
    answered_ns: int


class Waits:
    """The commands of a running task, as the driver reports them.

    `mail.answered_ns` is when the last answer arrived, and `moved_bytes` counts what was sent and received.
    """

    def __init__(self, mail: Answerer) -> None:
        self.moved_bytes = 0
        self._mail = mail
        self._waits: list[tuple[int, int]] = []  # each command's first byte and its answer's last
        self._own_ns = 0  # of these, the server was waiting for us
        self._unstated = False  # a command's driver has not said when its answer arrived
        self._states_arrivals = False  # the driver does, for some command at least
        self._clock = LOOP  # that of the last answer

    def begin(self) -> None:
        """Forget the commands of the previous task."""
        self.moved_bytes = self._own_ns = self._mail.answered_ns = 0
        self._waits.clear()
        self._unstated, self._clock = False, LOOP

    def add(self, since_ns: int, moved_bytes: int, arrival: Arrival | None, own_ns: int) -> int:
        """Add a command (`ports.Observer.command`). Return when its answer arrived."""
        self.moved_bytes += moved_bytes
        self._states_arrivals |= arrival is not None
        if arrival is None or arrival[0] < since_ns + own_ns:  # the latter after the wall clock was set
            self._unstated |= arrival is None
            arrival = self._mail.now(), LOOP
        answered_ns = arrival[0]
        if answered_ns >= self._mail.answered_ns:  # else it was read after one that came later, on another connection
            self._mail.answered_ns, self._clock = arrival
        self._waits.append((since_ns, answered_ns))
        self._own_ns += own_ns
        return answered_ns

    def _is_reported(self, task: str) -> bool:
        """Return whether everything that a task waits for is reported as a command with its arrival."""
        return self._states_arrivals and not self._unstated and task not in self._mail.host.plugin_tasks

    def clock_of(self, task: str, ended_ns: int) -> str:
        """Return which of `CLOCKS` tells the end of a task; none if it asked the server nothing."""
        if not self._waits and self._is_reported(task):
            return NO_CLOCK
        return self._clock if self._mail.answered_ns == ended_ns else LOOP

    def between_ns(self, task: str, began_ns: int, ended_ns: int | None, composing_ns: int) -> int:
        """Return for how long the server waited for us in a task that has ended."""
        if not self._waits or not self._is_reported(task):
            return composing_ns
        between_ns = self._own_ns + time_between(self._waits, began_ns, ended_ns)
        return between_ns if ended_ns is None else min(between_ns, ended_ns - began_ns)


def time_between(waits: Sequence[tuple[int, int]], begin_ns: int, end_ns: int | None) -> int:
    """Return for how long, between two instants, none of these commands was under way (None: until the last ended)."""
    between_ns, until_ns = 0, begin_ns
    for since_ns, answered_ns in sorted(waits):
        between_ns += max(0, (since_ns if end_ns is None else min(since_ns, end_ns)) - until_ns)
        until_ns = max(until_ns, answered_ns)
    return between_ns if end_ns is None else between_ns + max(0, end_ns - until_ns)
