"""Users without usable service: judged by their own tasks, beyond chance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from timing_samples import LOGGED_ON, done, event, sample_log, skipped

from loadsim.analysis.summary import Summary, summarise
from loadsim.analysis.unserved import PARTS
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.timinglog.reader import TimingLog

PART_MS = 100_000 / PARTS
"""A part of the window."""

ON = {"unserved_share": {"max": 0.01}, "tasks.scored.response_p95_ms": {"below": 5000}, "failed_share": {"max": 0.01}}


def reads(user: int, good: int, **bad: int) -> list[dict[str, Any]]:
    """READs of a user in as many parts of the window: of 10 ms, `late` by a minute, or of these outcomes."""
    records = [done("READ", PART_MS * (number + 0.5), 10, user=user) for number in range(good)]
    for outcome, count in bad.items():
        for number in range(count):
            due_ms = PART_MS * (good + number + 0.5)
            if outcome == "skipped":
                records.append(skipped("READ", due_ms, user=user))
            else:
                own = {"late_ms": 59_000} if outcome == "late" else {"outcome": outcome, "error": "NO"}
                records.append(done("READ", due_ms, 10, user=user, **own))
    return records


def log_of(path: Path, *users: list[dict[str, Any]], mails: Sequence[dict[str, Any]] = (), **header: Any) -> TimingLog:
    count = {"users": len(users), "engine_users": len(users)}
    about = {"criteria": ON, "limits": {"hits": 1, "done": 0, "load": 0}} | count
    return sample_log(
        path, [LOGGED_ON, *(task for user in users for task in user)], mails=[*mails], header=about | header
    )


def result(summary: Summary) -> tuple[float | None, bool]:
    return next((one.figure, one.passed) for one in summary.criteria if one.name == "unserved_share")


def test_three_unserved_users_of_a_hundred_are_found(tmp_path: Path) -> None:
    """Each of their commands takes 59 s more, which no percentile over all users shows."""
    users = [reads(user, 0, late=10) if user in (7, 31, 90) else reads(user, 10) for user in range(1, 101)]
    summary = summarise([log_of(tmp_path / "a.tlog", *users)])
    assert [one.name for one in summary.criteria if not one.passed] == ["unserved_share"]
    assert (result(summary), summary.exit_status) == ((0.03, False), 1)
    assert summary.figures.unserved_users == 3
    named = finding(Code.USERS_UNSERVED, unserved=3, unserved_share=0.03, first=("7", "31", "90"))
    assert named in summary.verdict.warnings


@pytest.mark.parametrize(
    ("bad", "users", "share"),
    [
        ({"late": 10}, 100, 0.01),  # as allowed
        ({"late": 10}, 30, 1 / 30),  # a share of 1 % of 30 users is none
        ({"skipped": 10}, 30, 1 / 30),
        ({"timeout": 10}, 30, 1 / 30),
        ({"generator": 10}, 30, 0),  # loadsim's own fault
    ],
)
def test_one_unserved_user_is_found(tmp_path: Path, bad: dict[str, int], users: int, share: float) -> None:
    everybody = [reads(user, 0, **bad) if user == 1 else reads(user, 10) for user in range(1, users + 1)]
    assert result(summarise([log_of(tmp_path / "a.tlog", *everybody)])) == (share, share <= 0.01)


@pytest.mark.parametrize(
    ("good", "bad", "counts"),
    [
        (4, {"late": 1}, False),  # one slow task proves nothing
        (2, {"late": 3}, False),
        (1, {"late": 4}, True),
        (0, {"late": 2}, False),  # too few to be judged
        (0, {"late": 3}, True),
        (6, {"late": 4}, False),
        (5, {"late": 5}, True),
        (49, {"late": 11}, False),
        (48, {"late": 12}, True),
        (18, {"refused": 2}, False),
        (16, {"refused": 4}, True),  # a failure is less likely than a late task
        (16, {"late": 4}, False),
    ],
)
def test_a_user_counts_beyond_chance(tmp_path: Path, good: int, bad: dict[str, int], counts: bool) -> None:
    """By Chernoff's bound, at a probability of one in a thousand."""
    summary = summarise([log_of(tmp_path / "a.tlog", reads(1, good, **bad), reads(2, 20))])
    assert summary.figures.unserved_users == counts


@pytest.mark.parametrize(
    ("took_ms", "limit", "bad"),
    [(61_000, {"below": 60_000}, 1), (59_000, {"below": 60_000}, 0), (None, {"below": 60_000}, 1), (None, None, 0)],
)
def test_a_user_without_delivered_mail_is_unserved(
    tmp_path: Path, took_ms: int | None, limit: dict[str, Any] | None, bad: int
) -> None:
    """One of eighty, whose mail comes an hour late or never, which no percentile over all mail shows."""
    mails = []
    for user in range(1, 81):
        for part in range(10):
            at_ms = PART_MS * (part + 0.5)
            mails.append(event("accepted", f"n{user}.{part}", user, at_ms))
            if user != 7 or took_ms is not None:
                mails.append(event("seen", f"n{user}.{part}", user, at_ms + (took_ms or 0 if user == 7 else 5)))
    users = [reads(user, 10) for user in range(1, 81)]
    log = log_of(tmp_path / "a.tlog", *users, mails=mails, criteria=ON | {"delivery.p95_ms": limit})
    figures = summarise([log]).figures
    assert (figures.unserved_users, figures.unserved_share) == (bad, bad / 80)


def test_users_judged_by_mail_do_not_hide_users_with_failed_tasks(tmp_path: Path) -> None:
    """Two of ten users with tasks have none in time; 290 others have mail only, which is delivered."""
    mails = []
    for user in range(11, 301):
        for part in range(3):
            at_ms = PART_MS * (part + 0.5)
            mails += [event(name, f"n{user}.{part}", user, at_ms) for name in ("accepted", "seen")]
    users = [reads(user, 0, late=10) if user < 3 else reads(user, 10) for user in range(1, 11)]
    log = log_of(tmp_path / "a.tlog", *users, mails=mails, users=300, engine_users=300)
    figures = summarise([log]).figures
    assert (figures.unserved_users, figures.unserved_share) == (2, 0.2)


def test_a_burst_counts_once(tmp_path: Path) -> None:
    """A stall in the middle of twelve tasks that were due together, of twenty."""
    burst = [done("READ", 20 * PART_MS + number, 10, late_ms=9000) for number in range(12)]
    assert summarise([log_of(tmp_path / "a.tlog", [*reads(1, 8), *burst])]).figures.unserved_users == 0


@pytest.mark.parametrize(
    ("criteria", "counts"),
    [
        ({"tasks.READ.response_p95_ms": {"max": 60_000}}, False),  # a task's own limit goes before that of all
        ({"by_protocol.imap.tasks.READ.response_p95_ms": None}, False),
        ({"tasks.scored.response_p95_ms": {"below": 59_000}}, True),
        ({"tasks.scored.response_p95_ms": None}, False),
    ],
)
def test_the_limit_is_that_of_the_criteria(tmp_path: Path, criteria: dict[str, Any], counts: bool) -> None:
    log = log_of(tmp_path / "a.tlog", reads(1, 0, late=10), criteria=ON | criteria)
    assert summarise([log]).figures.unserved_users == counts


def test_unserved_share_is_none_without_judged_users(tmp_path: Path) -> None:
    few, none = (summarise([log_of(tmp_path / f"{n}.tlog", reads(1, n))]).figures.unserved_share for n in (2, 0))
    assert (few, none) == (0, None)
