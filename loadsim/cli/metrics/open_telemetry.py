"""`--otel`: the metrics of a run, sent to an OpenTelemetry collector by OTLP over HTTP."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from loadsim.cli.metrics.definitions import BOUNDS_S, METRICS, MetricDefinition, Point, Times
from loadsim.cli.metrics.state import RunState
from loadsim.engine.signals import handled_by
from loadsim.errors import ConfigError, printable
from loadsim.version import __version__

INTERVAL_S = 10.0
"""The time between two exports."""

TIMEOUT_S = 5.0
"""The time limit of an export, with its repetitions. At the end of a run, nothing waits longer for the last one."""

PATH = "/v1/metrics"

LONGEST_REASON = 200

LEAST_SECRET = 4
"""The shortest word of a header that is taken for a part of a token."""

UNKNOWN: Any = None
"""The least and the largest time of a histogram, which OTLP does not demand, but the exporter's type does."""

CUMULATIVE = AggregationTemporality.CUMULATIVE


@contextmanager
def sent_metrics(
    url: str, state: Callable[[], RunState], *, interval_s: float = INTERVAL_S, timeout_s: float = TIMEOUT_S
) -> Iterator[None]:
    """Send the metrics of the state at once, at each interval, and at the end, in a thread.

    A failure is counted; the first one and the final count are a warning on standard error.
    Raises `ConfigError` for an invalid URL, or settings in the environment that are invalid.
    """
    where = endpoint(url)
    with _captured_log() as log:
        try:
            exporter = OTLPMetricExporter(where, timeout=timeout_s)
        except Exception as failure:  # noqa: BLE001  it reads OTEL_ variables of the environment, some versions raise
            found = _without_headers(str(failure))
            raise ConfigError(f"--otel: expected valid OTEL_ variables in the environment, found: {found}") from None
        for line in log:  # others log
            _warn(printable(line))
        sender = _Sender(exporter, where.removesuffix(PATH), state, interval_s, log)
        sender.start()
        try:
            yield
        finally:
            sender.end(timeout_s)


def endpoint(url: str) -> str:
    """Return the URL to which metrics are sent, with `/v1/metrics` if it is missing. Raises `ConfigError`."""
    expected = "expected the URL of an OTLP receiver such as http://127.0.0.1:4318"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and url.isprintable()
    except ValueError:  # of the port, or brackets
        usable = False
        parts = urlsplit("")
    if parts.username is not None or parts.query or parts.fragment:  # where passwords and tokens may be: not shown
        raise ConfigError(f"--otel: {expected}, found one with a password, a query or a fragment; {_HEADERS}")
    if not usable:
        raise ConfigError(f"--otel: {expected}, found {printable(url)!r}")
    return url.rstrip("/").removesuffix(PATH) + PATH


_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS in the environment has headers such as a token"


# --- sending ------------------------------------------------------------------------------------------------------


class _Sender:
    """Sends in a thread, so that a collector that never answers delays nothing but itself."""

    def __init__(
        self,
        exporter: OTLPMetricExporter,
        where: str,
        state: Callable[[], RunState],
        interval_s: float,
        log: list[str],
    ) -> None:
        self._exporter = exporter
        self._where = where
        self._state = state
        self._interval_s = interval_s
        self._sent: RunState | None = None
        self._tried = self._failed = 0
        self._ending = Event()
        self._thread = Thread(target=self._run, name="otel", daemon=True)
        self._log = log

    def start(self) -> None:
        self._thread.start()

    def end(self, most_s: float) -> None:
        """Send the last state, unless the collector has it; a signal, or the time limit, ends the wait."""
        signalled = False

        def on_signal(_: bool) -> None:
            nonlocal signalled
            signalled = True

        with handled_by(on_signal, even_if_ignored=True):
            self._ending.set()
            until_s = time.monotonic() + most_s
            while self._thread.is_alive() and not signalled and time.monotonic() < until_s:
                self._thread.join(0.05)
        self._exporter.shutdown()  # ends the pause before a repetition
        self._thread.join(0.05)
        if self._thread.is_alive():
            self._failed += 1
            self._tried += 1
        if self._failed > 1 or (self._failed and self._sent is not self._state()):
            _warn(f"{self._failed} of {self._tried} exports to {self._where} failed")

    def _run(self) -> None:
        self._send()
        while not self._ending.wait(self._interval_s):
            self._send()
        if self._sent is not self._state():
            self._send()

    def _send(self) -> None:
        state = self._state()
        self._log.clear()
        try:
            accepted = self._exporter.export(metrics_data(state, time.time_ns())) is MetricExportResult.SUCCESS
        except Exception as failure:  # noqa: BLE001  a fault of the exporter must not end the thread, nor the run
            accepted = False
            self._log.append(_without_headers(str(failure)))
        self._tried += 1
        if accepted:
            self._sent = state
            return
        self._failed += 1
        if self._failed == 1:
            _warn(f"{self._where} took no metrics: {_reason(self._log)}; the run goes on")


