"""The `prometheus` probe: an HTTP endpoint's metrics in Prometheus' or OpenMetrics' text format, read within limits."""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import SplitResult, urlsplit

from loadsim.errors import ConfigError
from loadsim.model.ports import Probe, Services
from loadsim.model.terms import FIGURE_NAME
from loadsim.monitor.counter_rates import RisingCounters
from loadsim.monitor.probe_values import finite_number, number_of, text_of
from loadsim.monitor.probes import MOST_FIGURES

LONGEST_S = 60.0
MOST_BYTES = 4 << 20
START = "process_start_time_seconds"
"""A metric that most endpoints have. It changes when their process restarts, which resets all counters to 0."""

_LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\\n]|\\.)*)"'
_NEXT_LABEL = re.compile(rf"{_LABEL}[ \t]*(,[ \t]*|(?=\}}))")
Labels = frozenset[tuple[str, str]]
"""Names and values of labels."""

_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}

_SELECTOR = rf"([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(\{{[ \t]*(?:{_LABEL}[ \t]*(?:,[ \t]*|(?=\}})))*\}})?"
_ITEM = re.compile(rf'[ \t]*(?:([^=,(){{}}"]*)=)?[ \t]*(?:(rate\()[ \t]*{_SELECTOR}[ \t]*\)|{_SELECTOR})[ \t]*')


@dataclass(frozen=True, slots=True)
class ScrapedMetric:
    """A figure in the settings: the sample with this name and at least these labels, or its rate if `is_rate`."""

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

    The figure for `METRIC` has the metric's name, the one for `rate(METRIC)` is `METRIC_per_s`; a prefix `FIGURE=`
    renames it. Raises `ConfigError`.
    """
    metrics: dict[str, ScrapedMetric] = {}
    at, more = 0, True
    while more:
        item = _ITEM.match(text, at)
        if item is None or text[item.end() : item.end() + 1] not in ("", ","):
            expected = 'METRIC, METRIC{LABEL="VALUE"} or rate(METRIC), separated by commas'
            raise ConfigError(f"metrics: expected {expected}, found {text[at:]!r:.60}")
        # Groups 3 to 6 belong to a selector within rate(), 7 to 10 to one outside.
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


def samples_of(name: str, page: str, labels: Labels = frozenset()) -> list[tuple[dict[str, str], str]]:
    """Return the labels and value of each of a metric's samples with these labels, in page order.

    The page is in text format 0.0.4 or OpenMetrics 1.0. Raises `ValueError` for a line in another format.
    """
    lines = re.findall(rf"^[ \t]*{re.escape(name)}(?=[{{ \t])([^\n]*)", page, re.MULTILINE)
    # Parsing the labels of 50,000 samples takes 0.3 s, this filter a tenth of that.
    for _, value in labels:
        quoted = '"' + value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'
        lines = [line for line in lines if quoted in line]
    return [sample for line in lines if labels <= (sample := _sample(name, line))[0].items()]


def _sample(name: str, line: str) -> tuple[dict[str, str], str]:
    rest = line.lstrip(" \t")
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        labels, end = labels_at(rest, 1)
        if rest[end : end + 1] != "}":
            raise ValueError(f"expected the samples of {name} in the text format, found a line in another")
        rest = rest[end + 1 :]
    value, *_ = [*rest.split(maxsplit=1), ""]  # a timestamp and an exemplar may follow
    return labels, value


def labels_at(text: str, at: int) -> tuple[dict[str, str], int]:
    """Return the labels from this position, just after the brace, and the position after the last one."""
    at += len(text) - at - len(text[at:].lstrip(" \t"))
    labels: dict[str, str] = {}
    while label := _NEXT_LABEL.match(text, at):
        labels[label[1]] = re.sub(r"\\.", lambda escape: _ESCAPES.get(escape[0], escape[0]), label[2])
        at = label.end()
    return labels, at


def address_of(url: object) -> SplitResult:
    """Return an address's parts. Raises `ConfigError`, which hides the address, as it may contain a password."""
    expected = "an address such as http://127.0.0.1:9900/metrics"
    text = text_of("url", url, expected)
    try:
        parts = urlsplit(text)
        good = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not re.fullmatch("[!-~]+", text):
        raise ConfigError(f"url: expected {expected}, found something else")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("url: expected an address without user and password, found one with them")
    return parts


def fetched_page(address: SplitResult, limit_s: float) -> str:
    """Return an endpoint's page. Raises `OSError`, which shows nothing of the answer.

    It is fetched directly, without the environment's proxies and without redirects. The time limit applies to
    connecting and to each wait for more of the answer.
    """
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    headers = {"Accept": "text/plain", "Connection": "close", "User-Agent": "loadsim"}
    try:
        with closing(HTTPConnection(address.hostname or "", address.port or 80, timeout=limit_s)) as connection:
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                if response.status != HTTPStatus.OK:
                    raise OSError(f"expected HTTP status 200, found {response.status}")
                content = response.read(MOST_BYTES + 1)
                if len(content) > MOST_BYTES:
                    raise OSError(f"expected at most {MOST_BYTES >> 20} MiB, found more")
                if response.length or not content.endswith(b"\n"):
                    raise OSError("expected a whole page, which ends with a line, found a part of it")
    except TimeoutError:
        raise TimeoutError(f"expected an answer within {limit_s:g} s, found none, or a part of it") from None
    except HTTPException as error:
        kind = type(error).__name__
        raise OSError(f"expected an answer in HTTP, found another or a part of it ({kind})") from None
    return content.decode("utf-8", "replace")
