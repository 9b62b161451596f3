"""The probe `prometheus`: an HTTP endpoint's metrics in Prometheus' or OpenMetrics' text format."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services
from loadsim.model.terms import FIGURE_NAME
from loadsim.monitor.counter_rates import RisingCounters
from loadsim.monitor.metrics_endpoint import LABEL, Labels, address_of, fetched_page, labels_at, samples_of
from loadsim.monitor.probe_values import finite_number, number_of, text_of
from loadsim.monitor.probes import MOST_FIGURES

LONGEST_S = 60.0
START = "process_start_time_seconds"
"""A metric that most endpoints have. It changes when their process restarts, with all counters at 0."""

_SELECTOR = rf"([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(\{{[ \t]*(?:{LABEL}[ \t]*(?:,[ \t]*|(?=\}})))*\}})?"
_ITEM = re.compile(rf'[ \t]*(?:([^=,(){{}}"]*)=)?[ \t]*(?:(rate\()[ \t]*{_SELECTOR}[ \t]*\)|{_SELECTOR})[ \t]*')


@dataclass(frozen=True, slots=True)
class ScrapedMetric:
    """A figure in the settings: the sample with this name and, at least, these labels; its rate if `is_rate`."""

    figure: str
    name: str
    labels: Labels
    is_rate: bool

    def __str__(self) -> str:
        labels = ", ".join(f'{name}="{value}"' for name, value in sorted(self.labels))
        return f"{self.name}{{{labels}}}" if labels else self.name


def open_probe(services: Services, url: object = None, metrics: object = None, timeout_s: object = 5) -> Probe:
    """Return a function that fetches `url` and returns the figures that `metrics` names. Raises `ConfigError`."""
    address, limit_s = address_of(url), number_of("timeout_s", timeout_s, 0.1, LONGEST_S)
    wanted = metrics_of(text_of("metrics", metrics, 'metrics such as up, rate(requests_total{code="200"})'))
    counters = RisingCounters()

    def sample() -> dict[str, float]:
        page = fetched_page(address, limit_s)
        at_s = time.monotonic()
        values = {metric: value_of(metric, page) for metric in wanted}
        started = tuple(value for _, value in samples_of(START, page))
        rising = {metric.figure: value for metric, value in values.items() if metric.is_rate}
        figures = {metric.figure: value for metric, value in values.items() if not metric.is_rate}
        return figures | counters.rates(rising, at_s, started)

    return sample


def metrics_of(text: str) -> tuple[ScrapedMetric, ...]:
    """Parse metrics, separated by commas: `METRIC` or `METRIC{LABEL="VALUE", ...}`, or either in `rate(...)`.

    The figure of `METRIC` has the metric's name, that of `rate(METRIC)` is `METRIC_per_s`; a prefix `FIGURE=` renames
    it. Raises `ConfigError`.
    """
    metrics: dict[str, ScrapedMetric] = {}
    at, more = 0, True
    while more:
        item = _ITEM.match(text, at)
        if item is None or text[item.end() : item.end() + 1] not in ("", ","):
            expected = 'METRIC, METRIC{LABEL="VALUE"} or rate(METRIC), separated by commas'
            raise ConfigError(f"metrics: expected {expected}, found {text[at:]!r:.60}")
        # Groups 3 to 6 are of a selector within rate(), 7 to 10 of one outside.
        given, is_rate = item[1], item[2] is not None
        name, labels = (item[3], item[4]) if is_rate else (item[7], item[8])
        figure = given.strip() if given is not None else f"{name}_per_s" if is_rate else name
        if not FIGURE_NAME.fullmatch(figure):
            expected = "a name of a-z, 0-9 and _, at most 40 characters, as in NAME=METRIC"
            raise ConfigError(f"metrics: expected {expected}, found {figure!r:.60}")
        if figure in metrics:
            raise ConfigError(f"metrics: expected {figure} once, found it twice: write NAME=METRIC")
        metrics[figure] = ScrapedMetric(figure, name, frozenset(labels_at(labels or "{", 1)[0].items()), is_rate)
        more = item.end() < len(text)
        at = item.end() + 1
    if len(metrics) > MOST_FIGURES:
        raise ConfigError(f"metrics: expected at most {MOST_FIGURES}, found {len(metrics)}")
    return tuple(metrics.values())


def value_of(metric: ScrapedMetric, page: str) -> float:
    """Return the value of the one sample with this name and these labels.

    Raises `ValueError` if there are none or several, or if the value is not a finite number.
    """
    samples = samples_of(metric.name, page, metric.labels)
    if len(samples) != 1:
        found = "several: name more of its labels" if samples else "none"
        raise ValueError(f"expected one sample of {metric}, found {found}")
    return finite_number(samples[0][1], str(metric))
