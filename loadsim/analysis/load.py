"""The load that a run made, compared with its plan.

Users reply to mail that they receive: a slow server gets fewer tasks, which leave no records. The plan was made with a
server that takes no time, and has them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from loadsim.analysis.score import DriverFigures
from loadsim.model.terms import Window
from loadsim.timinglog.planned_load import LEFT_OUT
from loadsim.timinglog.reader import TimingLog

SURPLUS = 1.05
"""More of a task than this share of its plan does not replace other tasks: users repeat READs that fail."""

LEAST_PARTS = 20
"""The fewest parts of the plan in a window that cuts some: these count only in proportion."""


@dataclass(frozen=True, slots=True)
class TaskLoad:
    planned: int
    made: int
    """Tasks of this name in the plan's window; those that users started."""

    @property
    def share(self) -> float | None:
        return self.made / self.planned if self.planned else None


@dataclass(frozen=True, slots=True)
class Load:
    planned: int
    """Tasks in the plan's window, without LOGON, SYNC and LOGOFF."""
    made: int
    """Tasks of the window, without these three, that users started, except failures of the generator. Each task name
    counts up to 105 % of its plan, rounded down."""
    share: float | None
    """`made` divided by `planned`; above 1 if the server delivered more mail than was sent, or if mailboxes were not
    as planned."""
    tasks: Mapping[str, TaskLoad]

    @classmethod
    def of(cls, tasks: Mapping[str, TaskLoad]) -> Load:
        planned = sum(task.planned for task in tasks.values())
        made = sum(min(task.made, int(SURPLUS * task.planned)) for task in tasks.values())
        return cls(planned, made, TaskLoad(planned, made).share, tasks)


def load_made(log: TimingLog, drivers: Mapping[str, DriverFigures], window_s: Window) -> Load | None:
    """Return the load of a whole run by its statistics in the window.

    None without the planned load, and for a window that cuts its parts and is shorter than `LEAST_PARTS`.
    """
    plan = log.header.planned_load
    if plan is None or (window_s.length_s < LEAST_PARTS * plan.part_s and plan.cut_by(window_s)):
        return None
    planned = plan.in_window(window_s)
    made = Counter[str]()
    for task in (task for driver in drivers.values() for task in driver.tasks if task.task not in LEFT_OUT):
        made[task.task] += task.attempted - task.generator_failed
    names = sorted(name for name in planned.keys() | made.keys() if planned.get(name) or made[name])
    return Load.of({name: TaskLoad(planned.get(name, 0), made[name]) for name in names})
