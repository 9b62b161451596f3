"""`--metrics`: the metrics of a run, served to Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from loadsim.cli.metrics.definitions import BOUNDS_S, METRICS, MetricDefinition, Times
from loadsim.cli.metrics.state import RunState
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed, host_and_port

HOST = "127.0.0.1"
"""The default address of metrics, which only this machine can reach."""

BUCKETS = (*(repr(bound_s) for bound_s in BOUNDS_S), "+Inf")
"""The upper bounds of buckets in seconds, as Prometheus writes them: 0.0001 to 100.0, then +Inf."""

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


@contextmanager
def served_metrics(where: str, state: Callable[[], RunState], *, quiet: bool = False) -> Iterator[int]:
    """Serve the metrics of the state at each request, and yield the port.

    `where` is [HOST:]PORT; port 0 means any free one.

    Raises `ConfigError` for an invalid address, or one that cannot be listened on.
    """
    host, port = address(where)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast(Any, Exposition(state)))  # it has the methods of a Collector
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


def address(where: str) -> tuple[str, int]:
    """Parse [HOST:]PORT. Raises `ConfigError`."""
    try:
        return host_and_port(where, host=HOST)
    except ValueError as wrong:
        raise ConfigError(f"--metrics: expected [HOST:]PORT such as {HOST}:9464, found {where!r}{wrong}") from None


class Exposition:
    """The collector that Prometheus calls."""

    def __init__(self, state: Callable[[], RunState]) -> None:
        self._state = state

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Each request calls this, in a separate thread."""
        state = self._state()
        return [_family(metric, state) for metric in METRICS]


def _family(metric: MetricDefinition, state: RunState) -> Metric:
    family: Any = FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.read(state):
        if isinstance(value, Times):
            buckets = [(bound, float(count)) for bound, count in zip(BUCKETS, accumulate(value.counts), strict=True)]
            family.add_metric(labels, buckets, value.total_s)
        else:
            family.add_metric(labels, value)
    return cast(Metric, family)
