"""`--metrics`: the metrics of a run, served to Prometheus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, cast

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from loadsim.cli.live.figures import LiveFigures
from loadsim.cli.metrics.definitions import BOUNDS_S, METRICS, HistogramTimes, values
from loadsim.cli.options import listening_address
from loadsim.errors import ConfigError
from loadsim.model.host_port import bracketed

BUCKETS = (*(repr(bound_s) for bound_s in BOUNDS_S), "+Inf")
"""The upper bounds of buckets in seconds, as Prometheus writes them: 0.0001 to 100.0, then +Inf."""

FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}


@contextmanager
def served_metrics(where: str, figures: Callable[[], LiveFigures], *, quiet: bool = False) -> Iterator[int]:
    """Serve the metrics of the figures at each request, and yield the port.

    `where` is [HOST:]PORT; port 0 means any free one.

    Raises `ConfigError` for an invalid address, or one that cannot be listened on.
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
    """The collector that Prometheus calls."""

    def __init__(self, figures: Callable[[], LiveFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Any]:
        """Return the metrics. Each request calls this, in a separate thread."""
        families: dict[str, Any] = {
            metric.name: FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels) for metric in METRICS
        }
        for name, labels, value in values(self._figures()):
            if isinstance(value, HistogramTimes):
                buckets = zip(BUCKETS, map(float, accumulate(value.counts)), strict=True)
                families[name].add_metric(labels, [*buckets], value.total_s)
            elif value is not None:
                families[name].add_metric(labels, value)
        return families.values()
