"""Where a run stands: what an engine says of itself once a second, how several add up, and what came in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from loadsim.engine.latency_histogram import about_ms
from loadsim.model.records import FAILURES, GENERATOR
from loadsim.timinglog.json_checks import Check, each_in, having, number, or_none, whole, word

PHASES = ("log-on", "work", "finish", "drain", "log-off", "over")
"""The phases of an engine's life, in their order."""

Counts = Mapping[str, Mapping[str, int]]
"""How many, by the name of the task and then by something else."""


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """Where an engine stands. All counts are cumulative, so that snapshots of engines add up and none is missed.

    Lags, share of a core and memory are of the last second; None before there was one.
    """

    phase: str
    at_s: float | None  # from the common start
    users: int
    users_on: int
    tasks: Counts  # by name and outcome
    accepted_undelivered: int
    sessions_lost: int
    generator_late_most_s: float
    service_times: Counts = field(default_factory=dict)  # of those that are ok, by name and bucket
    service_s: Mapping[str, float] = field(default_factory=dict)  # the same together, by name
    failures: Counts = field(default_factory=dict)  # by task (IDLE: between tasks) and kind
    late_busy_s: float = 0.0  # how late tasks began because their user was still busy, all together
    late_down_s: float = 0.0  # ... because the session was down
    late_generator_s: float = 0.0  # ... because we were late
    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    cpu_share: float | None = None
    rss_bytes: int | None = None

    def ended(self, *outcomes: str) -> int:
        """How many tasks came to one of these outcomes."""
        return sum(by_outcome.get(outcome, 0) for by_outcome in self.tasks.values() for outcome in outcomes)

    @property
    def done(self) -> int:
        """How many tasks succeeded."""
        return self.ended("ok")

    @property
    def failed(self) -> int:
        """How many were refused, lost or timed out."""
        return self.ended(*FAILURES)

    @property
    def generator_failed(self) -> int:
        """The number of tasks in which the generator itself failed."""
        return self.ended(GENERATOR)

    @property
    def skipped(self) -> int:
        """How many had not begun when the run ended."""
        return self.ended("skipped")


def read_snapshot(about: Mapping[str, Any]) -> tuple[LiveSnapshot, int]:
    """Return a member's snapshot and its count of `heard` messages (`Leader.watch`). Raises `ValueError`."""
    wrong = _told(about) or next((f"no key {key[:40]!r}" for key in about if key not in _KEYS), None)
    if wrong:
        raise ValueError(f"control protocol: snapshot: expected {wrong}")
    return LiveSnapshot(**{key: value for key, value in about.items() if key != "heard"}), about["heard"]


_COUNT, _AMOUNT = whole(0, 2**53), number(0, 1e15)
_COUNTS = each_in(each_in(_COUNT))

_NEEDED: Mapping[str, Check] = {
    "heard": _COUNT,
    "phase": word(*PHASES),
    "at_s": or_none(number(-1e9, 1e9)),
    **dict.fromkeys(("users", "users_on", "accepted_undelivered", "sessions_lost"), _COUNT),
    "tasks": _COUNTS,
    "generator_late_most_s": _AMOUNT,
}

_KEYS: Mapping[str, Check] = {
    **_NEEDED,
    **dict.fromkeys(("service_times", "failures"), _COUNTS),
    "service_s": each_in(_AMOUNT),
    **dict.fromkeys(("late_busy_s", "late_down_s", "late_generator_s"), _AMOUNT),
    **dict.fromkeys(("lag_p99_ms", "lag_max_ms", "cpu_share"), or_none(number(-1e15, 1e15))),
    "rss_bytes": or_none(_COUNT),
}

_told = having(_NEEDED, _KEYS)


# --- of several engines -------------------------------------------------------------------------------------------


def total(snapshots: Sequence[LiveSnapshot]) -> LiveSnapshot:
    """Where a run stands: its engines' snapshots together, each key as `TOTALS` says; all others are sums."""
    return LiveSnapshot(
        **{
            each.name: TOTALS.get(each.name, sum)([getattr(snapshot, each.name) for snapshot in snapshots])
            for each in fields(LiveSnapshot)
        }
    )


def of_a_lost_engine(last: LiveSnapshot) -> LiveSnapshot:
    """What remains of an engine that is gone: what it had counted, and users of whom nobody is on."""
    return replace(
        last,
        phase="over",
        at_s=None,
        users_on=0,
        accepted_undelivered=0,
        lag_p99_ms=None,
        lag_max_ms=None,
        cpu_share=None,
        rss_bytes=None,
    )


def _least_far(phases: Sequence[str]) -> str:
    return min(phases, key=PHASES.index)


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
    """The same of those values that there are; None when there is none."""

    def chosen(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return chosen


TOTALS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "phase": _least_far,
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
"""Of several engines: the phase and the time of the one that has come least far; the worst lag, the busiest core."""


# --- of some time -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """What came between two snapshots of a run; both are from after the common start."""

    before: LiveSnapshot
    after: LiveSnapshot

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.after.at_s or 0.0) - (self.before.at_s or 0.0)

    def ended(self, *outcomes: str) -> int:
        """How many tasks came to one of these outcomes."""
        return self.after.ended(*outcomes) - self.before.ended(*outcomes)

    def done(self, task: str) -> int:
        """How many of one name succeeded."""
        return sum(self._times(task).values())

    def about_ms(self, task: str, percentile: float) -> float | None:
        """About a percentile of the service times of one name; None when none succeeded."""
        return about_ms(self._times(task), percentile)

    def _times(self, task: str) -> Mapping[str, int]:
        before = self.before.service_times.get(task, {})
        return {label: count - before.get(label, 0) for label, count in self.after.service_times.get(task, {}).items()}


class Recent:
    """The snapshots of the last `span_s` seconds, and the one before them."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._snapshots: deque[LiveSnapshot] = deque()

    def add(self, snapshot: LiveSnapshot) -> None:
        """One more; what was before the common start is none."""
        if snapshot.at_s is None or snapshot.at_s < 0:
            return
        self._snapshots.append(snapshot)
        while len(self._snapshots) > 2 and snapshot.at_s - (self._snapshots[1].at_s or 0.0) >= self._span_s:
            self._snapshots.popleft()

    @property
    def stretch(self) -> Stretch | None:
        """As long as the span, once there is so much; None before there are two snapshots."""
        return Stretch(self._snapshots[0], self._snapshots[-1]) if len(self._snapshots) > 1 else None

    @property
    def most_users_on(self) -> int:
        """Of any of them."""
        return max((snapshot.users_on for snapshot in self._snapshots), default=0)
