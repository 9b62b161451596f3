"""The pages on suites and directories against the program: the keys of `campaign.json`, the variables of commands."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from finished_searches import capacity
from finished_suites import OUT, suite, with_runs
from paths import ROOT
from small_runs import written

from loadsim.capacity.search import Found
from loadsim.suite.runs import run_suite

PAGE = (ROOT / "docs" / "reference" / "suite.md").read_text(encoding="utf-8")
DIRECTORY = (ROOT / "docs" / "reference" / "run-directory.md").read_text(encoding="utf-8")
AS_DESCRIBED_ELSEWHERE = (
    "findings",
    "cells[].levels",
    "cells[].score_ms",
    "comparisons[].refused",
    "comparisons[].comparison",
    "terms",
    "runs[].resources",
    "runs[].findings",
    "runs[].before",
    "runs[].after",
)
"""Keys whose parts are described in words, or with another verb."""


def keys(value: Any, path: str = "") -> Iterator[str]:
    """The paths of all values that are no mappings, and of lists of mappings their elements'."""
    if path in AS_DESCRIBED_ELSEWHERE or not isinstance(value, dict):
        yield path
        return
    for key, below in value.items():
        name = f"{path}.{key}" if path else key
        if isinstance(below, list) and below and isinstance(below[0], dict) and name not in AS_DESCRIBED_ELSEWHERE:
            for one in below:
                yield from keys(one, f"{name}[]")
        else:
            yield from keys(below, name)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The state of a suite of two cells, and in `environment` what a command had."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "small.yaml", topology=[{"profile": "loadsim-5.5/light", "users": 2}])
    document: dict[str, Any] = {
        "servers": [{"name": "old"}, {"name": "new"}],
        "users": [4],
        "settings": [{"name": "a"}],
        "repeats": 1,
        "after": [{"run": ["sh", "-c", "env > environment"]}],
        "compare": [{"base": {"server": "old"}, "new": {"server": "new"}}],
    }
    whole = suite(**document)
    with_runs(whole)
    run_suite(whole, OUT)
    return dict(json.loads((OUT / "campaign.json").read_text(encoding="utf-8")))


def test_every_key_of_campaign_json_is_described(made: dict[str, Any]) -> None:
    searched = capacity(Found(1000, 1200, "criteria"), (1000, "passed"), (1200, "failed")).document
    section = DIRECTORY.partition("## `campaign.json`")[2].partition("###")[0]
    described = {
        key for row in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE) for key in re.findall("`([^`]+)`", row)
    }
    assert described == {*keys(made), *keys(searched)}


def test_the_variables_of_commands_are_described(made: dict[str, Any]) -> None:
    names = re.findall(r"^(LOADSIM_\w+)=", Path("environment").read_text(), re.MULTILINE)
    assert set(names) - os.environ.keys() == set(re.findall("`(LOADSIM_[A-Z]+)`", PAGE))
    assert made["complete"]
