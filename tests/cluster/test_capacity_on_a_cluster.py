"""A search on two clients of a cluster: each step is a run on both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cluster_commands import client, controller, on_server
from mailservers import StartEmbedded
from patience import PATIENT_CRITERIA
from small_runs import loadsim

pytestmark = pytest.mark.nightly(part="runs")


def test_each_step_is_a_run_on_all_clients(embedded_server: StartEmbedded, tmp_path: Path) -> None:
    """No number meets a criterion, so a quick search measures the least one, a user for each group, twice and ends."""
    groups = [{"profile": "loadsim-5.5/medium", "users": 1}] * 4
    criteria = PATIENT_CRITERIA | {"log_ons": {"max": 1}}
    scenario = on_server(embedded_server, tmp_path / "small.yaml", topology=groups, criteria=criteria)
    out = tmp_path / "out"
    search = ("capacity", scenario, "--from", "4", "--most", "6", "--quick", "--pause", "0", "--out", out, "--quiet")
    with controller(tmp_path) as (address, _), client(tmp_path, address, "one"), client(tmp_path, address, "two"):
        done = loadsim(*search, "--cluster", address, "--clients", "2")
    assert done.returncode == 4, done.stderr  # quick: no evidence
    document = json.loads((out / "campaign.json").read_text())
    assert [(step["users"], step["result"]) for step in document["runs"]] == [(4, "failed"), (4, "failed")]
    assert (document["users"], document["failed_users"], document["terms"]["clients"]) == (None, 4, 2)
    for step in document["runs"]:
        score = json.loads((out / step["run"] / "score.json").read_text())
        assert [(one["client"], one["users"]) for one in score["per_client"]] == [("one", 2), ("two", 2)]
    refused = loadsim(*search)
    assert refused.returncode == 2 and "found changed: clients" in refused.stderr
