"""`--metrics`: what Prometheus is given, read by its own parser."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import pytest
from live_snapshots import WORK
from metrics_pages import fetched, parser, samples, value
from paths import ROOT
from prometheus_client.openmetrics import parser as openmetrics

from loadsim.cli.metrics import BUCKETS, address, served_metrics
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.errors import ConfigError

PAGE = ROOT / "docs" / "reference" / "metrics.md"


def shown(capsys: pytest.CaptureFixture[str], *snapshots: LiveSnapshot, accept: str = "text/plain") -> str:
    """What is fetched after these snapshots."""
    with served_metrics("0") as show:
        for snapshot in snapshots:
            show(snapshot)
        found = re.fullmatch(r"Metrics: http://127\.0\.0\.1:(\d+)/metrics\n", capsys.readouterr().err)
        assert found is not None
        return fetched("127.0.0.1", int(found[1]), accept)


def test_the_last_snapshot_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Histograms are cumulative and have their sum; counters and gauges are the snapshot's, in seconds."""
    found = samples(shown(capsys, replace(WORK, users_on=7), WORK))
    for le, count in (("0.0158", 0), ("0.02", 2000), ("0.0251", 2113), ("100.0", 2113), ("+Inf", 2113)):
        assert value(found, "task_seconds_bucket", task="READ", le=le) == count
    assert value(found, "task_seconds_bucket", task="SEND", le="100.0") == 400
    assert value(found, "task_seconds_count", task="SEND") == 420
    assert value(found, "task_seconds_sum", task="READ") == 40
    assert value(found, "tasks_total", task="SEND", outcome="refused") == 2
    assert value(found, "tasks_total", task="READ", outcome="skipped") == 7
    assert value(found, "failures_total", task="SEND", kind="no answer to DATA") == 1
    assert value(found, "late_seconds_total", cause="busy") == 20
    assert value(found, "sessions_lost_total") == 1
    assert [value(found, "phase", phase=phase) for phase in ("log-on", "work", "over")] == [0, 1, 0]
    assert value(found, "users_on") == 199
    assert value(found, "lag_p99_seconds") == pytest.approx(0.00044)
    assert value(found, "cpu_ratio") == pytest.approx(0.123)
    assert value(found, "mail_under_way") == 3


def test_what_is_not_known_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing before the first snapshot; no lag before there is a sample."""
    assert samples(shown(capsys)) == {}
    begun = samples(shown(capsys, LiveSnapshot("log-on", None, 200, 50, {}, 0, 0, 0.0)))
    names = {name for name, _ in begun}
    assert "loadsim_users" in names
    assert not names & {"loadsim_lag_p99_seconds", "loadsim_cpu_ratio", "loadsim_run_seconds"}


def test_what_a_server_said_is_a_label_like_any_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Quotes, backslashes and braces in it are escaped."""
    kind = 'NO "x\\" } 1'
    found = samples(shown(capsys, replace(WORK, failures={"MOVE": {kind: 3}})))
    assert value(found, "failures_total", task="MOVE", kind=kind) == 3


def test_openmetrics_is_spoken_too(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what Prometheus asks for first, and its parser is strict."""
    text = shown(capsys, WORK, accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family.type for family in openmetrics.text_string_to_metric_families(text)}
    assert families["loadsim_task_seconds"] == "histogram"
    assert families["loadsim_tasks"] == "counter"


def test_the_buckets_are_in_seconds() -> None:
    """From 0.1 ms to 100 s, each larger than the one before."""
    assert (BUCKETS[0], BUCKETS[10], BUCKETS[-2], BUCKETS[-1]) == ("0.0001", "0.001", "100.0", "+Inf")
    bounds = [float(bound) for bound in BUCKETS]
    assert bounds == sorted(set(bounds))


def test_the_reference_names_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    """With its labels and what kind it is."""
    described: dict[str, tuple[str, set[str]]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and cells[0].startswith("`"):
            described[cells[0].strip("`")] = (cells[1], set(re.findall(r"`(\w+)`", cells[2])))
    families: dict[str, tuple[str, set[str]]] = {}
    for family in parser.text_string_to_metric_families(shown(capsys, WORK)):
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        families[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    assert families == described


# --- where --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "host", "port"),
    [
        ("9464", "127.0.0.1", 9464),
        (":9464", "127.0.0.1", 9464),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:0", "::1", 0),
        ("monitor.example.org:65535", "monitor.example.org", 65535),
    ],
)
def test_an_address(where: str, host: str, port: int) -> None:
    """Without a host it is this machine's own."""
    assert address(where) == (host, port)


@pytest.mark.parametrize("where", ["", "x", "127.0.0.1", "1:2:3", "::1", "65536", "-1", "a b:1", "[::1]"])
def test_no_address(where: str) -> None:
    """One line says what is expected."""
    with pytest.raises(ConfigError, match=r"^--metrics: expected \[HOST:\]PORT such as 127\.0\.0\.1:9464, found "):
        address(where)


def refusal(where: str) -> str:
    """Why metrics cannot be shown there."""
    with pytest.raises(ConfigError) as refused, served_metrics(where):
        pytest.fail("it was served")
    return str(refused.value)


def test_an_address_that_cannot_be_had() -> None:
    """A port that is taken, a host that is elsewhere, and what cannot be a host's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert refusal(where) == f"--metrics: expected to listen at {where}, found: Address already in use"
    assert refusal("192.0.2.1:0").startswith("--metrics: expected to listen at 192.0.2.1:0, found: ")
    assert refusal(f"{'x' * 70}:0").startswith("--metrics: expected to listen at xxx")


def test_the_port_is_free_again_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody listens any more."""
    port = 0

    def told() -> Any:
        found = re.search(r":(\d+)/", capsys.readouterr().err)
        assert found is not None
        return int(found[1])

    with served_metrics("0"):
        port = told()
    with pytest.raises(ConnectionRefusedError):
        fetched("127.0.0.1", port)
    with served_metrics(f"{port}", quiet=True):
        fetched("127.0.0.1", port)
    assert capsys.readouterr().err == ""
