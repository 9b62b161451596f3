"""The live figures of a run, shown by terminal, page and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from loadsim.analysis.generator.limits import lag_limit_ms
from loadsim.analysis.summary import Summary
from loadsim.engine.snapshot import LiveSnapshot, Recent, Stretch
from loadsim.model.records import FAILURES, GENERATOR
from loadsim.model.terms import WITHOUT_WINDOW, Window
from loadsim.runs.watcher import Stage, Watcher
from loadsim.scenario.run_times import RunTimes
from loadsim.scenario.scenario import Scenario
from loadsim.timinglog.planned_load import PlannedLoad
from loadsim.users.activities import TASKS

LATELY_S = 60.0
"""Rates, means and percentiles cover the last minute."""

MOST_PROBE_FIGURES = 1000
"""The most figures kept per probe: a plug-in's probe may invent new names endlessly."""

RUN_PHASES = (
    *("plan", "join", "prepare", "log-on", "warm-up", "window", "after-window"),
    *("finish", "drain", "log-off", "over", "collect", "audit", "analyse", "done"),
)
"""The phases of a run, in order."""


@dataclass(frozen=True, slots=True)
class LiveTask:
    """A task: its counts since the run started, its recent rate, and an estimated 95th percentile, if known."""

    name: str
    done: int
    failed: int
    per_s: float | None = None
    p95_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Lately:
    """Tasks that ended recently, including log-ons: their rate, failed share, and mean lateness by cause."""

    per_s: float
    failed_share: float
    busy_ms: float
    down_ms: float
    generator_ms: float


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """A run at one instant.

    `share` is the finished share of the phase. `prepared` has, for each step of the preparation, how many accounts have
    passed it, out of how many. `load` is the total over all engines; None before their first snapshot. `due` counts the
    tasks planned so far, `made` those that ended; both are None if the plan is unknown. `probes` has the latest
    samples. `summary` and `directory` are set after the end.
    """

    scenario: str
    times: RunTimes
    cpu_limit: float | None
    lag_limit_ms: float | None = None
    stage: Stage = "plan"
    share: float | None = None
    prepared: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    load: LiveSnapshot | None = None
    clients: Mapping[str, LiveSnapshot] = field(default_factory=dict)
    due: int | None = None
    made: int | None = None
    lately: Lately | None = None
    tasks: tuple[LiveTask, ...] = ()
    failures: tuple[tuple[str, int], ...] = ()  # by task and kind, most frequent first
    probes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    summary: Summary | None = None
    directory: Path | None = None

    @property
    def phase(self) -> str:
        """The current phase, one of `RUN_PHASES`: the run's stage, or the phase of its load."""
        if self.summary is not None:
            return "done"
        if self.stage != "load":
            return self.stage
        if self.load is None:
            return "log-on"
        return self.times.part_at(self.load.at_s or 0.0) if self.load.phase == "work" else self.load.phase


class View:
    """Shows a run; this base class shows nothing."""

    def show(self, figures: LiveFigures) -> None:
        """Show the current figures."""

    def message(self, line: str) -> None:
        """Show a fact that needs no action."""

    def warning(self, line: str) -> None:
        """Show a problem that does not end the run."""


def before(scenario: Scenario) -> LiveFigures:
    return LiveFigures(scenario.name, scenario.run, scenario.limits.generator.cpu)


