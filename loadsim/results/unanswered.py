"""What of a task was not answered in two sets of runs: it has no time, and the times of the rest may flatter a server.

A server that refuses half of its tasks has time for the others, and one that lets the slowest run into their time limit
has fast ones left. So times are compared only where about as much was answered on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

MORE_SHARE = 0.01
LEAST_MORE = 5
"""A side answers less when it leaves a larger share unanswered, by more than so much of all, and by so many tasks: a
single one among twenty is chance."""

Side = Literal["base", "new"]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """How many of a task were due in all runs of each side, and how many of them failed, never began or did not end."""

    base_planned: int
    base: int
    new_planned: int
    new: int

    @property
    def base_share(self) -> float:
        """Of what was due in base; 0 when nothing was."""
        return self.base / self.base_planned if self.base_planned else 0.0

    @property
    def new_share(self) -> float:
        """The same of new."""
        return self.new / self.new_planned if self.new_planned else 0.0

    @property
    def more(self) -> Side | None:
        """The side that answered less, or None where both answered about as much."""
        by_share = self.new_share - self.base_share
        by_tasks = by_share * (self.new_planned if by_share > 0 else self.base_planned)
        if abs(by_share) <= MORE_SHARE or abs(by_tasks) < LEAST_MORE:
            return None
        return "new" if by_share > 0 else "base"


def together(tasks: Iterable[Unanswered]) -> Side | None:
    """Which side answered less of some task; new, if either did of one."""
    sides = {task.more for task in tasks}
    return "new" if "new" in sides else "base" if "base" in sides else None
