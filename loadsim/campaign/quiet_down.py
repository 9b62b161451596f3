"""Wait before a run until the server has delivered the mail of earlier runs.

A `postfix` probe shows when the send queue is empty. Without one, the wait is a fixed pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from loadsim.errors import printable
from loadsim.findings.formats import count
from loadsim.monitor.probes import EACH_S, OpenedProbe, check_probes, checked, open_probes
from loadsim.monitor.server_discovery import addresses_of, is_own
from loadsim.processes.event_loop import run
from loadsim.provisioning.sessions import services_of
from loadsim.runs.watcher import Watcher
from loadsim.scenario.scenario import Scenario
from loadsim.scenario.server import Server

PAUSE_S = 60.0
"""The default pause if no probe sees the queue."""

SETTLING_S = 10.0
"""The default pause before checking the queue; meanwhile, mail that a content filter holds returns to the queue."""

LONGEST_S = 1800.0
"""The longest wait for a queue to empty. Postfix retries deferred mail after 5, 10 and 20 min, and later."""

EMPTY_SAMPLES = 3
"""The number of listings in a row that must show an empty queue: one can miss a message moving between queues."""

TO_SEND, DEFERRED = "send_queue_messages", "deferred_messages"
"""Figures of the probe: all messages waiting to be sent, and the deferred ones among them."""


def sees_send_queue(scenario: Scenario) -> bool:
    """Return True if a probe on the machine that simulates user 1 samples the server's send queue."""
    return isinstance(scenario.server, Server) and any(map(is_send_queue, scenario.probes))


def is_send_queue(probe: str) -> bool:
    """Return True for the name of a probe of a send queue, such as postfix or postfix/in."""
    return probe.partition("/")[0] == "postfix"


def default_pause_s(scenario: Scenario) -> float:
    """Return the pause between runs: 0 on the embedded server, `SETTLING_S` if a probe sees the send queue.

    Otherwise it is `PAUSE_S`. A probe on this machine does not see the queue of a server on another machine, so an
    empty queue would prove nothing.
    """
    if not isinstance(scenario.server, Server):
        return 0.0
    smtp = scenario.server.smtp
    here = smtp is not None and sees_send_queue(scenario) and any(map(is_own, addresses_of(smtp.host)))
    return SETTLING_S if here else PAUSE_S


def open_queues(scenario: Scenario) -> Sequence[OpenedProbe]:
    """Check and open a scenario's probes of send queues. Raises `ConfigError` if one cannot be opened."""
    # Only the queue, not the log, which a sample may fail to read.
    settings = {
        name: {key: value for key, value in (given or {}).items() if key != "log"}
        for name, given in scenario.probes.items()
        if is_send_queue(name)
    }
    check_probes(scenario.name, settings)
    return run(open_probes(scenario.name, settings, services_of(scenario)))


@dataclass(frozen=True, slots=True)
class QuietDown:
    """Waits before runs until the send queue is empty, at most `longest_s`."""

    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    open: Callable[[Scenario], Sequence[OpenedProbe]] = open_queues
    longest_s: float = LONGEST_S

    def until_empty(self, scenario: Scenario, watcher: Watcher) -> str | None:
        """Wait until all send queues that a scenario's probes see are empty. Return None, or why they may not be.

        Held messages do not count. Raises `ConfigError` if a probe cannot be opened.
        """
        if not sees_send_queue(scenario):
            return None
        queues = [_Queue(probe) for probe in self.open(scenario)]
        until_s = self.now() + self.longest_s
        limit = f"{self.longest_s / 60:.3g} min"
        told = False
        while True:
            for queue in queues:
                queue.look()
            if all(queue.empty >= EMPTY_SAMPLES for queue in queues):
                return None
            words = ", ".join(f"{queue.probe.name}: {queue.left}" for queue in queues if queue.left)
            if self.now() >= until_s:
                return f"the send queue may not be empty after {limit} ({words or 'it emptied just now'})"
            if words and not told:
                watcher.message(f"Waiting until the send queue is empty, at most {limit} ({words})")
                told = True
            self.sleep(EACH_S)


QUIET_DOWN = QuietDown()
"""A wait in real time."""


class _Queue:
    """A send queue as listed by its probe.

    `left` describes the messages, or the failure of the last listing; "" if there are none. `empty` counts the most
    recent consecutive listings without messages.
    """

    def __init__(self, probe: OpenedProbe) -> None:
        self.probe = probe
        self.left = "no sample"
        self.empty = 0

    def look(self) -> None:
        """Take a listing, unless the probe is still pausing after the last one."""
        try:
            figures = checked(self.probe.sample())
        except (OSError, ValueError) as failure:
            self.left = printable(f"{failure}")[:200] or type(failure).__name__
            self.empty = 0
            return
        if TO_SEND not in figures:
            return
        to_send, deferred = figures[TO_SEND], figures.get(DEFERRED, 0)
        of_these = f", {deferred:,.0f} of them deferred" if deferred else ""
        self.left = f"{count(round(to_send), 'message')}{of_these}" if to_send else ""
        self.empty = 0 if to_send else self.empty + 1
