"""Early ends: an answer about the server if `abort_on` ended the run, else a fault of the machines of the load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from timing_samples import ENDED, done, write_sample

from loadsim.analysis.capacity_step import judge_step
from loadsim.analysis.summary import Summary, summarise
from loadsim.errors import LogError
from loadsim.report.banner import banner

ABORTED = {"ended_by": "abort_on", "ended_why": "failed share 62 % over 60 s, at most 50 %"}
LOSS = "client c2 was lost, and cluster.on_client_loss is stop"


def ended(place: Path, tasks: Sequence[dict[str, Any]], facts: dict[str, Any], **header: Any) -> Summary:
    """The summary of a run with 1,000 users that ended early; all of its logs are complete."""
    few = {"limits": {"hits": 20}, "users": 1000, "engine_users": 1000, "weights": {"READ": 10, "SEND": 1}, **header}
    return summarise([write_sample(place / "c1.0.tlog", tasks, header=few, facts={**ENDED, "ended": "early", **facts})])


@pytest.mark.parametrize(
    ("facts", "cause", "step"),
    [
        (ABORTED, "aborted", "fail"),
        ({"ended_by": "users lost", "ended_why": LOSS}, "fault", "void"),
        ({"ended_by": "start missed", "ended_why": "not ready for the common start"}, "fault", "void"),
        # Logs without the fact: the reason may be any
        ({"ended_why": LOSS}, "fault", "void"),
        ({"ended_why": ABORTED["ended_why"]}, "fault", "void"),
        ({}, "ended", "void"),
    ],
)
def test_only_abort_on_says_that_the_server_failed(
    facts: dict[str, Any], cause: str, step: str, tmp_path: Path
) -> None:
    """The loss of a client says nothing about the server, even if all logs are here and no user is lost."""
    found = ended(tmp_path, [done("READ", 1000 * at, 5) for at in range(1, 60)], facts)
    assert (found.verdict.validity, found.verdict.causes, found.exit_status) == ("invalid", (cause,), 3)
    assert ("did not take the load of 1,000 users" in banner(found)) == (cause == "aborted")
    assert judge_step(found.score).result == step


@pytest.mark.parametrize("hostile", ["weather", 1, None, ["abort_on"]])
def test_a_log_cannot_state_another_end(hostile: Any, tmp_path: Path) -> None:
    """A log is refused that loadsim did not write."""
    with pytest.raises(LogError, match="ended_by: expected one of abort_on, users lost, start missed"):
        ended(tmp_path, [done("READ", 1000, 5)], {"ended_by": hostile, "ended_why": "x"})
