"""Export the metrics of a run as its options say."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec

from loadsim.cli.metrics.state import RunMetrics
from loadsim.cli.options import duration
from loadsim.engine.signals import awaited_signal
from loadsim.errors import ConfigError
from loadsim.model.scenario import Scenario


def add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--metrics", metavar="[HOST:]PORT", help="expose Prometheus metrics at this address")
    parser.add_argument(
        "--metrics-linger",
        metavar="DURATION",
        type=_linger,
        help="with --metrics: keep them for this time after the run, such as 2m; Ctrl-C ends this",
    )
    parser.add_argument(
        "--otel", metavar="URL", help="send the metrics to this OpenTelemetry collector (OTLP over HTTP)"
    )


LONGEST_LINGER_S = 24 * 3600.0


def _linger(text: str) -> float:
    seconds = duration(text)
    if seconds > LONGEST_LINGER_S:
        raise argparse.ArgumentTypeError(f"expected a duration of at most 24h, found {text!r}")
    return seconds


@contextmanager
def published_metrics(args: argparse.Namespace, scenario: Scenario) -> Iterator[RunMetrics]:
    """Yield a watcher, and export what it sees. Raises `ConfigError` if an address cannot be used."""
    if args.metrics_linger is not None and args.metrics is None:
        raise ConfigError("--metrics-linger: expected --metrics, too, found none")
    metrics = RunMetrics(scenario)
    with ExitStack() as exporters:
        if args.metrics is not None:
            _needs("prometheus_client", "prometheus-client", "--metrics")
            from loadsim.cli.metrics.prometheus import served_metrics

            exporters.enter_context(served_metrics(args.metrics, lambda: metrics.state, quiet=args.quiet))
        if args.otel is not None:
            _needs("opentelemetry.exporter.otlp.proto.http", "opentelemetry-exporter-otlp-proto-http", "--otel")
            from loadsim.cli.metrics.open_telemetry import sent_metrics

            exporters.enter_context(sent_metrics(args.otel, lambda: metrics.state))
        yield metrics


def linger(args: argparse.Namespace) -> None:
    """Keep the metrics of a run that has ended, for the time of `--metrics-linger`, or until a signal."""
    if not args.metrics_linger:
        return
    with awaited_signal() as wait:
        if not args.quiet:
            with suppress(BrokenPipeError):  # no reader
                stay = f"Metrics stay for {args.metrics_linger:g} s; Ctrl-C ends this at once."
                print(stay, file=sys.stderr, flush=True)
        wait(args.metrics_linger)


def _needs(package: str, distribution: str, option: str) -> None:
    """Check that a package of an option's extra is installed. Raises `ConfigError`."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:  # a package above it
        found = None
    if found is None:
        extra = option.strip("-")
        raise ConfigError(f"{option}: expected {distribution} to be installed: pip install 'loadsim[{extra}]'")
