"""Throughput of a closed loop: tasks, messages and protocol commands per second of the window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from loadsim.analysis.delivery import Delivery, mails_by_sender
from loadsim.analysis.score import DriverFigures
from loadsim.model.terms import Window
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT, OUTCOME

SERVICES = ("IMAP", "SMTP", "MAPI")
"""The prefixes of command names."""


@dataclass(frozen=True, slots=True)
class Throughput:
    tasks_per_s: float
    messages_per_s: float
    deliveries_per_s: float
    """Successful tasks; accepted messages, each once; deliveries, for each recipient."""
    by_task: Mapping[str, float]
    commands: Mapping[str, float]
    """Successful tasks by name; successful commands by `IMAP`, `SMTP` and `MAPI`, if there are any."""
    silent_activities: int
    """Activities of users who had nothing to do, in the whole run."""


def throughput(
    log: TimingLog, window_s: Window, drivers: Mapping[str, DriverFigures], delivered: Delivery
) -> Throughput:
    """Return the throughput of tasks due in the window, and of messages accepted and commands begun in it."""
    length_s = window_s.length_s
    hits: dict[str, int] = {}
    for driver in drivers.values():
        for task in driver.tasks:
            if task.windowed:
                hits[task.task] = hits.get(task.task, 0) + task.hits
    messages = 0
    for mails in mails_by_sender(log):
        accepted = mails[(mails["event"] == EVENT["accepted"]) & in_window(mails["at_us"], window_s)]
        messages += len(np.unique(accepted["message"]))
    succeeded = np.zeros(len(log.strings), np.int64)
    for commands in log.pieces("commands"):
        counted = (commands["outcome"] == OUTCOME["ok"]) & in_window(commands["started_us"], window_s)
        succeeded += np.bincount(commands["command"][counted], minlength=len(log.strings))
    return Throughput(
        tasks_per_s=sum(hits.values()) / length_s,
        messages_per_s=messages / length_s,
        deliveries_per_s=delivered.delivered / length_s,
        by_task={task: times / length_s for task, times in sorted(hits.items())},
        commands={
            service: int(succeeded[np.char.startswith(np.array(log.strings), f"{service} ")].sum()) / length_s
            for service in SERVICES
            if any(name.startswith(f"{service} ") for name in log.strings)
        },
        silent_activities=sum(source.facts.silent_activities or 0 for source in log.sources),
    )
