"""The load that a run made: compared with its plan, or as the throughput of a closed loop.

Users reply to mail that they receive: a slow server gets fewer tasks, and the missing ones leave no records. The plan
has them all, since it assumes a server that takes no time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from loadsim.analysis.delivery import mails_by_sender
from loadsim.model.figures import Delivery, DriverFigures, Load, TaskLoad, Throughput
from loadsim.model.terms import PROTOCOLS, Window
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.planned_load import LEFT_OUT
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import EVENT, OUTCOME

SURPLUS = 1.05
"""A task counts up to this multiple of its plan, no further: users repeat READs that fail."""

LEAST_PARTS = 20
"""The fewest parts of the plan that a window must span if it cuts through parts; these count in proportion."""


def load_made(log: TimingLog, drivers: Mapping[str, DriverFigures], window_s: Window) -> Load | None:
    """Return the load that was made in the window; None without a planned load.

    Also None for a window that cuts through parts of the plan and is shorter than `LEAST_PARTS` of them.
    """
    plan = log.header.planned_load
    if plan is None or (window_s.length_s < LEAST_PARTS * plan.part_s and plan.cut_by(window_s)):
        return None
    planned = plan.in_window(window_s)
    made = Counter[str]()
    for task in (task for driver in drivers.values() for task in driver.tasks if task.task not in LEFT_OUT):
        made[task.task] += task.attempted - task.generator_failed
    names = sorted(name for name in planned.keys() | made.keys() if planned.get(name) or made[name])
    return load_of({name: TaskLoad(planned.get(name, 0), made[name]) for name in names})


def load_of(tasks: Mapping[str, TaskLoad]) -> Load:
    """Return the load of all tasks, where a surplus of one does not make up for another."""
    planned = sum(task.planned for task in tasks.values())
    made = sum(min(task.made, int(SURPLUS * task.planned)) for task in tasks.values())
    return Load(planned, made, made / planned if planned else None, tasks)


def throughput(
    log: TimingLog, window_s: Window, drivers: Mapping[str, DriverFigures], delivered: Delivery
) -> Throughput:
    """Return the throughput of tasks due, messages accepted and commands started in the window."""
    length_s = window_s.length_s
    hits = Counter[str]()
    for task in (task for driver in drivers.values() for task in driver.tasks if task.windowed):
        hits[task.task] += task.hits
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
            protocol: int(succeeded[np.char.startswith(np.array(log.strings), f"{protocol} ")].sum()) / length_s
            for protocol in PROTOCOLS
            if any(name.startswith(f"{protocol} ") for name in log.strings)
        },
        silent_activities=sum(source.facts.silent_activities or 0 for source in log.sources),
    )
