"""Users without a session: the share of the window's time, what a log keeps of it, and the log-ons that failed."""

from pathlib import Path
from typing import Any

import pytest
from findings_of import warnings_of
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import DELIVERED, ENDED, LOGGED_ON, done, sample_log

from loadsim.analysis.aggregate import read_tasks
from loadsim.analysis.completeness import DownTime
from loadsim.analysis.summary import Summary, summarise
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

FEW = {"limits": {"hits": 1, "window_s": 1}}


def down_share(log: TimingLog, window_s: Window, users: int) -> float | None:
    down = DownTime(log, window_s)
    read_tasks(log, down.add)
    return down.share(users)


def down(since_s: float, until_s: float | None, user: int = 1) -> dict[str, Any]:
    """A user without a session from an instant to another, or for good."""
    took_s = 0 if until_s is None else until_s - since_s
    record = done("NO SESSION", 1000 * since_s, 1000 * took_s, user=user)
    return record | ({"ended_ns": None, "outcome": "unfinished"} if until_s is None else {})


def asked(path: Path, tasks: list[dict[str, Any]], **header: Any) -> Summary:
    fine = [LOGGED_ON, done("READ", 15_000, 10)]
    return summarise(
        [sample_log(path, [*fine, *tasks], DELIVERED, header=FEW | {"users": 4, "engine_users": 4} | header)]
    )


def missed(summary: Summary) -> list[str]:
    return [one.where for one in summary.verdict.missed]


def test_the_down_share_of_no_users_is_none(tmp_path: Path) -> None:
    assert down_share(sample_log(tmp_path / "a.tlog"), Window(10, 20), 0) is None


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(-20, 40), st.none() | st.integers(0, 40)), max_size=8),
    st.integers(-5, 20),
    st.integers(1, 20),
)
def test_the_down_share_is_that_of_counted_seconds(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int | None]], begin_s: int, length_s: int
) -> None:
    """Of instants on whole seconds: each second of the window in which a user had no session."""
    records = [down(since, None if took is None else since + took, user) for user, (since, took) in enumerate(spans, 1)]
    log = sample_log(tmp_path_factory.mktemp("log") / "a.tlog", records)
    counted = sum(
        since <= at_s and (took is None or at_s < since + took)
        for since, took in spans
        for at_s in range(begin_s, begin_s + length_s)
    )
    assert down_share(log, Window(begin_s, begin_s + length_s), 8) == pytest.approx(counted / (8 * length_s), abs=1e-12)


def test_times_without_a_session_miss_a_criterion(tmp_path: Path) -> None:
    """4 users, 100 s: 4 s are 1 %, and just met; any more is missed. Service times know nothing of it."""
    fine, bad = (asked(tmp_path / str(until), [down(12, until)]) for until in (16, 16.5))
    assert (fine.score["down_share"], fine.exit_status) == (0.01, 0)
    assert (bad.score["verdict"]["validity"], bad.exit_status) == ("valid", 1)
    assert missed(bad) == ["down_share"]


def test_users_without_a_session_by_the_servers_fault_leave_the_run_valid(tmp_path: Path) -> None:
    """One of four lost it for good after 20 of 100 s: it was the server, and the run counts, and misses."""
    facts = ENDED | {"lost_users": 1, "sessions_lost": 1, "sessions_restored": 0}
    tasks = [LOGGED_ON, done("READ", 15_000, 10), down(20, None)]
    header = FEW | {"users": 4, "engine_users": 4}
    summary = summarise([sample_log(tmp_path / "a.tlog", tasks, DELIVERED, header=header, facts=facts)])
    assert (summary.score["lost_users"], summary.score["users_without_session"]) == (0, 1)
    assert (summary.score["verdict"]["validity"], summary.exit_status) == ("valid", 1)
    assert missed(summary) == ["down_share"]
    assert warnings_of(summary) == (
        finding(Code.SESSIONS_LOST, sessions=1, down_share=0.2),
        finding(Code.NO_SESSION_AT_END, without=1, users=4),
    )


def test_log_ons_of_the_whole_run_are_counted(tmp_path: Path) -> None:
    """Before the window, in it and after it: 2 of 200 failed, which is just met; of 199 it is missed.

    One that still ran at the end has not failed.
    """
    tasks = [done("LOGON", 1000 * at, 5, outcome="refused" if at in (50, 150) else "ok") for at in range(1, 198)]
    tasks += [done("LOGON", 199_000, 5, outcome="unfinished", ended_ns=None)]
    fine, bad = asked(tmp_path / "a", [*tasks, done("LOGON", 0, 5)]), asked(tmp_path / "b", tasks)
    assert (fine.score["log_ons"], fine.score["logon_failed_share"], fine.exit_status) == (200, 0.01, 0)
    assert (bad.score["log_ons"], bad.score["logon_failed_share"], bad.exit_status) == (199, 2 / 199, 1)
    assert missed(bad) == ["logon_failed_share"]
    assert warnings_of(bad) == (finding(Code.LOG_ONS_FAILED, failed=2, tried=199),)
