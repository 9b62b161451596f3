"""A plan's load: how many tasks are due in each of many equal parts of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from loadsim.documents.typed import Within, closed
from loadsim.model.records import SPANS
from loadsim.model.terms import TRACK_RECEIPT, WITHOUT_WINDOW, Window
from loadsim.timinglog.documents import Count, at_least

DAY_PARTS = 1440
"""The number of parts per day with its night. Windows in round numbers begin and end at the edge of a part."""

MOST_DAYS = 28
"""Runs of more days than this have longer parts: a log stores a number for each task and part."""

LEFT_OUT = ("SYNC", TRACK_RECEIPT, *WITHOUT_WINDOW, *SPANS)
"""Tasks outside the plan. A log-on precedes it or follows a lost session; the server decides how often users sync, and
which reports it sends."""


LITTLE_MAIL = 0.9
"""Results mention a received share of the published mail below this. Without lists, Medium users get a third."""


@closed
@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The number of due tasks, by task and part; the parts divide `duration_s` equally.

    `received_share` is the mail that users receive, divided by the mail in their profiles' published load; None if
    unknown.
    """

    duration_s: Annotated[float, Within(1e-6, 1e9)]
    tasks: Mapping[str, Annotated[tuple[Count, ...], at_least(1)]]
    received_share: Annotated[float, Within(0, 1e9)] | None = None

    def in_window(self, window_s: Window) -> dict[str, int]:
        """Return how often each task is due in [begin, end).

        If an edge of the window falls inside a part, that part counts in proportion; otherwise the number is exact.
        """
        return {
            task: round(self._before(counts, window_s.end_s) - self._before(counts, window_s.begin_s))
            for task, counts in self.tasks.items()
        }

    @property
    def part_s(self) -> float:
        return self.duration_s / max(map(len, self.tasks.values()), default=1)

    def cut_by(self, window_s: Window) -> bool:
        """Return whether an edge of the window falls inside a part."""
        parts = (at_s / self.part_s for at_s in window_s)
        return any(abs(part - round(part)) > 1e-6 for part in parts)

    def _before(self, counts: Sequence[int], at_s: float) -> Fraction:
        """Return the number due before an instant, in microseconds: floats would miss the edges of parts."""
        duration_us = round(self.duration_s * 1e6)
        at_us = min(max(round(at_s * 1e6), 0), duration_us)
        part, into = divmod(at_us * len(counts), duration_us)
        return sum(counts[:part]) + (Fraction(counts[part] * into, duration_us) if into else Fraction(0))


def received_of_published(share: float | None) -> str:
    """Describe a received share: "34 % of the published mail"; "" if it is nearly all of it, or unknown."""
    return "" if share is None or share >= LITTLE_MAIL else f"{100 * share:.2g} % of the published mail"
