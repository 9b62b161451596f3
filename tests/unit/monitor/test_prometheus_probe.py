"""The probe `prometheus`: its figures are those that Prometheus' own parser reads, or the sample fails."""

import math
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from http_answers import http_server, raw_server
from hypothesis import given
from hypothesis import strategies as st
from live_snapshots import WORK
from metrics_pages import fetched, samples, value
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from run_states import live_run
from virtual_runs import NOWHERE

from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.errors import ConfigError
from loadsim.model.ports import Probe
from loadsim.monitor.probes import MOST_FIGURES
from loadsim.monitor.prometheus_probe import MOST_BYTES, open_probe, samples_of, value_of
from loadsim.monitor.prometheus_probe import metrics_of as wanted_of

LABEL_NAMES = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,9}", fullmatch=True).filter(lambda name: name != "le")
LABEL_VALUES = st.text(st.characters(codec="utf-8"), max_size=10)
TOKEN = "s3cret-token"
"""A text that a server may send."""


def opened(port: int, metrics: str, **settings: object) -> Probe:
    return open_probe(NOWHERE, url=f"http://127.0.0.1:{port}/metrics", metrics=metrics, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("written", [generate_latest, openmetrics])
@given(
    names=st.lists(LABEL_NAMES, min_size=1, max_size=3, unique=True),
    rows=st.dictionaries(
        st.tuples(LABEL_VALUES, LABEL_VALUES, LABEL_VALUES),
        st.floats(allow_nan=False, allow_infinity=False),
        max_size=5,
    ),
)
def test_a_page_of_prometheus_own_library_is_read(
    written: Callable[[CollectorRegistry], bytes], names: list[str], rows: dict[tuple[str, ...], float]
) -> None:
    """All samples of a metric, in both formats, with any text as label."""
    registry = CollectorRegistry()
    gauge = Gauge("the_gauge", "Some\nhelp with the_gauge 5", names, registry=registry)
    Gauge("the_gauge_of_another", "help", registry=registry).set(77)
    expected = {}
    for row, number in rows.items():
        expected[row[: len(names)]] = number
        gauge.labels(*row[: len(names)]).set(number)
    found = samples_of("the_gauge", written(registry).decode())
    assert len(found) == len(expected)
    for labels, number in found:
        assert expected[tuple(labels[name] for name in names)] == float(number)


@given(st.text(st.sampled_from('up{}="\\, \n5#e+.NaInf_'), max_size=60))
def test_any_page_gives_a_number_or_a_one_line_error(page: str) -> None:
    (wanted,) = wanted_of("up")
    try:
        found = value_of(wanted, page)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert math.isfinite(found)
        assert any(line.lstrip(" \t").startswith("up") for line in page.split("\n"))


PAGE = """\
# HELP up up 7
# TYPE up gauge
up 1
up_too 2 1795450436000
requests_total{code="200",method="GET"} 10 # {trace="x"} 0.5
requests_total{code="200",method="PUT",} 20
requests_total{code="500",method="a\\"b\\\\c\\nd, }"} 30
  spaced { a = "1" , b = "2" }   4e1
nothing NaN
endless +Inf
odd{a=1} 5
empty
"""


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("up", 1),
        ("up_too", 2),
        ('requests_total{method="PUT"}', 20),
        ('requests_total{code="200", method="GET"}', 10),
        ('requests_total{method="a\\"b\\\\c\\nd, }"}', 30),
        ('spaced{b="2"}', 40),
        ("up{}", 1),
    ],
)
def test_one_sample_is_the_figure(metric: str, expected: float) -> None:
    (wanted,) = wanted_of(f"a={metric}")
    assert value_of(wanted, PAGE) == expected


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("gone", "expected one sample of gone, found none"),
        ("requests_total", "expected one sample of requests_total, found several: name more of its labels"),
        ("nothing", "nothing: expected a finite number, found NaN"),
        ("endless", "endless: expected a finite number, found something else"),
        ("odd", "expected the samples of odd in the text format, found a line in another"),
    ],
)
def test_several_samples_or_none_are_a_failed_sample(metric: str, says: str) -> None:
    """The sum or the first of several would be a number, too, and a wrong one."""
    (wanted,) = wanted_of(f"a={metric}")
    with pytest.raises(ValueError, match="expected") as failure:
        value_of(wanted, PAGE)
    assert says in str(failure.value)


