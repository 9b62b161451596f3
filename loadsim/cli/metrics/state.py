"""The state of a run that its metrics describe, from the first second until after its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from loadsim.analysis.summary import Summary
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.model.run_times import Run
from loadsim.model.scenario import Scenario
from loadsim.runs.watcher import Stage, Watcher

RUN_PHASES = (
    "plan",
    "join",
    "prepare",
    "wait",
    "log-on",
    "warm-up",
    "window",
    "after-window",
    "finish",
    "drain",
    "log-off",
    "over",
    "collect",
    "analyse",
    "done",
)
"""The phases of a run, in order."""


@dataclass(frozen=True, slots=True)
class RunState:
    """A run at one instant. `prepared` has, by step, the accounts that have passed it and those that have to."""

    scenario: str
    times: Run
    began_ns: int  # since 1970
    stage: Stage = "plan"
    prepared: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    snapshot: LiveSnapshot | None = None
    summary: Summary | None = None

    @property
    def phase(self) -> str:
        """The current phase, one of `RUN_PHASES`: the stage of the run, or that of its load."""
        if self.summary is not None:
            return "done"
        if self.stage != "load":
            return self.stage
        return "log-on" if self.snapshot is None else self.snapshot.phase_of(self.times)


class RunMetrics(Watcher):
    """Keeps the state of a run for exporters, which read it in threads of their own."""

    def __init__(self, scenario: Scenario) -> None:
        self.state = RunState(scenario.name, scenario.run, time.time_ns())

    def stage(self, stage: Stage) -> None:
        self.state = replace(self.state, stage=stage)

    def prepared(self, phase: str, done: int, total: int, client: str | None = None) -> None:
        if client is None:
            self.state = replace(self.state, prepared={**self.state.prepared, phase: (done, total)})

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        self.state = replace(self.state, snapshot=snapshot)

    def done(self, summary: Summary) -> None:
        """Add the summary of the run, which has ended."""
        self.state = replace(self.state, summary=summary)
