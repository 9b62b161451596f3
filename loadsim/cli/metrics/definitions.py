"""The metrics of a run, and their values by its live figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from loadsim.cli.live.figures import RUN_PHASES, LiveFigures
from loadsim.engine.latency_histogram import LABELS
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.version import __version__

BOUNDS_S = tuple(float(f"{float(label) / 1000:.3g}") for label in LABELS[:-1])
"""The upper bounds of the buckets of a histogram, 100 µs to 100 s; the last bucket has none."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: `name` with its unit, without the `_total` of counters; `help` describes it to Prometheus."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS = (
    # The run: from the first second.
    Metric("loadsim_run_info", "gauge", "Always 1; the labels describe the run.", ("scenario", "version")),
    Metric("loadsim_phase", "gauge", "1 for the current phase of the run.", ("phase",)),
    Metric("loadsim_planned_seconds", "gauge", "Length of the run from the common start, as planned."),
    Metric("loadsim_accounts_prepared", "gauge", "Accounts that have passed a step of the preparation.", ("step",)),
    Metric("loadsim_accounts_to_prepare", "gauge", "Accounts that a step of the preparation is for.", ("step",)),
    # The load: from the first snapshot.
    Metric("loadsim_task_seconds", "histogram", "Service times of tasks that succeeded.", ("task",)),
    Metric("loadsim_tasks", "counter", "Tasks that ended, by outcome.", ("task", "outcome")),
    Metric("loadsim_failures", "counter", "Failed tasks, by kind of failure.", ("task", "kind")),
    Metric("loadsim_late_seconds", "counter", "Sum of the lateness of all task starts, by cause.", ("cause",)),
    Metric("loadsim_sessions_lost", "counter", "Sessions that broke."),
    Metric("loadsim_run_seconds", "gauge", "Time since the common start."),
    Metric("loadsim_users", "gauge", "Simulated users."),
    Metric("loadsim_users_on", "gauge", "Users with a session."),
    Metric("loadsim_mail_under_way", "gauge", "Messages accepted and not yet seen by the recipient."),
    Metric("loadsim_late_most_seconds", "gauge", "The largest lateness that loadsim itself caused for one task."),
    Metric(
        "loadsim_lag_p99_seconds",
        "gauge",
        "The 99th percentile of the event loop's lag in the last second, of the worst engine.",
    ),
    Metric("loadsim_lag_max_seconds", "gauge", "The largest lag in the last second, of the worst engine."),
    Metric("loadsim_cpu_ratio", "gauge", "Share of a core used by the busiest engine."),
    Metric("loadsim_resident_bytes", "gauge", "Memory of all engines."),
)


@dataclass(frozen=True, slots=True)
class HistogramTimes:
    """Counts of times by bucket, and their sum."""

    counts: Sequence[int]
    total_s: float


Value = tuple[str, tuple[str, ...], float | HistogramTimes | None]
"""The name of a metric, the values of its labels, and its value for them; None is unknown."""


def values(figures: LiveFigures) -> Iterator[Value]:
    yield "loadsim_run_info", (figures.scenario, __version__), 1
    for phase in RUN_PHASES:
        yield "loadsim_phase", (phase,), int(phase == figures.phase)
    yield "loadsim_planned_seconds", (), figures.times.duration_s
    for step, (done, total) in figures.prepared.items():
        yield "loadsim_accounts_prepared", (step,), done
        yield "loadsim_accounts_to_prepare", (step,), total
    if figures.load is not None:
        yield from _of_load(figures.load)


def _of_load(load: LiveSnapshot) -> Iterator[Value]:
    for task, counts in load.service_times.items():
        times = HistogramTimes([counts.get(label, 0) for label in LABELS], load.service_s[task])
        yield "loadsim_task_seconds", (task,), times
    for name, counted in (("loadsim_tasks", load.tasks), ("loadsim_failures", load.failures)):
        for task, of_task in counted.items():
            yield from ((name, (task, other), count) for other, count in of_task.items())
    yield "loadsim_late_seconds", ("busy",), load.late_busy_s
    yield "loadsim_late_seconds", ("down",), load.late_down_s
    yield "loadsim_late_seconds", ("generator",), load.late_generator_s
    yield "loadsim_sessions_lost", (), load.sessions_lost
    yield "loadsim_run_seconds", (), load.at_s
    yield "loadsim_users", (), load.users
    yield "loadsim_users_on", (), load.users_on
    yield "loadsim_mail_under_way", (), load.accepted_undelivered
    yield "loadsim_late_most_seconds", (), load.generator_late_most_s
    yield "loadsim_lag_p99_seconds", (), _s(load.lag_p99_ms)
    yield "loadsim_lag_max_seconds", (), _s(load.lag_max_ms)
    yield "loadsim_cpu_ratio", (), load.cpu_share
    yield "loadsim_resident_bytes", (), load.rss_bytes


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