def _warn(line: str) -> None:
    try:
        print(f"loadsim: --otel: {line}", file=sys.stderr, flush=True)
    except OSError:  # no reader
        return


def _reason(log: list[str]) -> str:
    """Return why an export failed: the first that the exporter logged, or the system's error in it."""
    text = printable(log[0] if log else "no reason")
    system = re.search(r"\[Errno -?\d+\] ([\w ]+)", text)
    return system[1] if system else text[:LONGEST_REASON]


def _without_headers(text: str) -> str:
    """Return a text of the exporter with "..." for each word of the headers in the environment, which have tokens."""
    values = [value for name, value in os.environ.items() if re.fullmatch(r"OTEL_\w*HEADERS", name)]
    words = {word for value in values for each in (value, unquote(value)) for word in re.split(r"[\s,;:=]+", each)}
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= LEAST_SECRET:
            text = text.replace(word, "...")
    return text


@contextmanager
def _captured_log() -> Iterator[list[str]]:
    """Yield the lines that the exporter logs; otherwise they would appear on standard error, again and again."""
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(_without_headers(record.getMessage()))

    logger, handler = logging.getLogger("opentelemetry"), Lines(logging.WARNING)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


# --- the data -----------------------------------------------------------------------------------------------------


def metrics_data(state: RunState, now_ns: int) -> MetricsData:
    """Return all metrics of a state that have a value, for the exporter."""
    attributes = {
        "service.name": "loadsim",
        "service.version": __version__,
        "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
    }
    metrics = [
        _metric(metric, points, state.began_ns, now_ns) for metric in METRICS if (points := [*metric.read(state)])
    ]
    scope = ScopeMetrics(InstrumentationScope("loadsim", __version__), metrics, "")
    return MetricsData([ResourceMetrics(Resource.create(attributes), [scope], "")])


def _metric(metric: MetricDefinition, points: list[Point], began_ns: int, now_ns: int) -> Metric:
    numbers, histograms = [], []
    for labels, value in points:
        attributes = dict(zip(metric.labels, labels, strict=True))
        if isinstance(value, Times):
            histogram = HistogramDataPoint(
                attributes=attributes,
                start_time_unix_nano=began_ns,
                time_unix_nano=now_ns,
                count=sum(value.counts),
                sum=value.total_s,
                bucket_counts=value.counts,
                explicit_bounds=BOUNDS_S,
                min=UNKNOWN,
                max=UNKNOWN,
            )
            histograms.append(histogram)
        else:
            exact = int(value) if isinstance(value, int) else float(value)  # protobuf takes no bool, nor NumPy's types
            numbers.append(NumberDataPoint(attributes, began_ns, now_ns, exact))
    data: Gauge | Histogram | Sum
    if metric.kind == "histogram":
        data = Histogram(histograms, CUMULATIVE)
    elif metric.kind == "counter":
        data = Sum(numbers, CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(numbers)
    return Metric(metric.name, metric.help, metric.unit, data)
