"""`--metrics`: the live figures of a run, served to Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from loadsim.cli.live.figures import RUN_PHASES, LiveFigures
from loadsim.cli.options import listening_address
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed
from loadsim.statistics.latency_histogram import BOUNDS_MS, LABELS
from loadsim.version import __version__

BUCKETS = (*(repr(float(f"{bound_ms / 1000:.3g}")) for bound_ms in BOUNDS_MS), "+Inf")
"""The buckets' upper bounds in seconds, as Prometheus writes them: 0.0001 to 100.0, then +Inf."""

Values = Iterable[tuple[Sequence[str], float]]
"""The values of a metric, each preceded by its label values."""


@contextmanager
def served_metrics(where: str, figures: Callable[[], LiveFigures], *, quiet: bool = False) -> Iterator[int]:
    """Serve the current figures as metrics, and yield the port.

    `where` is [HOST:]PORT; port 0 means any free port. Raises `ConfigError` if it is invalid or cannot be used.
    """
    host, port = listening_address("--metrics", where)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, Exposition(figures)))  # it has the methods of a Collector
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as failure:  # UnicodeError for an invalid host name
        why = getattr(failure, "strerror", None) or failure
        raise ConfigError(f"--metrics: expected to listen at {where}, found: {why}") from None
    try:
        if not quiet:
            print(f"Metrics: http://{bracketed(host)}:{server.server_port}/metrics", file=sys.stderr, flush=True)
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Exposition:
    def __init__(self, figures: Callable[[], LiveFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Any]:
        """Yield all metrics known so far. Each request calls this, in a separate thread."""
        figures = self._figures()
        yield from _of_run(figures)
        if figures.load is not None:
            yield from _of_load(figures.load)


def _gauge(name: str, meaning: str, value: float | None) -> Any:
    gauge = GaugeMetricFamily(name, meaning)
    if value is not None:
        gauge.add_metric((), value)
    return gauge


def _labelled(family: Any, values: Values) -> Any:
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _of_run(figures: LiveFigures) -> Iterator[Any]:
    info = GaugeMetricFamily(
        "loadsim_run_info", "Always 1; the labels describe the run.", labels=("scenario", "version")
    )
    yield _labelled(info, [((figures.scenario, __version__), 1)])
    phases = GaugeMetricFamily("loadsim_phase", "1 for the current phase of the run.", labels=("phase",))
    yield _labelled(phases, (((phase,), int(phase == figures.phase)) for phase in RUN_PHASES))
    length_s = figures.times.duration_s
    yield _gauge("loadsim_planned_seconds", "Length of the run from the common start, as planned.", length_s)
    for name, meaning, at in (
        ("loadsim_accounts_prepared", "Accounts that have passed a step of the preparation.", 0),
        ("loadsim_accounts_to_prepare", "Accounts that need a step of the preparation.", 1),
    ):
        accounts = GaugeMetricFamily(name, meaning, labels=("step",))
        yield _labelled(accounts, (((step,), counts[at]) for step, counts in figures.prepared.items()))


def _of_load(load: LiveSnapshot) -> Iterator[Any]:
    times = HistogramMetricFamily("loadsim_task_seconds", "Service times of tasks that succeeded.", labels=("task",))
    for task, counts in load.service_times.items():
        up_to = accumulate(float(counts.get(label, 0)) for label in LABELS)
        times.add_metric((task,), list(zip(BUCKETS, up_to, strict=True)), load.service_s[task])
    yield times
    for name, meaning, label, by_task in (
        ("loadsim_tasks", "Tasks that ended, by outcome.", "outcome", load.tasks),
        ("loadsim_failures", "Failed tasks, by kind of failure.", "kind", load.failures),
    ):
        values = (((task, key), count) for task, counts in by_task.items() for key, count in counts.items())
        yield _labelled(CounterMetricFamily(name, meaning, labels=("task", label)), values)
    late = {"busy": load.late_busy_s, "down": load.late_down_s, "generator": load.late_generator_s}
    causes = CounterMetricFamily(
        "loadsim_late_seconds", "Sum of the lateness of all task starts, by cause.", labels=("cause",)
    )
    yield _labelled(causes, (((cause,), late_s) for cause, late_s in late.items()))
    yield _labelled(CounterMetricFamily("loadsim_sessions_lost", "Sessions that broke."), [((), load.sessions_lost)])
    yield _gauge("loadsim_run_seconds", "Time since the common start.", load.at_s)
    yield _gauge("loadsim_users", "Simulated users.", load.users)
    yield _gauge("loadsim_users_on", "Users with a session.", load.users_on)
    undelivered = load.accepted_undelivered
    yield _gauge("loadsim_mail_under_way", "Messages accepted but not yet seen by the recipient.", undelivered)
    late_most = "The largest delay of a task caused by loadsim itself."
    yield _gauge("loadsim_late_most_seconds", late_most, load.generator_late_most_s)
    lag_p99 = "The 99th percentile of the worst engine's event-loop lag in the last second."
    yield _gauge("loadsim_lag_p99_seconds", lag_p99, _s(load.lag_p99_ms))
    lag_max = "The worst engine's largest event-loop lag in the last second."
    yield _gauge("loadsim_lag_max_seconds", lag_max, _s(load.lag_max_ms))
    yield _gauge("loadsim_cpu_ratio", "Share of a core used by the busiest engine.", load.cpu_share)
    yield _gauge("loadsim_resident_bytes", "Memory of all engines.", load.rss_bytes)


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
