"""The interface through which a run reports its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from loadsim.engine.snapshot import LiveSnapshot

Stage = Literal["plan", "join", "prepare", "load", "collect", "audit", "analyse"]
"""The stages of a run, in order. Only cluster runs have `join` and `collect`, only audited ones `audit`."""


class Watcher:
    """Receives the progress of a run.

    The run calls its methods in its own thread, so they should return at once. An exception ends the run.
    Override the methods of interest: the others do nothing.
    """

    def stage(self, stage: Stage) -> None:
        """Report that a stage begins."""

    def message(self, line: str) -> None:
        """Report a fact that needs no action, as one line."""

    def warning(self, line: str) -> None:
        """Report, as one line, a problem that does not end the run."""

    def planned(self, share: float) -> None:
        """Report the finished share of a plan, from 0 to 1. A plan that takes less than a second reports none."""

    def due(self, tasks: Mapping[str, Sequence[int]]) -> None:
        """Report the plan, if it is known: for each task, the number due in each of equal parts of the run."""

    def prepared(self, phase: str, done: int, total: int) -> None:
        """Report how many accounts have passed a phase of the preparation, or of the audit."""

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        """Report the state of the load, once a second; `clients` has the state of each client in a cluster run."""

    def sampled(self, probe: str, figures: Mapping[str, float]) -> None:
        """Report a sample of a probe on this machine, before the next snapshot: finite figures by name."""


SILENT = Watcher()
"""A watcher that ignores everything."""
