"""The dashboard and the alerts on a real Prometheus, which fetches the metrics of a run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_snapshots import WORK
from paths import ROOT
from patience import PATIENCE_S
from run_states import live_run, summary_of
from virtual_runs import NOWHERE

from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.monitor.prometheus_probe import open_probe

pytestmark = pytest.mark.nightly(part="servers")

EXAMPLES = ROOT / "docs" / "examples" / "grafana"
ALERTS = EXAMPLES / "loadsim-alerts.yaml"
PROGRAMS = (
    Path(os.environ.get("LOADSIM_PROGRAMS") or Path.home() / ".cache" / "loadsim" / "programs")
    / "prometheus"
    / "usr"
    / "bin"
)


def program(name: str) -> Path:
    """Prometheus, or its tool."""
    assert (PROGRAMS / name).is_file(), "tests/install-prometheus.sh unpacks it"
    return PROGRAMS / name


def test_promtool_takes_the_alerts() -> None:
    """All of them."""
    checked = subprocess.run(
        [program("promtool"), "check", "rules", ALERTS], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert "6 rules found" in checked.stdout


@contextmanager
def prometheus(place: Path, target: str) -> Iterator[str]:
    """Its address; it fetches from the target each second, and evaluates the alerts as often."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [{"job_name": "loadsim", "static_configs": [{"targets": [target]}]}],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        program("prometheus"),
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        "--web.listen-address=127.0.0.1:0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            address = ""
            for line in process.stderr:
                if listening := re.search(r'msg="Listening on" address=(127\.0\.0\.1:\d+)', line):
                    address = listening[1]
                if "Server is ready" in line:
                    break
            assert address
            yield f"http://{address}/api/v1"
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def asked(url: str, **parameters: str | float) -> list[Any]:
    """The result of a query."""
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=PATIENCE_S) as response:
        found: list[Any] = json.load(response)["data"]["result"]
    return found


def await_points(url: str, query: str, least: int = 1) -> None:
    """Wait until the query has had so many points since the beginning of the test."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        now = time.time()
        found = asked(f"{url}/query_range", query=query, start=now - 300, end=now, step=1)
        if max((len(series["values"]) for series in found), default=0) >= least:
            return
        time.sleep(0.2)
    pytest.fail(f"too few points of {query}")


def test_prometheus_answers_every_query(tmp_path: Path) -> None:
    """Of the dashboard, and of the alerts, each of which has a reason here."""
    bad = replace(WORK, lag_p99_ms=20.0, cpu_share=0.9, users_on=100, tasks={"READ": {"ok": 9, "lost": 1}})
    worse = replace(bad, at_s=125.2, tasks={"READ": {"ok": 10, "lost": 50}}, failures={"SEND": {"450 RCPT": 5}})
    live = live_run(tmp_path, bad)
    with (
        served_metrics("127.0.0.1:0", lambda: live.figures) as port,
        prometheus(tmp_path, f"127.0.0.1:{port}") as url,
    ):
        await_points(url, "loadsim_users", 2)
        live.snapshot(worse, {})
        await_points(url, "loadsim_run_seconds > 125", 2)
        for hits, validity in ((1, "valid"), (99, "invalid")):
            live.done(summary_of(tmp_path, hits), tmp_path)
            await_points(url, f'loadsim_validity{{validity="{validity}"}} == 1')
        for query in (*queries(), *(rule["expr"] for rule in rules())):
            await_points(url, query)
        for alert in ("LoadsimRunInvalid", "LoadsimCriteriaMissed"):
            await_points(url, f'ALERTS{{alertname="{alert}", alertstate="firing"}}')
        assert {rule["alert"] for rule in rules()} == {
            series["metric"]["alertname"]
            for series in asked(f"{url}/query_range", query="ALERTS", start=time.time() - 300, end=time.time(), step=1)
        }


def queries() -> list[str]:
    """Those of the dashboard, with what Grafana puts in place of its variables."""
    dashboard = json.loads((EXAMPLES / "loadsim.json").read_text(encoding="utf-8"))
    panels = (target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ()))
    found = [*panels, *(each["expr"] for each in dashboard["annotations"]["list"])]
    return [query.replace("$__rate_interval", "1m").replace("$instance", "127.+") for query in found]


def rules() -> list[dict[str, Any]]:
    """The alerts."""
    found: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    return found


def test_the_probe_reads_a_real_prometheus(tmp_path: Path) -> None:
    """Its own page, with summaries, histograms and counters of each status. Each sample fetches it once more."""
    live = live_run(tmp_path, WORK)
    with (
        served_metrics("127.0.0.1:0", lambda: live.figures) as port,
        prometheus(tmp_path, f"127.0.0.1:{port}") as url,
    ):
        await_points(url, "up == 1")
        page = url.removesuffix("/api/v1") + "/metrics"
        asked = 'asked_per_s=rate(promhttp_metric_handler_requests_total{code="200"})'
        wanted = f"jobs=prometheus_target_scrape_pools_total, {asked}, prometheus_ready"
        sample = open_probe(NOWHERE, url=page, metrics=wanted)
        assert sample() == {"jobs": 1, "prometheus_ready": 1}
        assert sample()["asked_per_s"] > 0
        with pytest.raises(ValueError, match="found several: name more of its labels"):
            open_probe(NOWHERE, url=page, metrics="promhttp_metric_handler_requests_total")()
