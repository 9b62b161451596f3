"""A small suite, killed in a run and resumed: whole runs, through the command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from kept_signals import kept_signals
from mailservers import StartDovecotPostfix
from patience import PATIENT_CRITERIA
from small_runs import kill_in_run, loadsim, on, population_of, written

from loadsim.campaign.runner import CampaignWatcher, Interrupted
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.processes.signals import ended_by_signals
from loadsim.runs.watcher import Stage, Watcher
from loadsim.scenario.scenario import load_scenario
from loadsim.scenario.suite import load_suite
from loadsim.suite.runs import run_suite

pytestmark = pytest.mark.system


def suite(place: Path, start: StartDovecotPostfix | None = None, repeats: int = 2) -> Path:
    """Two cells. Each run leaves a line in `begun` before it, and in `ended` after it."""
    document = {
        "topology": [{"profile": "loadsim-5.5/light", "users": 2}],
        "mailbox": {"folders": 1, "messages_per_folder": 1, "inbox": 2, "deleted_items": 0},
        "run": {"day_length": "4s", "ramp_up": "1s", "warm_up": "0s", "window": "4s"},
        "criteria": PATIENT_CRITERIA,
    }
    scenario = written(place / "small.yaml", **document)
    if start is not None:
        written(scenario, **document, **on(start(*population_of(load_scenario(str(scenario)))).services))
    path = place / "suite.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "scenario": "small.yaml",
                "servers": [{"name": "old"}, {"name": "new", "set": {"name": "other"}}],
                "repeats": repeats,
                "retries": 0,
                "before": [{"run": ["sh", "-c", "echo $LOADSIM_CELL $LOADSIM_REPEAT >> begun"]}],
                "after": [{"run": ["sh", "-c", "echo $LOADSIM_CELL $LOADSIM_REPEAT >> ended"]}],
                "compare": [{"base": {"server": "old"}, "new": {"server": "new"}}],
            }
        ),
        encoding="utf-8",
    )
    return path


def test_a_killed_suite_is_resumed_complete_with_nothing_twice(
    dovecot_postfix: StartDovecotPostfix, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = ("suite", suite(tmp_path, dovecot_postfix, repeats=1), "--out", out)

    # 1. Kill the suite in its second run.
    kill_in_run(command, "Run 2 of 2: ")
    before = json.loads((out / "campaign.json").read_text())
    assert (len(before["runs"]), before["left"], before["complete"], before["exit_status"]) == (1, 1, False, None)
    first = before["runs"][0]
    logs = {path: path.read_bytes() for path in (out / first["run"]).rglob("*") if path.is_file()}

    # 2. Resume it.
    resumed = loadsim(*command)
    after = json.loads((out / "campaign.json").read_text())
    assert resumed.returncode == after["exit_status"], resumed.stderr
    assert after["runs"][0] == first
    assert {path: path.read_bytes() for path in logs} == logs
    assert [run["number"] for run in after["runs"]] == [1, 2]
    assert {run["result"] for run in after["runs"]} == {"passed"}
    assert {(run["cell"], run["repeat"]) for run in after["runs"]} == {("old", 1), ("new", 1)}
    assert len(list((out / "runs").glob("*.incomplete-1"))) == 1
    assert len(list((out / "runs").glob("002-*"))) == 2
    assert all((out / run["run"] / "score.json").is_file() for run in after["runs"])

    # 3. The killed run had its command before it twice; nothing else was repeated.
    names = [f"{run['cell']} {run['repeat']}" for run in after["runs"]]
    assert (tmp_path / "begun").read_text().splitlines() == [*names[:2], *names[1:]]
    assert (tmp_path / "ended").read_text().splitlines() == names

    # 4. The comparison, and a finished suite that only answers.
    (one,) = after["comparisons"]
    assert one["refused"] == []
    assert [score["name"] for score in one["comparison"]["scores"]] == ["Score"]
    again = loadsim(*command, "--quiet")
    assert (json.loads((out / "campaign.json").read_text()), again.returncode) == (after, resumed.returncode)
    assert len((tmp_path / "begun").read_text().splitlines()) == 3


@pytest.mark.nightly(part="runs")
def test_ctrl_c_in_a_run_ends_the_suite_which_can_be_resumed(tmp_path: Path) -> None:
    """Status 3 with the way to resume; the commands after the run are executed."""
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "loadsim", "suite", str(suite(tmp_path)), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr)
        assert any(line.startswith(("warm-up: ", "window: ")) for line in lines)
        process.terminate()
        rest = list(lines)
    assert process.returncode == 3
    goes_on = f"the same command with --out {out} continues"
    assert f"loadsim: interrupted during a run, which will be repeated; {goes_on}\n" in rest
    state = json.loads((out / "campaign.json").read_text())
    assert (state["runs"], state["left"]) == ([], 4)
    assert len(list((out / "runs").iterdir())) == len(list((out / "runs").glob("001-*.incomplete-1"))) == 1
    assert len((tmp_path / "ended").read_text().splitlines()) == 1


class Ending(Watcher):
    """Sends this process a signal when a run has done its work: `when` is a phase of its engines or a stage."""

    def __init__(self, when: str) -> None:
        self._when = when

    def snapshot(self, snapshot: LiveSnapshot, clients: Mapping[str, LiveSnapshot]) -> None:
        if snapshot.phase == self._when:
            os.kill(os.getpid(), signal.SIGINT)

    def stage(self, stage: Stage) -> None:
        if stage == self._when:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.nightly(part="runs")
@pytest.mark.parametrize("when", ["over", "analyse"])
def test_a_signal_after_the_work_keeps_the_run_and_ends_the_suite(tmp_path: Path, when: str) -> None:
    """At the end of the load, and while the verdict is computed: no second run begins."""
    found = load_suite(str(suite(tmp_path)))
    with kept_signals(), ended_by_signals(), pytest.raises(Interrupted) as interrupted:
        run_suite(found, tmp_path / "out", watcher=CampaignWatcher(Ending(when)))
    assert interrupted.value.kept
    state = json.loads((tmp_path / "out" / "campaign.json").read_text())
    assert ([run["result"] for run in state["runs"]], state["left"]) == (["passed"], 3)
    assert len((tmp_path / "begun").read_text().splitlines()) == 1
    assert len((tmp_path / "ended").read_text().splitlines()) == 1
