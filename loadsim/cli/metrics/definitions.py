"""The metrics of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loadsim.analysis.summary import Summary
from loadsim.cli.metrics.state import RUN_PHASES, RunState
from loadsim.engine.latency_histogram import LABELS
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.version import __version__

BOUNDS_S = tuple(float(f"{float(label) / 1000:.3g}") for label in LABELS[:-1])
"""The upper bounds of the buckets of a histogram, 100 µs to 100 s; the last bucket has none."""

VALIDITIES = ("valid", "degraded", "invalid")


@dataclass(frozen=True, slots=True)
class Times:
    """Counts of times by bucket, and their sum."""

    counts: Sequence[int]
    total_s: float


Point = tuple[tuple[str, ...], float | Times]
"""The values of the labels of a metric, and its value for them."""


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric: `name` with its unit, without the `_total` of counters; `read` returns the points that are known."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    read: Callable[[RunState], Iterable[Point]]
    labels: tuple[str, ...] = ()


# --- how values are read ------------------------------------------------------------------------------------------


def _live(read: Callable[[LiveSnapshot], float | None]) -> Callable[[RunState], Iterator[Point]]:
    """Return a reader of one value of the last snapshot."""

    def points(state: RunState) -> Iterator[Point]:
        value = None if state.snapshot is None else read(state.snapshot)
        if value is not None:
            yield (), value

    return points


def _final(read: Callable[[Summary], float | None]) -> Callable[[RunState], Iterator[Point]]:
    """Return a reader of one value of the summary."""

    def points(state: RunState) -> Iterator[Point]:
        value = None if state.summary is None else read(state.summary)
        if value is not None:
            yield (), value

    return points


def _service_times(state: RunState) -> Iterator[Point]:
    if state.snapshot is not None:
        for task, counts in state.snapshot.service_times.items():
            yield (task,), Times([counts.get(label, 0) for label in LABELS], state.snapshot.service_s[task])


def _tasks(state: RunState) -> Iterator[Point]:
    if state.snapshot is not None:
        for task, outcomes in state.snapshot.tasks.items():
            yield from (((task, outcome), count) for outcome, count in outcomes.items())


def _failures(state: RunState) -> Iterator[Point]:
    if state.snapshot is not None:
        for task, kinds in state.snapshot.failures.items():
            yield from (((task, kind), count) for kind, count in kinds.items())


def _lateness(state: RunState) -> Iterator[Point]:
    if state.snapshot is not None:
        yield ("busy",), state.snapshot.late_busy_s
        yield ("down",), state.snapshot.late_down_s
        yield ("generator",), state.snapshot.late_generator_s


def _validity(state: RunState) -> Iterator[Point]:
    if state.summary is not None:
        yield from (((validity,), int(validity == state.summary.verdict.validity)) for validity in VALIDITIES)


def _criteria(state: RunState) -> Iterator[Point]:
    if state.summary is not None:
        yield from (((result.name,), int(result.passed)) for result in state.summary.criteria)


def _exact_p95(state: RunState) -> Iterator[Point]:
    if state.summary is not None:
        for task in state.summary.figures.tasks:
            if task.percentile_ms is not None:
                yield (task.task,), task.percentile_ms / 1000


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000


# --- the list -----------------------------------------------------------------------------------------------------

METRICS = (
    # The run: from the first second.
    MetricDefinition(
        "loadsim_run_info",
        "gauge",
        "Always 1; the labels describe the run.",
        lambda state: [((state.scenario, __version__), 1)],
        ("scenario", "version"),
    ),
    MetricDefinition(
        "loadsim_phase",
        "gauge",
        "1 for the current phase of the run.",
        lambda state: [((phase,), int(phase == state.phase)) for phase in RUN_PHASES],
        ("phase",),
    ),
    MetricDefinition(
        "loadsim_planned_seconds",
        "gauge",
        "Length of the run from the common start, as planned.",
        lambda state: [((), state.times.duration_s)],
    ),
    MetricDefinition(
        "loadsim_accounts_prepared",
        "gauge",
        "Accounts that have passed a step of the preparation.",
        lambda state: [((step,), done) for step, (done, _) in state.prepared.items()],
        ("step",),
    ),
    MetricDefinition(
        "loadsim_accounts_to_prepare",
        "gauge",
        "Accounts that a step of the preparation is for.",
        lambda state: [((step,), total) for step, (_, total) in state.prepared.items()],
        ("step",),
    ),
    # The load: from the first snapshot.
    MetricDefinition(
        "loadsim_task_seconds", "histogram", "Service times of tasks that succeeded.", _service_times, ("task",)
    ),
    MetricDefinition("loadsim_tasks", "counter", "Tasks that ended, by outcome.", _tasks, ("task", "outcome")),
    MetricDefinition("loadsim_failures", "counter", "Failed tasks, by kind of failure.", _failures, ("task", "kind")),
    MetricDefinition(
        "loadsim_late_seconds", "counter", "Sum of the lateness of all task starts, by cause.", _lateness, ("cause",)
    ),
    MetricDefinition(
        "loadsim_sessions_lost", "counter", "Sessions that broke.", _live(lambda live: live.sessions_lost)
    ),
    MetricDefinition("loadsim_run_seconds", "gauge", "Time since the common start.", _live(lambda live: live.at_s)),
    MetricDefinition("loadsim_users", "gauge", "Simulated users.", _live(lambda live: live.users)),
    MetricDefinition("loadsim_users_on", "gauge", "Users with a session.", _live(lambda live: live.users_on)),
    MetricDefinition(
        "loadsim_mail_under_way",
        "gauge",
        "Messages accepted and not yet seen by the recipient.",
        _live(lambda live: live.accepted_undelivered),
    ),
    MetricDefinition(
        "loadsim_late_most_seconds",
        "gauge",
        "The largest lateness that loadsim itself caused for one task.",
        _live(lambda live: live.generator_late_most_s),
    ),
    MetricDefinition(
        "loadsim_lag_p99_seconds",
        "gauge",
        "The 99th percentile of the event loop's lag in the last second, of the worst engine.",
        _live(lambda live: _s(live.lag_p99_ms)),
    ),
    MetricDefinition(
        "loadsim_lag_max_seconds",
        "gauge",
        "The largest lag in the last second, of the worst engine.",
        _live(lambda live: _s(live.lag_max_ms)),
    ),
    MetricDefinition(
        "loadsim_cpu_ratio", "gauge", "Share of a core used by the busiest engine.", _live(lambda live: live.cpu_share)
    ),
    MetricDefinition("loadsim_resident_bytes", "gauge", "Memory of all engines.", _live(lambda live: live.rss_bytes)),
    # The verdict: after the end.
    MetricDefinition(
        "loadsim_validity",
        "gauge",
        "1 for the validity of the run, after its end.",
        _validity,
        ("validity",),
    ),
    MetricDefinition(
        "loadsim_passed",
        "gauge",
        "1 if all criteria were met, 0 if not, after the end of the run.",
        _final(lambda summary: summary.verdict.passed),
    ),
    MetricDefinition(
        "loadsim_criterion_passed",
        "gauge",
        "1 if a criterion was met, 0 if not, after the end of the run.",
        _criteria,
        ("criterion",),
    ),
    MetricDefinition(
        "loadsim_exit_status",
        "gauge",
        "The exit status of the run, after its end.",
        _final(lambda summary: summary.exit_status),
    ),
    MetricDefinition(
        "loadsim_score_seconds",
        "gauge",
        "The score of the run, after its end.",
        _final(lambda summary: _s(summary.figures.score_ms)),
    ),
    MetricDefinition(
        "loadsim_task_p95_seconds",
        "gauge",
        "The exact 95th percentile of service times in the window, after the end of the run.",
        _exact_p95,
        ("task",),
    ),
)
