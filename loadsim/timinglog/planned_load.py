"""The load of a plan: the number of tasks that are due in each of many equal parts of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from loadsim.model.records import SPANS
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.timinglog.json_checks import each_in, each_of, having, having_only, number, refuse, whole

BINS = 400
"""The number of parts. The windows of the shipped scenarios begin and end at the edge of one."""

LEFT_OUT = ("SYNC", *WITHOUT_WINDOW, *SPANS)
"""Tasks outside the plan. A log-on comes before it or follows a loss; the server decides how often users sync."""


LITTLE_MAIL = 0.9
"""The share of the published mail below which results state it: without lists, Medium users receive a third."""


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """The number of due tasks, by task and part; the parts divide `duration_s` equally.

    `received_share` is the mail that users receive divided by that of their profiles' published load; None if unknown.
    """

    duration_s: float
    tasks: Mapping[str, tuple[int, ...]]
    received_share: float | None = None

    def in_window(self, window_s: Window) -> dict[str, int]:
        """Return the number of each task that is due in [begin, end).

        A part that an edge of the window cuts counts in proportion; otherwise the number is exact.
        """
        return {
            task: round(self._before(counts, window_s.end_s) - self._before(counts, window_s.begin_s))
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
        document = {"duration_s": self.duration_s, "tasks": {task: list(counts) for task, counts in self.tasks.items()}}
        return document if self.received_share is None else {**document, "received_share": self.received_share}


PLANNED_LOAD = having_only(
    having(
        {"duration_s": number(1e-6, 1e9), "tasks": each_in(each_of(whole(0, 2**53), 1))},
        {"received_share": number(0, 1e9)},
    ),
    "duration_s",
    "tasks",
    "received_share",
)
"""The check of a document."""


def read_planned_load(document: Any) -> PlannedLoad:
    """Read the result of `PlannedLoad.document`. Raises `LogError` for anything else."""
    refuse("planned_load", PLANNED_LOAD(document), document)
    return PlannedLoad(
        float(document["duration_s"]),
        {task: tuple(counts) for task, counts in document["tasks"].items()},
        document.get("received_share"),
    )


def received_of_published(share: float | None) -> str:
    """Return a received share in words: "34 % of the published mail"; "" if it is near the whole, or unknown."""
    return "" if share is None or share >= LITTLE_MAIL else f"{100 * share:.2g} % of the published mail"
