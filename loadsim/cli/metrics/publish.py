"""The option `--metrics`, and the figures that it serves."""

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
        "--metrics", metavar="[HOST:]PORT", help="serve Prometheus metrics at this address; default HOST: loopback"
    )


class RunMetrics(View):
    """Keeps a run's figures for requests, which arrive in threads of their own."""

    def __init__(self, scenario: Scenario) -> None:
        self.figures = before(scenario)

    def show(self, figures: LiveFigures) -> None:
        self.figures = figures


@contextmanager
def published_metrics(args: argparse.Namespace, scenario: Scenario) -> Iterator[RunMetrics]:
    """Yield a view, and serve its figures if `--metrics` is given. Raises `ConfigError` for an unusable address."""
    metrics = RunMetrics(scenario)
    if args.metrics is None:
        yield metrics
        return
    if find_spec("prometheus_client") is None:
        raise ConfigError("--metrics: expected prometheus-client to be installed: pip install 'loadsim[metrics]'")
    from loadsim.cli.metrics.prometheus import served_metrics

    with served_metrics(args.metrics, lambda: metrics.figures, quiet=args.quiet):
        yield metrics
