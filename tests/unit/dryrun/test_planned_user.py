"""Planned users do what a run's users do in an engine, however many processes they are in."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plan_by_engine import plan_by_engine
from virtual_runs import quiet, scenario_of

from loadsim.dryrun import plan as plans
from loadsim.dryrun.plan import make_plan
from loadsim.dryrun.tally import Tally
from loadsim.scenario.scenario import Scenario, load_scenario
from loadsim.scenario.workload import Workload, plan_digest

OUTCOMES = dict.fromkeys(("reply", "reply_all", "forward", "move", "copy", "delete"), "5%") | {"nothing": "70%"}
BUSY = quiet(
    new_mail={"per_day": 30, "recipients": 2, "list_chance": "40%", "save_sent": False},
    process_inbox={"per_day": 40, "read_note_delay": {"min": "1s", "average": "9s", "max": "30s"}},
    browse={"per_day": 40},
    schedule={"per_day": 9},
    start_state={"inbox": 9, "deleted_items": 2, "folders": 3, "messages_per_folder": 2},
    after_reading=OUTCOMES,
    after_browsing=OUTCOMES,
    load_attachment="50%",
    messages={"ups1K": 1, "upsXLatt": 1},
    inbox_limit=6,
)
LISTS = {"count": 2, "size": {"min": 2, "average": 3, "max": 4}}


def counts(tally: Tally, stored_bytes: Mapping[str, int]) -> list[Any]:
    return [tally.tasks, tally.traffic, tally.hours, tally.failures, tally.gathered, tally.load(), stored_bytes]


@pytest.mark.parametrize("more", [{"lists": LISTS}, {"lists": LISTS, "initialise": "never"}, {}])
def test_a_plan_is_that_of_an_engine(tmp_path: Path, more: dict[str, Any]) -> None:
    """Users interrupt the reading of their Inbox, answer browsed mail, and evict what is above the Inbox limit."""
    made = scenario_of(tmp_path, (BUSY, 7), (quiet(new_mail={"per_day": 20}), 3), **more)
    plan = make_plan(made)
    assert counts(plan.tally, plan.stored_bytes) == counts(*plan_by_engine(Workload(made)))
    for task in ("SYNC", "READ", "FORWARD", "SAVE SENT", "COPY", "SCHEDULE", "EVICT", "LOAD ATTACHMENT"):
        assert sum(plan.tally.tasks[task]) > 0, task


def test_users_in_several_processes_have_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mail between processes arrives in the same rounds, also at the end of the run."""
    made: Scenario = load_scenario("quickstart", ["run={day_length: 100s}"])
    alone = make_plan(made)
    monkeypatch.setattr(plans, "USERS_OF_A_PROCESS", 2)
    monkeypatch.setattr(plans, "usable_cores", lambda: 3)
    shares = list[float]()
    together = make_plan(made, shares.append)
    assert counts(together.tally, together.stored_bytes) == counts(alone.tally, alone.stored_bytes)
    assert replace(together, tally=alone.tally) == alone
    assert together.digest == plan_digest(Workload(made))
    assert shares == sorted(shares)
    assert shares[-1] == 1
