"""The wait between two runs on a server, until it has delivered the mail of the first one.

The probe `postfix` shows when its send queue is empty. Without it, or if it is on another machine, the wait is fixed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadsim.engine.event_loop import run
from loadsim.errors import printable
from loadsim.model.scenario import Scenario
from loadsim.model.scenario_server import Server
from loadsim.model.send_queue import is_send_queue
from loadsim.monitor.probes import EACH_S, OpenedProbe, checked, open_each
from loadsim.provisioning.sessions import services_of
from loadsim.runs.watcher import Watcher

PAUSE_S = 60.0
"""The default pause if nothing shows the queue."""

SETTLING_S = 10.0
"""The default pause before a look at the queue: mail that a content filter holds comes back to it meanwhile."""

LONGEST_S = 1800.0
"""The most time for a queue to become empty. Postfix tries deferred mail again after 5, 10 and 20 min, then later."""

EMPTY_SAMPLES = 3
"""The empty listings in a row of an empty queue: one alone can miss a message that moves between queues."""

QUEUED, DEFERRED = "send_queue_messages", "deferred_messages"


def sees_send_queue(scenario: Scenario) -> bool:
    """Return True if a probe on the machine that simulates user 1 samples the send queue of the server."""
    return isinstance(scenario.server, Server) and any(map(is_send_queue, scenario.probes))


def open_queues(scenario: Scenario) -> Sequence[OpenedProbe]:
    """Open the probes of the send queues of a scenario. Raises `ConfigError` if one cannot be opened."""
    # The queue alone: without the log, which a sample may fail to read.
    settings = {
        name: {key: value for key, value in (given or {}).items() if key != "log"}
        for name, given in scenario.probes.items()
        if is_send_queue(name)
    }
    return run(open_each(scenario.name, settings, services_of(scenario)))


@dataclass(frozen=True, slots=True)
class QuietDown:
    """Waits between runs, for at most `longest_s` until the send queue is empty."""

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
        probes = self.open(scenario)
        until_s = self.now() + self.longest_s
        limit = f"{self.longest_s / 60:.3g} min"
        left = {probe.name: "no sample" for probe in probes}
        in_a_row = dict.fromkeys(left, 0)
        told = False
        while True:
            for probe in probes:
                if (found := _messages(probe)) is not None:
                    left[probe.name] = found
                    in_a_row[probe.name] = 0 if found else in_a_row[probe.name] + 1
            if all(number >= EMPTY_SAMPLES for number in in_a_row.values()):
                return None
            words = ", ".join(f"{name}: {found}" for name, found in left.items() if found)
            if self.now() >= until_s:
                return f"the send queue is not known to be empty after {limit} ({words or 'emptied just now'})"
            if words and not told:
                watcher.message(f"Waiting until the send queue is empty, at most {limit} ({words})")
                told = True
            self.sleep(EACH_S)


QUIET_DOWN = QuietDown()
"""The wait in real time."""


def _messages(probe: OpenedProbe) -> str | None:
    """Return the messages in a queue in words, "" for none, or the failure; None in a rest of the probe."""
    try:
        figures: Mapping[str, float] = checked(probe.sample())
    except (OSError, ValueError) as failure:
        return printable(f"{failure}")[:200] or type(failure).__name__
    if QUEUED not in figures:
        return None
    queued, deferred = figures[QUEUED], figures.get(DEFERRED, 0)
    of_these = f", {deferred:,.0f} of them deferred" if deferred else ""
    return f"{queued:,.0f} messages{of_these}" if queued else ""
