"""`--metrics`: what Prometheus is given, read by its own parser."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from live_snapshots import WORK
from metrics_pages import fetched, parser, samples, value
from paths import ROOT
from prometheus_client.openmetrics import parser as openmetrics
from run_states import live_run

from loadsim.cli.live.figures import RUN_PHASES, LiveRun
from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.cli.options import listening_address
from loadsim.engine.snapshot import PHASES, LiveSnapshot
from loadsim.errors import ConfigError
from loadsim.runs.watcher import Stage
from loadsim.scenario.run_times import PARTS
from loadsim.version import __version__

PAGE = ROOT / "docs" / "reference" / "metrics.md"


def shown(place: Path, capsys: pytest.CaptureFixture[str], *snapshots: LiveSnapshot, accept: str = "text/plain") -> str:
    return page(live_run(place, *snapshots), capsys, accept)


def page(live: LiveRun, capsys: pytest.CaptureFixture[str], accept: str = "text/plain") -> str:
    with served_metrics("0", lambda: live.figures):
        found = re.fullmatch(r"Metrics: http://127\.0\.0\.1:(\d+)/metrics\n", capsys.readouterr().err)
        assert found is not None
        return fetched("127.0.0.1", int(found[1]), accept)


def test_the_last_snapshot_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Histograms are cumulative and have their sum; counters and gauges are the snapshot's, in seconds."""
    found = samples(shown(tmp_path, capsys, replace(WORK, users_on=7), WORK))
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
    assert value(found, "users_on") == 199
    assert value(found, "lag_p99_seconds") == pytest.approx(0.00044)
    assert value(found, "cpu_ratio") == pytest.approx(0.123)
    assert value(found, "mail_under_way") == 3
    assert value(found, "planned_seconds") == 300


def test_the_phase_is_shown_from_the_beginning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before there is a snapshot, with the accounts of all clients together; no figure of the load is invented."""
    live = live_run(tmp_path)
    found = samples(page(live, capsys))
    assert {dict(labels)["phase"] for name, labels in found if name == "loadsim_phase"} == set(RUN_PHASES)
    assert [key for key, one in found.items() if key[0] == "loadsim_phase" and one] == [
        ("loadsim_phase", frozenset({("phase", "log-on")}))
    ]
    assert value(found, "run_info", scenario="virtual", version=__version__) == 1
    assert value(found, "accounts_prepared", step="inspect") == 200
    assert value(found, "accounts_prepared", step="initialise") == 3
    assert value(found, "accounts_to_prepare", step="initialise") == 7
    known = {"loadsim_" + name for name in ("run_info", "phase", "planned_seconds")}
    assert {name for name, _ in found} - known == {"loadsim_accounts_prepared", "loadsim_accounts_to_prepare"}


def test_every_phase_has_a_name() -> None:
    """Those of the stages and of the engines; the load has its phases, and the work its parts."""
    assert {*get_args(Stage), *PHASES, *PARTS} - {"load", "work"} <= set(RUN_PHASES)


def test_unknown_figures_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = samples(shown(tmp_path, capsys, LiveSnapshot("log-on", None, 200, 50, {}, 0, 0, 0.0)))
    names = {name for name, _ in begun}
    assert "loadsim_users" in names
    assert not names & {"loadsim_lag_p99_seconds", "loadsim_cpu_ratio", "loadsim_run_seconds"}


def test_server_texts_are_escaped_in_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Quotes, backslashes and braces in it are escaped."""
    kind = 'NO "x\\" } 1'
    found = samples(shown(tmp_path, capsys, replace(WORK, failures={"MOVE": {kind: 3}})))
    assert value(found, "failures_total", task="MOVE", kind=kind) == 3


def test_openmetrics_is_served_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is what Prometheus asks for first, and its parser is strict."""
    text = shown(tmp_path, capsys, WORK, accept="application/openmetrics-text; version=1.0.0")
    families = {family.name: family.type for family in openmetrics.text_string_to_metric_families(text)}
    assert families["loadsim_task_seconds"] == "histogram"
    assert families["loadsim_tasks"] == "counter"


def test_the_reference_names_every_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its labels, and what kind it is; the page has each that can be seen."""
    described: dict[str, tuple[str, set[str]]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and cells[0].startswith("`loadsim_"):
            described[cells[0].strip("`")] = (cells[1], set(re.findall(r"`(\w+)`", cells[2])))
    live = live_run(tmp_path, WORK)
    families: dict[str, tuple[str, set[str]]] = {}
    for family in parser.text_string_to_metric_families(page(live, capsys)):
        assert family.samples
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        families[family.name + ("_total" if family.type == "counter" else "")] = (family.type, labels)
    assert families == described


def test_the_reference_names_every_phase() -> None:
    (line,) = re.findall(r"^\| `loadsim_phase` .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert re.findall(r"`([a-z-]+)`", line.split("|")[4]) == list(RUN_PHASES)


@pytest.mark.parametrize("where", ["", "x", "127.0.0.1", "1:2:3", "::1", "65536", "-1", "a b:1", "[::1]"])
def test_a_malformed_listening_address_is_rejected(where: str) -> None:
    with pytest.raises(ConfigError, match=r"^--metrics: expected \[HOST:\]PORT such as 127\.0\.0\.1:8080, found "):
        listening_address("--metrics", where)
