"""The load of a plan: the number of tasks that are due in each of many equal parts of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from loadsim.errors import LogError
from loadsim.model.records import SPANS
from loadsim.model.terms import WITHOUT_WINDOW

BINS = 400
"""The number of parts. The windows of the shipped scenarios begin and end at the edge of one."""

LEFT_OUT = ("SYNC", *WITHOUT_WINDOW, *SPANS)
"""Tasks outside the plan. A log-on comes before it or follows a loss; the server decides how often users sync."""


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The number of due tasks, by task and part; the parts divide `duration_s` equally."""

    duration_s: float
    tasks: Mapping[str, tuple[int, ...]]

    def in_window(self, window_s: tuple[float, float]) -> dict[str, int]:
        """Return the number of each task that is due in [begin, end).

        A part that an edge of the window cuts counts in proportion; otherwise the number is exact.
        """
        return {
            task: round(self._before(counts, window_s[1]) - self._before(counts, window_s[0]))
            for task, counts in self.tasks.items()
        }

    def _before(self, counts: Sequence[int], at_s: float) -> Fraction:
        """Return the number due before an instant, in whole microseconds: a float would miss edges of parts."""
        duration_us = round(self.duration_s * 1e6)
        at_us = min(max(round(at_s * 1e6), 0), duration_us)
        part, into = divmod(at_us * len(counts), duration_us)
        return sum(counts[:part]) + (Fraction(counts[part] * into, duration_us) if into else Fraction(0))

    def document(self) -> dict[str, Any]:
        """Return the load as JSON, for a file and a log's header."""
        return {"duration_s": self.duration_s, "tasks": {task: list(counts) for task, counts in self.tasks.items()}}


def read_planned_load(document: object) -> PlannedLoad:
    """Read the result of `PlannedLoad.document`. Raises `LogError` for anything else."""
    duration_s, tasks = _checked(document)
    for task, counts in tasks.items():
        if not isinstance(counts, list) or not counts or not all(type(count) is int and count >= 0 for count in counts):
            raise _error(f"tasks.{task}", "a list of whole numbers of at least 0", counts)
    return PlannedLoad(duration_s, {task: tuple(counts) for task, counts in tasks.items()})


def _checked(document: object) -> tuple[float, Mapping[str, Any]]:
    if not isinstance(document, dict) or document.keys() != {"duration_s", "tasks"}:
        raise _error("", "the keys duration_s and tasks", document)
    duration_s, tasks = document["duration_s"], document["tasks"]
    if type(duration_s) not in (int, float) or not 1e-6 <= duration_s < 1e9:
        raise _error("duration_s", "seconds above 0", duration_s)
    if not isinstance(tasks, dict):
        raise _error("tasks", "a mapping of tasks to counts", tasks)
    return float(duration_s), tasks


def _error(key: str, expected: str, found: object) -> LogError:
    return LogError(f"planned_load{key and '.'}{key}: expected {expected}, found {str(found)[:80]}")
