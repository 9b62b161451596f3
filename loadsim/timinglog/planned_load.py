"""The load that a plan has in it: how many tasks are due when, counted in equal parts of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from loadsim.errors import LogError
from loadsim.model.terms import WITHOUT_WINDOW
from loadsim.timinglog.records import SPANS

BINS = 400
"""So many parts, the shipped scenarios' windows begin and end with one."""

LEFT_OUT = ("SYNC", *WITHOUT_WINDOW, *SPANS)
"""Tasks that no plan has: a log-on is before it or follows a loss, and the server decides how often mail is shown."""


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """By task, how many are due in each part of a run of `duration_s`; all parts are equally long."""

    duration_s: float
    tasks: Mapping[str, tuple[int, ...]]

    def in_window(self, window_s: tuple[float, float]) -> dict[str, int]:
        """Return how many of each task are due in [begin, end).

        Of a part that an edge cuts, as large a share counts as lies inside: only then it is not exact.
        """
        return {
            task: round(self._before(counts, window_s[1]) - self._before(counts, window_s[0]))
            for task, counts in self.tasks.items()
        }

    def _before(self, counts: Sequence[int], at_s: float) -> Fraction:
        """Return how many are due before an instant, in whole microseconds: a float would miss the edge of a part."""
        duration_us = round(self.duration_s * 1e6)
        at_us = min(max(round(at_s * 1e6), 0), duration_us)
        part, into = divmod(at_us * len(counts), duration_us)
        return sum(counts[:part]) + (Fraction(counts[part] * into, duration_us) if into else Fraction(0))

    def document(self) -> dict[str, Any]:
        """Return the load as JSON has it, in a file and in a log's header."""
        return {"duration_s": self.duration_s, "tasks": {task: list(counts) for task, counts in self.tasks.items()}}


def read_planned_load(document: object) -> PlannedLoad:
    """Read what `PlannedLoad.document` gave. Raises `LogError` for anything else."""
    duration_s, tasks = _both(document)
    for task, counts in tasks.items():
        if not isinstance(counts, list) or not counts or not all(type(count) is int and count >= 0 for count in counts):
            raise _refused(f"tasks.{task}", "a list of whole numbers of at least 0", counts)
    return PlannedLoad(duration_s, {task: tuple(counts) for task, counts in tasks.items()})


def _both(document: object) -> tuple[float, Mapping[str, Any]]:
    if not isinstance(document, dict) or document.keys() != {"duration_s", "tasks"}:
        raise _refused("", "the keys duration_s and tasks", document)
    duration_s, tasks = document["duration_s"], document["tasks"]
    if type(duration_s) not in (int, float) or not 1e-6 <= duration_s < 1e9:
        raise _refused("duration_s", "seconds above 0", duration_s)
    if not isinstance(tasks, dict):
        raise _refused("tasks", "a mapping of tasks to counts", tasks)
    return float(duration_s), tasks


def _refused(key: str, expected: str, found: object) -> LogError:
    return LogError(f"planned_load{key and '.'}{key}: expected {expected}, found {str(found)[:80]}")
