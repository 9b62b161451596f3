"""Apache Otava reads the series of the page, with the page's configuration, and finds the build that was slower."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from compared_runs import write_run
from pages import blocks
from paths import ROOT
from patience import PATIENCE_S

from loadsim.cli import main

PAGE = ROOT / "docs" / "how-to" / "a-series-of-builds.md"

READ_MS = (100, 103, 98, 101, 99, 102, 100, 97, 121, 118, 122, 119, 120, 117)
"""From the ninth build on, READ takes a fifth more."""


@pytest.mark.nightly(part="tools")
def test_otava_finds_the_build_that_is_slower(tmp_path: Path) -> None:
    for at, read_ms in enumerate(READ_MS):
        run = write_run(tmp_path, f"b{at + 1}", read_ms, hour=at)
        series = tmp_path / "builds.csv"
        assert main(["log", "export", "series", str(run), "--out", str(series), "--build", f"b{at + 1}"]) == 0
    (configuration,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    (tmp_path / "otava.yaml").write_text(configuration)
    pinned = re.search(r"apache-otava==[\d.]+", PAGE.read_text(encoding="utf-8"))
    assert pinned
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [tmp_path / "venv" / "bin" / "pip", "install", "--quiet", pinned[0]]
    subprocess.run(install, check=True, timeout=PATIENCE_S)
    analyse = [tmp_path / "venv" / "bin" / "otava", "analyze", "nightly", "--config-file", "otava.yaml"]
    found = subprocess.run(
        [*analyse, "--since", "2026-01-01", "--output", "json"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    (change,) = json.loads(found.stdout)["nightly"]
    assert change["attributes"]["build"] == "b9"
    assert {one["metric"] for one in change["changes"]} == {"score_ms", "read_ms"}
