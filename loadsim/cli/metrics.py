"""`--metrics`: the last snapshot of a run as Prometheus metrics."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from loadsim.engine.latency_histogram import LABELS
from loadsim.engine.snapshot import PHASES, LiveSnapshot
from loadsim.errors import ConfigError

HOST = "127.0.0.1"
"""The default address of metrics, which only this machine can reach."""

BUCKETS = tuple("+Inf" if label == "inf" else repr(float(f"{float(label) / 1000:.3g}")) for label in LABELS)
"""The upper bounds of a snapshot's buckets in seconds, as Prometheus writes them: 0.0001 to 100.0, then +Inf."""

ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]:|(?P<host>[^:\[\]\s]*):)?(?P<port>\d{1,5})")


@contextmanager
def served_metrics(where: str, *, quiet: bool = False) -> Iterator[Callable[[LiveSnapshot], None]]:
    """Serve metrics, and yield a function that takes each snapshot. `where` is [HOST:]PORT; port 0 means any free one.

    Raises `ConfigError` for an invalid address, or one that cannot be listened on.
    """
    host, port = address(where)
    exposition = Exposition()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, exposition))  # it has the methods of a Collector
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, UnicodeError) as failure:  # UnicodeError for an invalid host name
        why = getattr(failure, "strerror", None) or failure
        raise ConfigError(f"--metrics: expected to listen at {where}, found: {why}") from None
    try:
        if not quiet:
            shown = f"[{host}]" if ":" in host else host
            print(f"Metrics: http://{shown}:{server.server_port}/metrics", file=sys.stderr, flush=True)
        yield exposition.show
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def address(where: str) -> tuple[str, int]:
    """Parse [HOST:]PORT. Raises `ConfigError`."""
    found = ADDRESS.fullmatch(where)
    if found is None or int(found["port"]) > 65535:
        raise ConfigError(f"--metrics: expected [HOST:]PORT such as {HOST}:9464, found {where!r}")
    return found["v6"] or found["host"] or HOST, int(found["port"])


class Exposition:
    """The collector that Prometheus calls: the metrics of the latest snapshot, none before the first."""

    def __init__(self) -> None:
        self._snapshot: LiveSnapshot | None = None

    def show(self, snapshot: LiveSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Each request calls this, in a separate thread."""
        snapshot = self._snapshot
        return [] if snapshot is None else [*_of_tasks(snapshot), *_of_the_run(snapshot)]


def _of_tasks(snapshot: LiveSnapshot) -> Iterator[Metric]:
    seconds = HistogramMetricFamily("loadsim_task_seconds", "Service times of tasks that succeeded.", labels=["task"])
    for task, counts in snapshot.service_times.items():
        cumulative = accumulate(counts.get(label, 0) for label in LABELS)
        buckets = [(bound, float(count)) for bound, count in zip(BUCKETS, cumulative, strict=True)]
        seconds.add_metric([task], buckets, snapshot.service_s[task])
    yield seconds
    tasks = CounterMetricFamily("loadsim_tasks", "Tasks that ended, by outcome.", labels=["task", "outcome"])
    for task, outcomes in snapshot.tasks.items():
        for outcome, count in outcomes.items():
            tasks.add_metric([task, outcome], count)
    yield tasks
    failures = CounterMetricFamily("loadsim_failures", "Failed tasks, by kind of failure.", labels=["task", "kind"])
    for task, kinds in snapshot.failures.items():
        for kind, count in kinds.items():
            failures.add_metric([task, kind], count)
    yield failures
    late = CounterMetricFamily(
        "loadsim_late_seconds", "Sum of the lateness of all task starts, by cause.", labels=["cause"]
    )
    late.add_metric(["busy"], snapshot.late_busy_s)
    late.add_metric(["down"], snapshot.late_down_s)
    late.add_metric(["generator"], snapshot.late_generator_s)
    yield late


def _of_the_run(snapshot: LiveSnapshot) -> Iterator[Metric]:
    phase = GaugeMetricFamily("loadsim_phase", "1 for the current phase of the run.", labels=["phase"])
    for name in PHASES:
        phase.add_metric([name], name == snapshot.phase)
    yield phase
    yield CounterMetricFamily("loadsim_sessions_lost", "Sessions that broke.", value=snapshot.sessions_lost)
    for name, what, value in (
        ("run_seconds", "Time since the common start.", snapshot.at_s),
        ("users", "Simulated users.", snapshot.users),
        ("users_on", "Users with a session.", snapshot.users_on),
        ("mail_under_way", "Messages accepted and not yet seen by the recipient.", snapshot.accepted_undelivered),
        (
            "late_most_seconds",
            "The largest lateness that loadsim itself caused for one task.",
            snapshot.generator_late_most_s,
        ),
        ("lag_p99_seconds", "The event loop's lag in the last second, of the worst engine.", _s(snapshot.lag_p99_ms)),
        ("lag_max_seconds", "The longest lag in the last second, of the worst engine.", _s(snapshot.lag_max_ms)),
        ("cpu_ratio", "Share of a core used by the busiest engine.", snapshot.cpu_share),
        ("resident_bytes", "Memory of all engines.", snapshot.rss_bytes),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"loadsim_{name}", what, value=value)


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1000
