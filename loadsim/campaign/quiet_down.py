"""The wait before a run on a server, until it has delivered the mail of earlier ones.

A probe `postfix` shows when the send queue is empty. Without one, the wait is a fixed pause.
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
"""The default pause if nothing shows the queue."""

SETTLING_S = 10.0
"""The default pause before a look at the queue: mail that a content filter holds comes back to it meanwhile."""

LONGEST_S = 1800.0
"""The most time for a queue to become empty. Postfix tries deferred mail again after 5, 10 and 20 min, then later."""

EMPTY_SAMPLES = 3
"""The listings in a row that show an empty queue: one alone can miss a message that moves between queues."""

TO_SEND, DEFERRED = "send_queue_messages", "deferred_messages"
"""Figures of the probe: all messages that wait to be sent, and those of them that are deferred."""


def sees_send_queue(scenario: Scenario) -> bool:
    """Return True if a probe on the machine that simulates user 1 samples the send queue of the server."""
    return isinstance(scenario.server, Server) and any(map(is_send_queue, scenario.probes))


def is_send_queue(probe: str) -> bool:
    """Return True for the name of a probe of a send queue, such as postfix or postfix/in."""
    return probe.partition("/")[0] == "postfix"


def default_pause_s(scenario: Scenario) -> float:
    """Return the pause between two runs: none on the embedded server, `SETTLING_S` if a probe sees the send queue.

    Else it is `PAUSE_S`. A probe of this machine does not see the queue of a server on another one: an empty queue is
    then no evidence.
    """
    if not isinstance(scenario.server, Server):
        return 0.0
    smtp = scenario.server.smtp
    here = smtp is not None and sees_send_queue(scenario) and any(map(is_own, addresses_of(smtp.host)))
    return SETTLING_S if here else PAUSE_S


def open_queues(scenario: Scenario) -> Sequence[OpenedProbe]:
    """Check and open the probes of the send queues of a scenario. Raises `ConfigError` if one cannot be opened."""
    # The queue alone: without the log, which a sample may fail to read.
    settings = {
        name: {key: value for key, value in (given or {}).items() if key != "log"}
        for name, given in scenario.probes.items()
        if is_send_queue(name)
    }
    check_probes(scenario.name, settings)
    return run(open_probes(scenario.name, settings, services_of(scenario)))


@dataclass(frozen=True, slots=True)
class QuietDown:
    """Waits before runs, for at most `longest_s` until the send queue is empty."""

    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    open: Callable[[Scenario], Sequence[OpenedProbe]] = open_queues
    longest_s: float = LONGEST_S

    def until_empty(self, scenario: Scenario, watcher: Watcher) -> str | None:
        """Wait until all send queues that a scenario's probes see are empty. Return why it is not known that they are.

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
                return f"the send queue is not known to be empty after {limit} ({words or 'emptied just now'})"
            if words and not told:
                watcher.message(f"Waiting until the send queue is empty, at most {limit} ({words})")
                told = True
            self.sleep(EACH_S)


QUIET_DOWN = QuietDown()
"""The wait in real time."""


class _Queue:
    """A send queue as its probe lists it.

    `left` are the messages in words, or the failure of the last listing, "" for none. `empty` counts the last listings
    in a row without any messages.
    """

    def __init__(self, probe: OpenedProbe) -> None:
        self.probe = probe
        self.left = "no sample"
        self.empty = 0

    def look(self) -> None:
        """Take a listing. In the pause of the probe after one, nothing changes."""
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