def test_metric_selectors_are_parsed() -> None:
    """Commas, braces and quotation marks within labels end nothing."""
    found = wanted_of(' up,b=x:y{a="1,}\\"" , c="2" }, rate(r_total) ,c = rate( r_total{d="e"} )')
    assert [(each.figure, each.name, dict(each.labels), each.is_rate) for each in found] == [
        ("up", "up", {}, False),
        ("b", "x:y", {"a": '1,}"', "c": "2"}, False),
        ("r_total_per_s", "r_total", {}, True),
        ("c", "r_total", {"d": "e"}, True),
    ]


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ("up,", "separated by commas, found ''"),
        ("rate(up", "found 'rate(up'"),
        ('up{a="b}', "found 'up{a=\"b}'"),
        ("up, up", "expected up once, found it twice: write NAME=METRIC"),
        ("upTime", "as in NAME=METRIC, found 'upTime'"),
        (
            ", ".join(f"a{n}" for n in range(MOST_FIGURES + 1)),
            f"expected at most {MOST_FIGURES}, found {MOST_FIGURES + 1}",
        ),
    ],
)
def test_malformed_selectors_are_rejected_in_one_line(metrics: str, says: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        wanted_of(metrics)
    assert str(refusal.value).startswith("metrics: expected ")
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


URL = "url: expected an address such as http://127.0.0.1:9900/metrics, found "


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, URL + "nothing"),
        ({"url": "https://127.0.0.1/"}, URL + "something else"),
        ({"url": "http://127.0.0.1:s3cret/"}, URL + "something else"),
        ({"url": "http://127.0.0.1/\r\nX: s3cret"}, URL + "characters that cannot be printed"),
        (
            {"url": "http://user:s3cret@127.0.0.1/"},
            "url: expected an address without user and password, found one with them",
        ),
        (
            {"url": "http://127.0.0.1/"},
            'metrics: expected metrics such as up, rate(requests_total{code="200"}), found nothing',
        ),
    ],
)
def test_wrong_settings_are_rejected_in_one_line(settings: dict[str, object], says: str) -> None:
    """Before the load, and without the password that an address may have."""
    with pytest.raises(ConfigError) as refusal:
        open_probe(NOWHERE, **settings)
    assert str(refusal.value) == says
    assert "s3cret" not in str(refusal.value)


def test_loadsims_own_endpoint_is_read(tmp_path: Path) -> None:
    """Its figures are those that Prometheus' parser finds on the same page."""
    live = live_run(tmp_path, WORK)
    with served_metrics("0", lambda: live.figures, quiet=True) as port:
        seen = samples(fetched("127.0.0.1", port))
        sample = opened(
            port,
            'users=loadsim_users_on, refused=loadsim_tasks_total{task="SEND", outcome="refused"},'
            ' p95=loadsim_task_seconds_bucket{task="READ", le="0.02"}, rate(loadsim_sessions_lost_total)',
        )
        assert sample() == {
            "users": value(seen, "users_on"),
            "refused": value(seen, "tasks_total", task="SEND", outcome="refused"),
            "p95": value(seen, "task_seconds_bucket", task="READ", le="0.02"),
        }
        assert sample()["loadsim_sessions_lost_total_per_s"] == 0


def test_no_rate_spans_a_restart() -> None:
    """The increase over the time that passed; none first, and none after the counters were reset."""
    registry = CollectorRegistry()
    started = Gauge("process_start_time_seconds", "help", registry=registry)
    counter = Counter("r", "help", registry=registry)
    gauge = Gauge("g", "help", registry=registry)
    with http_server(lambda _: (200, {}, generate_latest(registry).decode())) as port:
        sample = opened(port, "rate(r_total), r_total, g")
        counter.inc(1000)
        assert sample() == {"r_total": 1000, "g": 0}
        counter.inc(500)
        found = sample()
        assert found["r_total_per_s"] > 0
        assert sample()["r_total_per_s"] == 0
        # It grew beyond the old value after a restart.
        started.set(5)
        counter.inc(10_000)
        assert "r_total_per_s" not in sample()
        counter.reset()
        assert "r_total_per_s" not in sample()
        gauge.set(3)
        assert sample() == {"r_total": 0, "g": 3, "r_total_per_s": 0}


def test_the_endpoint_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proxy, by its path and query."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    seen: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, str], str]:
        seen.append(request.path)
        return 200, {}, "up 1\n"

    with http_server(answer) as port:
        sample = open_probe(NOWHERE, url=f"http://127.0.0.1:{port}/a/b?match=up", metrics="up")
        assert [sample(), opened(port, "up")()] == [{"up": 1}, {"up": 1}]
    assert seen == ["/a/b?match=up", "/metrics"]


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "found another or a part of it (RemoteDisconnected)"),
        (b"up 1\n" + TOKEN.encode(), "found another or a part of it (BadStatusLine)"),
        (b"HTTP/1.1 500 " + TOKEN.encode() + b"\r\n\r\n" + TOKEN.encode(), "expected HTTP status 200, found 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\nup 1\n", "expected HTTP status 200, found 302"),
        (HEAD + b"Content-Length: 50\r\n\r\nup 1\n", "expected a whole page"),
        (HEAD + b"\r\nother 1\nup 1", "expected a whole page, which ends with a line, found a part of it"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFF\r\nup 1\n", "(IncompleteRead)"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + TOKEN.encode(), "expected an answer in HTTP"),
        (HEAD + b"X: " + b"x" * 100_000, "(LineTooLong)"),
        (HEAD + b"\r\n" + b"up 1\n" * (MOST_BYTES // 5 + 1), "expected at most 4 MiB, found more"),
        (HEAD + b"\r\nup " + TOKEN.encode() + b"\n", "up: expected a finite number, found something else"),
    ],
    ids=range(11),
)
def test_malformed_answers_are_a_failed_sample(answer: bytes, says: str) -> None:
    """One line, without what a server sends."""
    with raw_server(lambda connection: connection.sendall(answer)) as port:
        sample = opened(port, "up", timeout_s=60)
        with pytest.raises((OSError, ValueError)) as failure:
            sample()
    assert says in str(failure.value)
    assert TOKEN not in str(failure.value)
    assert "\n" not in str(failure.value)
