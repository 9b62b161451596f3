"""Serve the metrics of a run as its options say."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from loadsim.cli.live.figures import LiveFigures, View, before
from loadsim.cli.live.stderr_lines import print_line
from loadsim.cli.options import duration
from loadsim.engine.signals import awaited_signal
from loadsim.errors import ConfigError
from loadsim.model.scenario import Scenario


def add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", metavar="[HOST:]PORT", help="expose Prometheus metrics at this address; without HOST, on loopback"
    )
    parser.add_argument(
        "--metrics-linger",
        metavar="DURATION",
        type=_linger,
        help="with --metrics: keep them for this time after the run, such as 2m; Ctrl-C ends this",
    )


LONGEST_LINGER_S = 24 * 3600.0


def _linger(text: str) -> float:
    seconds = duration(text)
    if seconds > LONGEST_LINGER_S:
        raise argparse.ArgumentTypeError(f"expected a duration of at most 24h, found {text!r}")
    return seconds


class RunMetrics(View):
    """Keeps the figures of a run for requests, which come in threads of their own."""

    def __init__(self, scenario: Scenario) -> None:
        self.figures = before(scenario)

    def show(self, figures: LiveFigures) -> None:
        self.figures = figures


@contextmanager
def published_metrics(args: argparse.Namespace, scenario: Scenario) -> Iterator[RunMetrics]:
    """Yield a view, and serve its figures. Raises `ConfigError` if an address cannot be used."""
    if args.metrics_linger is not None and args.metrics is None:
        raise ConfigError("--metrics-linger: expected --metrics, too, found none")
    metrics = RunMetrics(scenario)
    if args.metrics is None:
        yield metrics
        return
    if find_spec("prometheus_client") is None:
        raise ConfigError("--metrics: expected prometheus-client to be installed: pip install 'loadsim[metrics]'")
    from loadsim.cli.metrics.prometheus import served_metrics

    with served_metrics(args.metrics, lambda: metrics.figures, quiet=args.quiet):
        yield metrics


def linger(args: argparse.Namespace) -> None:
    """Keep the metrics of a run that has ended, for the time of `--metrics-linger`, or until a signal."""
    if not args.metrics_linger:
        return
    with awaited_signal() as wait:
        if not args.quiet:
            print_line(f"Metrics stay for {args.metrics_linger:g} s; Ctrl-C ends this at once.")
        wait(args.metrics_linger)
