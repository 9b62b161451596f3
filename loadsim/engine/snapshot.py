"""Snapshots of engines, once a second: their totals, and the difference between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from loadsim.model.records import FAILURES, GENERATOR
from loadsim.statistics.latency_histogram import about_ms

PHASES = ("log-on", "work", "finish", "drain", "log-off", "over")
"""The phases of an engine, in order."""

Counts = Mapping[str, Mapping[str, int]]
"""Counts by task name and a second key."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The state of an engine. Counts are cumulative, so snapshots can be added up, and losing one does no harm.

    Lags, CPU share and memory are for the last second; None before the first.
    """

    phase: str
    at_s: float | None  # from the common start
    users: int
    users_on: int
    tasks: Counts  # by name and outcome
    accepted_undelivered: int
    sessions_lost: int
    generator_late_most_s: float
    service_times: Counts = field(default_factory=dict)  # for ok tasks, by name and bucket
    service_s: Mapping[str, float] = field(default_factory=dict)  # total service times, by name
    failures: Counts = field(default_factory=dict)  # by task (IDLE: between tasks) and kind
    loop_timed: int = 0  # ok tasks of which the event loop noted the end
    late_busy_s: float = 0.0  # total lateness of tasks because their user was still busy
    late_down_s: float = 0.0  # ... because the session was down
    late_generator_s: float = 0.0  # ... because the generator was late
    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    cpu_share: float | None = None
    rss_bytes: int | None = None

    def ended(self, *outcomes: str) -> int:
        """Return the number of tasks with one of these outcomes."""
        return sum(by_outcome.get(outcome, 0) for by_outcome in self.tasks.values() for outcome in outcomes)

    @property
    def done(self) -> int:
        """The number of ok tasks. In `score.json` and the tables, `done` includes failed tasks."""
        return self.ended("ok")

    @property
    def failed(self) -> int:
        """The number of tasks that were refused, lost or timed out."""
        return self.ended(*FAILURES)

    @property
    def generator_failed(self) -> int:
        return self.ended(GENERATOR)

    @property
    def skipped(self) -> int:
        """The number of tasks that had not begun at the end of the run."""
        return self.ended("skipped")


# --- of several engines -------------------------------------------------------------------------------------------


def total(snapshots: Sequence[LiveSnapshot]) -> LiveSnapshot:
    """Return the total of several engines' snapshots: a sum, except for the keys in `TOTALS`."""
    return LiveSnapshot(
        **{
            each.name: TOTALS.get(each.name, sum)([getattr(snapshot, each.name) for snapshot in snapshots])
            for each in fields(LiveSnapshot)
        }
    )


def of_a_lost_engine(last: LiveSnapshot) -> LiveSnapshot:
    """Return an engine's snapshot after its loss: its counts remain, but none of its users is on."""
    unknown: dict[str, Any] = dict.fromkeys(("at_s", "lag_p99_ms", "lag_max_ms", "cpu_share", "rss_bytes"))
    return replace(last, phase="over", users_on=0, accepted_undelivered=0, **unknown)


def _by_name(figures: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    together: dict[str, Any] = {}
    for figure in figures:
        for name, value in figure.items():
            together[name] = together.get(name, 0) + value
    return together


def _by_both(counts: Sequence[Counts]) -> Counts:
    names = dict.fromkeys(name for count in counts for name in count)
    return {name: _by_name(count[name] for count in counts if name in count) for name in names}


def _known(choose: Callable[[Sequence[float]], float]) -> Callable[[Sequence[float | None]], float | None]:
    """Apply `choose` to the values that are not None; return None if there are none."""

    def chosen(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return chosen


TOTALS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "phase": partial(min, key=PHASES.index),
    "at_s": _known(min),
    "tasks": _by_both,
    "service_times": _by_both,
    "service_s": _by_name,
    "failures": _by_both,
    "generator_late_most_s": max,
    "lag_p99_ms": _known(max),
    "lag_max_ms": _known(max),
    "cpu_share": _known(max),
    "rss_bytes": _known(sum),
}
"""The totals that are not sums: earliest phase and time, worst lags and lateness, busiest core."""


# --- over time ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """The difference between two snapshots of a run, both after the common start."""

    before: LiveSnapshot
    after: LiveSnapshot

    @property
    def seconds(self) -> float:
        return (self.after.at_s or 0.0) - (self.before.at_s or 0.0)

    def ended(self, *outcomes: str) -> int:
        return self.after.ended(*outcomes) - self.before.ended(*outcomes)

    def done(self, task: str) -> int:
        """Return the number of ok tasks with this name."""
        return sum(self.service_times(task).values())

    def about_ms(self, task: str, percentile: float) -> float | None:
        """Estimate a percentile of service times for one name; None without ok tasks."""
        return about_ms(self.service_times(task), percentile)

    def service_times(self, task: str) -> Mapping[str, int]:
        """Return `clock_step_ms` (positive: forward) if the clock was set since the last call, else an empty dict."""
        before = self.before.service_times.get(task, {})
        return {label: count - before.get(label, 0) for label, count in self.after.service_times.get(task, {}).items()}


class Recent:
    """The snapshots of the last `span_s` seconds, and the last one before them."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._snapshots: deque[LiveSnapshot] = deque()

    def add(self, snapshot: LiveSnapshot) -> None:
        """Add a snapshot, unless it was taken before the common start."""
        if snapshot.at_s is None or snapshot.at_s < 0:
            return
        self._snapshots.append(snapshot)
        while len(self._snapshots) > 2 and snapshot.at_s - (self._snapshots[1].at_s or 0.0) >= self._span_s:
            self._snapshots.popleft()

    @property
    def stretch(self) -> Stretch | None:
        """The stretch between the oldest and the newest snapshot; None until there are two."""
        return Stretch(self._snapshots[0], self._snapshots[-1]) if len(self._snapshots) > 1 else None

    @property
    def most_users_on(self) -> int:
        return max((snapshot.users_on for snapshot in self._snapshots), default=0)
