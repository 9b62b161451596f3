"""One user in thirty whom a real server serves late: the run must not pass."""

import json
from pathlib import Path

import pytest
from delaying_proxy import delaying
from mailservers import StartDovecotPostfix
from patience import PATIENT_CRITERIA
from small_runs import loadsim, on, population_of, written

from loadsim.model.ports import Services
from loadsim.scenario.scenario import load_scenario

pytestmark = pytest.mark.nightly(part="runs")

USERS, LATE_USER, DELAY_S = 30, 7, 3.0

SCENARIO = {
    "topology": [{"profile": "loadsim-5.5/medium", "users": USERS}],
    "run": {"day_length": "60s", "ramp_up": "1s", "warm_up": "5s", "window": "40s"},
    "criteria": PATIENT_CRITERIA | {"tasks.scored.response_p95_ms": {"below": 5000}},
}


def unserved(directory: Path, services: Services) -> tuple[float, bool, int]:
    """Return the share of users without usable service in a run, if it meets the criterion, and the exit status."""
    changes = on(services)
    changes["server"]["imap"]["auth"] = "login-command"
    directory.mkdir()
    path = written(directory / "thirty.yaml", **SCENARIO | changes)
    run = loadsim("run", "--no-report", path, "--out", directory / "out", "--json")
    score = json.loads(run.stdout)
    found = {each["name"]: each for each in score["verdict"]["criteria"]}["unserved_share"]
    return found["figure"], found["passed"], run.returncode


def test_one_late_user_of_thirty_is_found(tmp_path: Path, dovecot_postfix: StartDovecotPostfix) -> None:
    """Each response to them takes 3 s more. Without this delay, the same server meets the criterion."""
    path = written(tmp_path / "thirty.yaml", **SCENARIO)
    services = dovecot_postfix(*population_of(load_scenario(str(path)))).services
    healthy = unserved(tmp_path / "healthy", services)
    assert healthy[:2] == (0.0, True)
    with delaying(services, f"user{LATE_USER:05d}", DELAY_S) as delayed:
        late = unserved(tmp_path / "late", delayed)
    assert late == (pytest.approx(1 / USERS), False, 1)
