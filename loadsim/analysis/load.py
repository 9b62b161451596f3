"""The load that a run made, held against that of its plan.

Mail begets mail: a server that is down is asked for less, and what it was not asked for is in no record. The plan was
made with a server that takes no time, and knows what should have been asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadsim.analysis.score import ProtocolStatistics
from loadsim.model.records import GENERATOR
from loadsim.timinglog.merge import PLANNED_LOAD
from loadsim.timinglog.planned_load import BINS, LEFT_OUT, read_planned_load
from loadsim.timinglog.reader import TimingLog

SURPLUS = 1.05
"""More of a task than this share of its plan makes up for no other task: READs that fail are tried again and again."""

LEAST_PARTS = 20
"""A window of fewer of the plan's parts is not held against it: what an edge cuts is not known to the task."""


@dataclass(frozen=True, slots=True)
class TaskLoad:
    """One task: how many the plan has in the window, and how many were asked of the server, in all runs together."""

    planned: int
    made: int

    @property
    def share(self) -> float | None:
        """Made of planned; None where none was planned."""
        return self.made / self.planned if self.planned else None


@dataclass(frozen=True, slots=True)
class Load:
    """The tasks of so many `runs`, by name."""

    tasks: Mapping[str, TaskLoad]
    runs: int = 1

    @property
    def planned(self) -> int:
        """All tasks of the plan in the window."""
        return sum(task.planned for task in self.tasks.values())

    @property
    def made(self) -> int:
        """The number of tasks that were begun: for each task name at most `SURPLUS` times the planned number.

        Tasks in which the generator itself failed are not counted.
        """
        return sum(min(task.made, int(SURPLUS * task.planned)) for task in self.tasks.values())

    @property
    def share(self) -> float | None:
        """Made of planned, None where nothing was planned.

        It is above 1 where the server brought more mail than was sent, or mailboxes were not as planned.
        """
        return TaskLoad(self.planned, self.made).share


def load_made(log: TimingLog, protocols: Iterable[ProtocolStatistics], window_s: tuple[float, float]) -> Load | None:
    """Return the load of a whole run, or of several, by its statistics in the window.

    None where the log does not have the plan's, for a window of few of its parts, and where runs do not share a window.
    Raises `LogError` for a header in which it is damaged.
    """
    document = log.header.get(PLANNED_LOAD)
    runs = len(log.runs)
    if document is None or (runs > 1 and not log.header.get("rebased")):
        return None
    plan = read_planned_load(document)
    if window_s[1] - window_s[0] < LEAST_PARTS * plan.duration_s / BINS:
        return None
    planned = plan.in_window(window_s)
    made = Counter[str]()
    for task in (task for protocol in protocols for task in protocol.tasks if task.task not in LEFT_OUT):
        made[task.task] += task.attempted - task.counts[GENERATOR]
    names = sorted(name for name in planned.keys() | made.keys() if planned.get(name) or made[name])
    return Load({name: TaskLoad(planned.get(name, 0) * runs, made[name]) for name in names}, runs)
