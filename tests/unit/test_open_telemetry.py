"""`--otel`: what a collector is sent, read by OpenTelemetry's own schema; and collectors that fail."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from kept_signals import kept_signals
from live_snapshots import WORK
from metrics_pages import fetched, samples
from otlp_receiver import number, otlp_receiver, points
from patience import PATIENCE_S
from run_states import metrics_of, summary_of

from loadsim.cli.metrics.open_telemetry import endpoint, sent_metrics
from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.engine.signals import ended_by_signals
from loadsim.errors import ConfigError
from loadsim.version import __version__

NEVER_S = 3600.0
"""An interval after which there is no second export."""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """It would draw random numbers for its pauses in the middle of other tests."""
    yield
    for thread in threading.enumerate():
        if thread.name == "otel":
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def in_prometheus(name: str, unit: str, counter: bool) -> str:
    """The name that a collector gives a metric in Prometheus.

    Source: OpenTelemetry, Prometheus and OpenMetrics Compatibility, "OTLP Metric points to Prometheus".
    """
    words = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}
    return name.replace(".", "_") + words.get(unit, "") + ("_total" if counter else "")


def test_a_collector_has_what_prometheus_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each metric and value, under the name that a collector makes of it, and nothing more."""
    metrics = metrics_of(tmp_path, WORK)
    metrics.done(summary_of(tmp_path))
    with served_metrics("0", lambda: metrics.state, quiet=True) as port:
        expected = samples(fetched("127.0.0.1", port))
    with otlp_receiver() as receiver, sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
        sent = receiver.metrics()
    found = {}
    for name, metric in sent.items():
        kind = metric.WhichOneof("data")
        prometheus = in_prometheus(name, metric.unit, kind == "sum")
        assert metric.description
        for labels, point in points(metric).items():
            if kind == "histogram":
                found[f"{prometheus}_count", labels] = float(point.count)
                found[f"{prometheus}_sum", labels] = point.sum
                bounds = [*map(repr, point.explicit_bounds), "+Inf"]
                for bound, count in zip(bounds, accumulate(point.bucket_counts), strict=True):
                    found[f"{prometheus}_bucket", labels | {("le", bound)}] = float(count)
            else:
                found[prometheus, labels] = number(point)
    assert found == expected
    assert capsys.readouterr().err == ""


def test_counters_are_cumulative_from_the_beginning(tmp_path: Path) -> None:
    """As the snapshots are; so are histograms."""
    metrics = metrics_of(tmp_path, WORK)
    with otlp_receiver() as receiver, sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
        sent = receiver.metrics()
    for metric in sent.values():
        kind = metric.WhichOneof("data")
        if kind != "gauge":
            data = getattr(metric, kind)
            assert data.aggregation_temporality == 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
            assert kind == "histogram" or data.is_monotonic
            for point in data.data_points:
                assert point.start_time_unix_nano == metrics.state.began_ns < point.time_unix_nano


def test_the_resource_says_who_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With attributes and headers of the usual variables of the environment."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=lab")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
    metrics = metrics_of(tmp_path)
    with otlp_receiver() as receiver, sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
        (resource,) = receiver.requests.get().resource_metrics
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert attributes["service.name"] == "loadsim"
    assert attributes["service.version"] == __version__
    assert attributes["deployment.environment.name"] == "lab"
    assert attributes["service.instance.id"].endswith(f":{os.getpid()}")
    assert receiver.headers["authorization"] == "Bearer secret"


def test_the_last_state_is_sent_once(tmp_path: Path) -> None:
    """At the end, unless the collector has it; in between, at each interval."""
    metrics = metrics_of(tmp_path, WORK)
    with otlp_receiver() as receiver:
        with sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
            assert "loadsim.validity" not in receiver.metrics()
            metrics.done(summary_of(tmp_path))
        assert "loadsim.validity" in receiver.metrics()
        with sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
            receiver.metrics()
        assert receiver.requests.empty()
        with sent_metrics(receiver.url, lambda: metrics.state, interval_s=0.01):
            for _ in range(3):
                receiver.metrics()


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_collector_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One warning at once, and the count at the end."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    metrics = metrics_of(tmp_path, WORK)
    with sent_metrics(url, lambda: metrics.state, interval_s=NEVER_S, timeout_s=1.5):  # one repetition
        metrics.done(summary_of(tmp_path))
    assert capsys.readouterr().err.splitlines() == [
        f"loadsim: --otel: {url} took no metrics: Connection refused; the run goes on",
        f"loadsim: --otel: 2 of 2 exports to {url} failed",
    ]


