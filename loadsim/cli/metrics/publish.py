"""Serve the metrics of a run as its options say."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from loadsim.cli.live.figures import LiveFigures, View, before
from loadsim.errors import ConfigError
from loadsim.scenario.scenario import Scenario


def add_metrics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics", metavar="[HOST:]PORT", help="expose Prometheus metrics at this address; without HOST, on loopback"
    )


class RunMetrics(View):
    """Keeps the figures of a run for requests, which come in threads of their own."""

    def __init__(self, scenario: Scenario) -> None:
        self.figures = before(scenario)

    def show(self, figures: LiveFigures) -> None:
        self.figures = figures


@contextmanager
def published_metrics(args: argparse.Namespace, scenario: Scenario) -> Iterator[RunMetrics]:
    """Yield a view, and serve its figures to `--metrics`. Raises `ConfigError` if an address cannot be used."""
    metrics = RunMetrics(scenario)
    if args.metrics is None:
        yield metrics
        return
    if find_spec("prometheus_client") is None:
        raise ConfigError("--metrics: expected prometheus-client to be installed: pip install 'loadsim[metrics]'")
    from loadsim.cli.metrics.prometheus import served_metrics

    with served_metrics(args.metrics, lambda: metrics.figures, quiet=args.quiet):
        yield metrics
