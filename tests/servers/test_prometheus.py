"""A real Prometheus, which fetches the metrics of a run, and the probe that reads it."""

import json
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from live_snapshots import WORK
from patience import PATIENCE_S
from run_states import live_run
from virtual_runs import NOWHERE

from loadsim.cli.metrics.prometheus import served_metrics
from loadsim.monitor.prometheus_probe import open_probe

pytestmark = pytest.mark.nightly(part="servers")

CACHED_PROGRAMS = Path.home() / ".cache" / "loadsim" / "programs"
PROGRAM = Path(os.environ.get("LOADSIM_PROGRAMS") or CACHED_PROGRAMS) / "prometheus" / "usr" / "bin" / "prometheus"


@contextmanager
def prometheus(place: Path, target: str) -> Iterator[str]:
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "loadsim", "static_configs": [{"targets": [target]}]}],
    }
    assert PROGRAM.is_file(), "tests/install-prometheus.sh unpacks it"
    (place / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [
        PROGRAM,
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
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=PATIENCE_S) as response:
        found: list[Any] = json.load(response)["data"]["result"]
    return found


def await_points(url: str, query: str) -> None:
    """Wait until the query has had a point since the beginning of the test."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        now = time.time()
        if asked(f"{url}/query_range", query=query, start=now - 300, end=now, step=1):
            return
        time.sleep(0.2)
    pytest.fail(f"no point of {query}")


def test_the_probe_reads_a_real_prometheus(tmp_path: Path) -> None:
    """Its own page, with summaries, histograms and counters of each status. Each sample fetches it once more."""
    live = live_run(tmp_path, WORK)
    with served_metrics("127.0.0.1:0", lambda: live.figures) as port, prometheus(tmp_path, f"127.0.0.1:{port}") as url:
        await_points(url, "up == 1")
        await_points(url, "loadsim_users == 200")
        page = url.removesuffix("/api/v1") + "/metrics"
        asked = 'asked_per_s=rate(promhttp_metric_handler_requests_total{code="200"})'
        wanted = f"jobs=prometheus_target_scrape_pools_total, {asked}, prometheus_ready"
        sample = open_probe(NOWHERE, url=page, metrics=wanted)
        assert sample() == {"jobs": 1, "prometheus_ready": 1}
        assert sample()["asked_per_s"] > 0
        with pytest.raises(ValueError, match="found several: name more of its labels"):
            open_probe(NOWHERE, url=page, metrics="promhttp_metric_handler_requests_total")()