@pytest.mark.parametrize("status", [400, 401, 404, 500, 503])
def test_a_collector_that_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int) -> None:
    """The reason is its own; when it takes them again, nothing more is said."""
    metrics = metrics_of(tmp_path, WORK)
    with otlp_receiver() as receiver:
        receiver.status = status
        with sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S, timeout_s=0.2):
            receiver.metrics()
    first, *others = capsys.readouterr().err.splitlines()
    assert first.startswith(f"loadsim: --otel: {receiver.url} took no metrics: ")
    assert first.endswith("; the run goes on")
    assert others == [f"loadsim: --otel: 2 of 2 exports to {receiver.url} failed"]


def test_a_collector_that_never_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The end of a run waits for the time limit at most, however long the export takes."""
    metrics = metrics_of(tmp_path, WORK)
    with otlp_receiver() as receiver:
        receiver.silent = True
        with sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S, timeout_s=0.2):
            receiver.metrics()
    assert f"exports to {receiver.url} failed" in capsys.readouterr().err


def test_a_signal_ends_the_last_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It raises nothing: the run has its exit status."""
    metrics = metrics_of(tmp_path, WORK)
    with (
        kept_signals(),
        otlp_receiver(lambda: os.kill(os.getpid(), signal.SIGINT) if metrics.state.summary else None) as receiver,
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has another
        with (
            ended_by_signals(),
            sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S, timeout_s=NEVER_S),
        ):
            receiver.metrics()
            receiver.silent = True
            metrics.done(summary_of(tmp_path))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert "loadsim: --otel: 1 of 2 exports" in capsys.readouterr().err


# --- where --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "sent_to"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/metrics"),
        ("https://[::1]:4318/v1/metrics", "https://[::1]:4318/v1/metrics"),
        ("https://otlp.example.org/otlp", "https://otlp.example.org/otlp/v1/metrics"),
    ],
)
def test_a_url(url: str, sent_to: str) -> None:
    """The path of metrics is added unless it is there."""
    assert endpoint(url) == sent_to


@pytest.mark.parametrize(
    "url",
    ["", "4318", "127.0.0.1:4318", "ftp://x", "http://", "http://x:0", "http://x:99999", "http://[::1", "http://x\n"],
)
def test_no_url(url: str) -> None:
    """One line says what is expected."""
    with pytest.raises(
        ConfigError, match=r"^--otel: expected the URL of an OTLP receiver such as http://127"
    ) as refused:
        endpoint(url)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["http://me:secret@x", "http://secret@x", "http://x/?key=secret", "http://x/#secret"])
def test_a_url_with_a_password(url: str) -> None:
    """It would be in the list of processes; the message does not repeat it."""
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS") as refused:
        endpoint(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "headers",
    ["Authorization: Bearer S3cretToken", "a=b,S3cretToken", "Authorization=Bearer S3cret Token", "S3cretToken"],
)
def test_headers_that_the_exporter_rejects_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], headers: str
) -> None:
    """A colon in place of the equals sign, or no name: what is said goes to the logs of services, without the token."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    metrics = metrics_of(tmp_path)
    with otlp_receiver() as receiver, sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
        receiver.metrics()
    assert "S3cret" not in capsys.readouterr().err


def test_an_environment_that_the_exporter_does_not_understand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names it, before the run; versions of the exporter differ in whether it goes on."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "rar")
    metrics = metrics_of(tmp_path)
    refused = ""
    with otlp_receiver() as receiver:
        try:
            with sent_metrics(receiver.url, lambda: metrics.state, interval_s=NEVER_S):
                receiver.metrics()
        except ConfigError as error:
            refused = str(error)
    (line,) = (refused + capsys.readouterr().err).splitlines()
    assert "rar" in line and line.removeprefix("loadsim: ").startswith("--otel: ")
