"""Early ends: an answer about the server if `abort_on` ended the run, else a fault of the machines of the load."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from timing_samples import ENDED, done, write_sample

from loadsim.analysis.summary import Summary, summarise
from loadsim.campaign.file import finished_summary
from loadsim.campaign.runs import judge_run
from loadsim.errors import LogError

ABORTED = {"ended_by": "abort_on", "ended_why": "failed share 62 % over 60 s, at most 50 %"}
LOSS = "50 % of the users without a session over 30 s, at most 20 %"


def ended(place: Path, tasks: Sequence[dict[str, Any]], facts: dict[str, Any], **header: Any) -> Summary:
    """The summary of a run with 1,000 users that ended early; all of its logs are complete."""
    own = {"limits": {"hits": 20}, "users": 1000, "engine_users": 1000, "weights": {"READ": 10, "SEND": 1}, **header}
    write_sample(place / "logs" / "c1.0.tlog", tasks, header=own, facts={**ENDED, "ended": "early", **facts})
    return summarise([place])


def refused(task: str, *due_s: float) -> list[dict[str, Any]]:
    return [done(task, 1000 * at_s, 10, outcome="refused", error="NO") for at_s in due_s]


@pytest.mark.parametrize(
    ("facts", "cause", "step"),
    [
        (ABORTED, "aborted", "failed"),
        ({"ended_by": "users lost", "ended_why": LOSS}, "fault", "void"),
        ({"ended_by": "accounts taken", "ended_why": "another loadsim used them"}, "fault", "void"),
        ({"ended": "completed", "ended_by": "accounts taken", "ended_why": "noticed at the end"}, "fault", "void"),
        # Logs without the fact: the reason may be any
        ({"ended_why": LOSS}, "fault", "void"),
        ({"ended_why": ABORTED["ended_why"]}, "fault", "void"),
        ({}, "ended", "void"),
    ],
)
def test_only_abort_on_blames_the_server(facts: dict[str, Any], cause: str, step: str, tmp_path: Path) -> None:
    """The loss of a client says nothing about the server, even if all logs are here and no user is lost."""
    found = ended(tmp_path, [done("READ", 1000 * at, 5) for at in range(1, 60)], facts)
    assert (found.verdict.validity, found.verdict.causes, found.exit_status) == ("invalid", (cause,), 3)
    assert judge_run(found.verdict, found.criteria) == step


@pytest.mark.parametrize(
    ("tasks", "causes"),
    [
        (refused("READ", *range(1, 60)), ("aborted",)),
        (refused("READ", *range(1, 110)) + refused("SEND", 101, 103), ("load", "aborted")),
        (refused("READ", *range(1, 190)) + refused("SEND", *range(100, 180, 2)), ("load", "aborted")),
        (refused("SEND", 101, 103), ("load", "aborted")),
        (refused("SYNC", *range(1, 110)), ("aborted",)),
        ([], ("aborted",)),
    ],
    ids=["before the window", "early in it", "late in it", "few tasks", "no scored task", "no task"],
)
def test_an_abort_at_any_time_is_an_answer(
    tasks: Sequence[dict[str, Any]], causes: tuple[str, ...], tmp_path: Path
) -> None:
    """Tasks that would have been due later are no fault: a retry might meet the criteria by chance."""
    found = ended(tmp_path, tasks, ABORTED, window_s=[100.0, 200.0])
    assert found.verdict.causes == causes
    assert judge_run(found.verdict, found.criteria) == "failed"
    kept = finished_summary(tmp_path)  # as a suite or a search reads it after a crash
    assert kept is not None and kept.verdict == found.verdict


@pytest.mark.parametrize("hostile", ["weather", 1, ["abort_on"]])
def test_a_log_cannot_state_another_end(hostile: Any, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="ended_by: expected one of abort_on, users lost, accounts taken"):
        ended(tmp_path, [done("READ", 1000, 5)], {"ended_by": hostile, "ended_why": "x"})