class LiveRun(Watcher):
    """Turns what a run reports into figures, and shows them in views."""

    def __init__(self, scenario: Scenario, *views: View) -> None:
        self.figures = before(scenario)
        self._scenario = scenario
        self._views = views
        self._recent = Recent(LATELY_S)
        self._plan: PlannedLoad | None = None

    def stage(self, stage: Stage) -> None:
        self._show(replace(self.figures, stage=stage, share=None))

    def message(self, line: str) -> None:
        for view in self._views:
            view.message(line)

    def warning(self, line: str) -> None:
        for view in self._views:
            view.warning(line)

    def planned(self, share: float) -> None:
        self._show(replace(self.figures, share=share))

    def due(self, tasks: Mapping[str, Sequence[int]]) -> None:
        self._plan = PlannedLoad(self._scenario.duration_s, {task: tuple(counts) for task, counts in tasks.items()})

    def prepared(self, phase: str, done: int, total: int) -> None:
        steps = {**self.figures.prepared, phase: (done, total)}
        self._show(replace(self.figures, prepared=steps, share=done / total if total else None))

    def sampled(self, probe: str, figures: Mapping[str, float]) -> None:
        newest = {**self.figures.probes.get(probe, {}), **figures}
        kept = dict(islice(newest.items(), MOST_PROBE_FIGURES))
        self.figures = replace(self.figures, probes={**self.figures.probes, probe: kept})

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        self._recent.add(snapshot)
        stretch = self._recent.stretch
        due, made = _due_and_made(self._plan, snapshot)
        kinds = {f"{task}: {kind}": n for task, counts in snapshot.failures.items() for kind, n in counts.items()}
        self._show(
            replace(
                self.figures,
                load=snapshot,
                clients=dict(clients),
                share=_share_of_phase(snapshot, self.figures.times),
                due=due,
                made=made,
                lately=_lately(stretch),
                tasks=_by_task(snapshot, stretch),
                failures=tuple(sorted(kinds.items(), key=lambda kind: -kind[1])),
                lag_limit_ms=_lag_limit_ms(stretch, self._scenario, snapshot),
            )
        )

    def done(self, summary: Summary, directory: Path) -> None:
        self._show(replace(self.figures, summary=summary, directory=directory, share=1.0))

    def _show(self, figures: LiveFigures) -> None:
        self.figures = figures
        for view in self._views:
            view.show(figures)


def _due_and_made(plan: PlannedLoad | None, load: LiveSnapshot) -> tuple[int, int] | tuple[None, None]:
    """Count the tasks planned so far, and those that ended; None if the plan is unknown."""
    if plan is None:
        return None, None
    due = plan.in_window(Window(0.0, load.at_s or 0.0))
    counts = (load.tasks.get(task, {}) for task in due)
    made = sum(outcomes.get(outcome, 0) for outcomes in counts for outcome in ("ok", *FAILURES, GENERATOR))
    return sum(due.values()), made


def _share_of_phase(snapshot: LiveSnapshot, times: RunTimes) -> float | None:
    if snapshot.phase == "log-on":
        return snapshot.users_on / snapshot.users
    return min(max(snapshot.at_s or 0.0, 0.0) / times.duration_s, 1.0) if snapshot.phase == "work" else 1.0


def _lately(stretch: Stretch | None) -> Lately | None:
    """Return the figures of the last minute; None before the second snapshot, or if no task ended."""
    if stretch is None or stretch.seconds <= 0 or not (ended := stretch.ended("ok", *FAILURES)):
        return None
    first, last = stretch.before, stretch.after
    return Lately(
        per_s=ended / stretch.seconds,
        failed_share=stretch.ended(*FAILURES) / ended,
        busy_ms=(last.late_busy_s - first.late_busy_s) / ended * 1000,
        down_ms=(last.late_down_s - first.late_down_s) / ended * 1000,
        generator_ms=(last.late_generator_s - first.late_generator_s) / ended * 1000,
    )


def _by_task(snapshot: LiveSnapshot, stretch: Stretch | None) -> tuple[LiveTask, ...]:
    """Return the figures of each task that ended; log-ons and log-offs come last."""
    of_plugins = sorted(snapshot.tasks.keys() - TASKS.keys())
    known = [task for task in (*TASKS, *of_plugins) if task in snapshot.tasks]
    rows = []
    for name in sorted(known, key=WITHOUT_WINDOW.__contains__):
        outcomes = snapshot.tasks[name]
        failed = sum(outcomes.get(outcome, 0) for outcome in FAILURES)
        lately = stretch.done(name) if stretch is not None and stretch.seconds > 0 else 0
        per_s = lately / stretch.seconds if stretch is not None and lately else None
        p95_ms = stretch.about_ms(name, 95) if stretch is not None and lately else None
        rows.append(LiveTask(name, outcomes.get("ok", 0), failed, per_s, p95_ms))
    return tuple(rows)


def _lag_limit_ms(stretch: Stretch | None, scenario: Scenario, snapshot: LiveSnapshot) -> float | None:
    """Return the limit on the event loop's lag, which depends on the last minute's fastest scored task."""
    scored = [task for task, weight in scenario.weights.items() if weight > 0]
    p95s_ms = [] if stretch is None else [stretch.about_ms(task, 95) for task in scored]
    fastest_ms = min((p95_ms for p95_ms in p95s_ms if p95_ms is not None), default=None)
    loop_share = snapshot.loop_timed / snapshot.done if snapshot.done else None
    return lag_limit_ms(scenario.limits.generator, fastest_ms, loop_share)
