"""A short search on Dovecot, killed in a step and resumed: whole runs, through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from mailservers import StartDovecotPostfix
from patience import PATIENT_CRITERIA
from small_runs import kill_in_run, loadsim, on, population_of, written

from loadsim.cli import main
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.system


def test_a_killed_search_is_resumed_and_measures_nothing_twice(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path
) -> None:
    """Two users keep a criterion on log-ons and four do not, on any machine; two are undecided if load was missing."""
    out = tmp_path / "out"
    document = {
        "topology": [{"profile": "loadsim-5.5/light", "users": 4}],
        "mailbox": {"folders": 1, "messages_per_folder": 1, "inbox": 2, "deleted_items": 0},
        "run": {"day_length": "4s", "ramp_up": "1s", "warm_up": "0s", "window": "4s"},
        "criteria": PATIENT_CRITERIA | {"log_ons": {"max": 3}},
    }
    scenario = written(tmp_path / "small.yaml", **document)
    server = dovecot_postfix(*population_of(load_scenario(str(scenario))))
    written(scenario, **document, **on(server.services))
    command = ("capacity", scenario, "--most", "4", "--width", "100%", "--quick", "--pause", "0", "--out", out)

    # 1. Kill the search in the repetition of four users.
    kill_in_run(command, "4 users, repeat 1: failed")
    before = json.loads((out / "campaign.json").read_text())
    scores = {step["run"]: (out / step["run"] / "score.json").read_bytes() for step in before["runs"]}
    assert [step["users"] for step in before["runs"]][-1] == 4
    assert before["stopped_by"] is None

    # 2. Resume it.
    resumed = loadsim(*command)
    after = json.loads((out / "campaign.json").read_text())
    assert after["runs"][: len(before["runs"])] == before["runs"]
    assert {run: (out / run / "score.json").read_bytes() for run in scores} == scores
    assert sorted(step["run"] for step in after["runs"] if step["users"] == 4) == ["runs/00004-1", "runs/00004-2"]
    assert (out / "runs" / "00004-2.incomplete-1").is_dir()
    assert len({step["run"] for step in after["runs"]}) == len(after["runs"])

    # 3. The answer.
    passed = [step["users"] for step in after["runs"] if step["result"] == "passed"].count(2) >= 2
    assert (after["users"], after["failed_users"], after["stopped_by"]) == (2 if passed else None, 4, "criteria")
    assert (after["interval"], resumed.returncode) == (None, 4), resumed.stderr  # quick: no evidence
    assert resumed.stdout.count("4 users, repeat 2: failed") == 1
    found = [one for run in after["runs"] if run["users"] == 4 for one in run["findings"]]
    assert ("criterion-missed", "log_ons") in {(one["code"], one["where"]) for one in found}

    for users in (2, 4):  # mailboxes are those of the largest number
        made = yaml.safe_load((out / "runs" / f"{users:05d}-1" / "scenario.yaml").read_text())
        assert (made["mailbox"]["population"], made["lists"]["population"]) == (4, 4)

    # 4. Its report.
    assert main(["report", str(out), "-o", str(tmp_path / "report.md")]) == 0
    report = (tmp_path / "report.md").read_text()
    assert all(step["run"] in report for step in after["runs"])
