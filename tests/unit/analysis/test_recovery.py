"""The recovery from an outage: whole runs in virtual time against a second count, and hand-made logs."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_samples import DELIVERED, LOGGED_ON, done, sample_log
from virtual_runs import EVERYTHING, Lived, live, quiet, scenario_of

from loadsim.analysis.summary import Summary, summarise, summary_of
from loadsim.engine.engine import LOG_ONS_AT_ONCE, Engine
from loadsim.errors import ConfigError, ServerLost, ServerRefused, TaskFailed
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import finding
from loadsim.model.draws import draw
from loadsim.model.figures import FailureCount, Recovery
from loadsim.protocols.in_memory import InMemoryDriver
from loadsim.scenario.scenario import load_scenario

S = 1_000_000_000
AT_S = 100
BUSY = EVERYTHING | {
    "new_mail": {"per_day": 20, "recipients": 2, "list_chance": "30%"},
    "process_inbox": {"per_day": 20},
    "browse": {"per_day": 10},
    "search": {"per_day": 10},
    "schedule": {"per_day": 10},
}


def stormy(
    place: Path, users: int, away_s: float, refused: float, profile: dict[str, Any] = BUSY, **keys: Any
) -> Lived:
    """Users lose their sessions 100 s after the start; then the server is away, then refuses some for 30 s."""
    at_work: list[Engine] = []

    async def during(engine: Engine, _: InMemoryDriver) -> None:
        at_work.append(engine)

    def fault(user: int, name: str, number: int) -> TaskFailed | None:
        engine = at_work[0]
        since_s = (engine.now_ns() - engine.start_ns) / S - AT_S if engine.start_ns else -1
        if name != "IMAP AUTHENTICATE" or since_s < 0:
            return None
        if since_s < away_s:
            return ServerLost("connection refused")
        if since_s < away_s + 30 and draw(1, user, "refused", number) < refused:
            return ServerRefused("NO [UNAVAILABLE]", "busy")
        return None

    times = {"day_length": "300s", "ramp_up": "1s", "warm_up": "0s", "window": "300s"}
    run = times | {"outage": {"at": f"{AT_S}s", "drop_sessions": True}}
    scenario = scenario_of(place, (profile, users), run=run, **keys)
    header = {"outage": {"at_s": AT_S, "by": "drop"}, "users": users, "engine_users": users, "window_s": [0, 300]}
    return live(scenario, place, service_s=0.06, fault=fault, during=during, header=header)


def counted(lived: Lived, users: int) -> tuple[list[float], Counter[tuple[str, str]], int, int]:
    """Recoveries in seconds, failed log-ons, failed tasks and successful log-ons, from tasks alone.

    A session holds unless a log-on follows within 10 s of one that succeeded.
    """
    at_ns = lived.engine.start_ns + AT_S * S
    recoveries, refusals, failed, on = [], Counter[tuple[str, str]](), 0, 0
    for user in range(1, users + 1):
        log_ons = [task for task in lived.tasks("LOGON", user) if (task["ended_ns"] or 0) >= at_ns]
        assert log_ons
        back_ns = math.inf
        for task, following in zip(log_ons, [*log_ons[1:], None], strict=True):
            if task["outcome"] == "ok" and (
                following is None or following["scheduled_ns"] - task["ended_ns"] >= 10 * S
            ):
                back_ns = task["ended_ns"]
                break
        recoveries.append((back_ns - at_ns) / S)
        for task in lived.tasks(user=user):
            if at_ns <= (task["ended_ns"] or 0) <= back_ns and task["outcome"] in ("refused", "lost", "timeout"):
                failed += task["task"] != "LOGON"
                if task["task"] == "LOGON":
                    refusals[task["outcome"], task["error"]] += 1
            on += task["task"] == "LOGON" and task["outcome"] == "ok" and at_ns <= task["ended_ns"] <= back_ns
    return sorted(recoveries), refusals, failed, on


@settings(deadline=None, max_examples=8)
@given(st.integers(2, 12), st.sampled_from([0, 3, 40]), st.sampled_from([0.0, 0.5]))
def test_the_recovery_is_that_of_a_second_count(
    tmp_path_factory: pytest.TempPathFactory, users: int, away_s: int, refused: float
) -> None:
    lived = stormy(tmp_path_factory.mktemp("run"), users, away_s, refused)
    figures = summary_of(lived.log).figures
    found = figures.recovery
    recoveries, refusals, failed, on = counted(lived, users)
    assert found is not None
    assert found.at_s == pytest.approx(AT_S, abs=1e-6)
    assert (found.users, found.unrecovered) == (users, 0)

    def nearest(percent: int) -> float:
        return recoveries[math.ceil(users * percent / 100) - 1]

    assert [found.p50_s, found.p95_s, found.max_s] == pytest.approx([nearest(50), nearest(95), nearest(100)], abs=1e-5)
    assert {(one.outcome, one.kind): one.times for one in found.failures} == refusals
    assert figures.totals.interrupted == failed
    assert found.log_ons_per_s == pytest.approx(on / recoveries[-1], rel=1e-3)
    # No failure is lost: each is forgiven, or counts as failed.
    all_failed = sum(task["outcome"] in ("refused", "lost", "timeout") for task in lived.tasks())
    by_task = [task for driver in figures.by_protocol.values() for task in driver.tasks]
    assert sum(task.failed + (task.interrupted or 0) for task in by_task) == all_failed
    for task in by_task:
        parts = (task.hits, task.failed, task.interrupted or 0, task.unfinished, task.skipped, task.generator_failed)
        assert task.planned == sum(parts)


def test_all_users_log_on_at_once_after_an_outage(tmp_path: Path) -> None:
    """The limit of the ramp-up does not spread the storm."""
    users = LOG_ONS_AT_ONCE + 20
    lived = stormy(tmp_path, users, 0, 0, quiet())
    at_ns = lived.engine.start_ns + AT_S * S
    begun = [task["started_ns"] for task in lived.tasks("LOGON") if task["started_ns"] >= at_ns]
    assert sum(at < at_ns + S // 100 for at in begun) > LOG_ONS_AT_ONCE


# --- hand-made logs -----------------------------------------------------------------------------------------------


def gap(user: int, since_s: float, until_s: float | None) -> dict[str, Any]:
    record = done("NO SESSION", 1000 * since_s, 1000 * ((until_s or since_s) - since_s), user=user)
    return record | ({"ended_ns": None, "outcome": "unfinished"} if until_s is None else {})


def failed(task: str, user: int, from_s: float, to_s: float, outcome: str = "lost") -> dict[str, Any]:
    return done(task, 1000 * from_s, 1000 * (to_s - from_s), user=user, outcome=outcome, error="connection lost")


def judged(path: Path, *tasks: dict[str, Any], by: str = "drop", **header: Any) -> Summary:
    stated = {"outage": {"at_s": 20, "by": by}, "users": 20, "engine_users": 20, "limits": {"hits": 1, "window_s": 1}}
    fine = [LOGGED_ON, *(done("READ", 15_000 + at, 10) for at in range(100))]
    return summarise([sample_log(path, [*fine, *tasks], DELIVERED, header=stated | header)])


def recovery(summary: Summary) -> Recovery:
    assert summary.figures.recovery is not None
    return summary.figures.recovery


def test_users_without_service_at_the_end_have_an_infinite_recovery(tmp_path: Path) -> None:
    gaps = [gap(user, 20, 20 + user) for user in range(1, 20)]
    found = recovery(judged(tmp_path / "1.tlog", *gaps, gap(20, 20, None)))
    assert (found.users, found.unrecovered, found.p50_s, found.p95_s, found.max_s) == (20, 1, 10, 19, math.inf)
    late = judged(tmp_path / "2.tlog", *gaps[:18], gap(19, 20, None), gap(20, 20, None))
    assert (recovery(late).unrecovered, recovery(late).p95_s) == (2, math.inf)
    criteria = {"recovery_p95_s": {"max": 1e9}}
    missed = judged(tmp_path / "3.tlog", *gaps[:18], gap(19, 20, None), gap(20, 20, None), criteria=criteria)
    assert [one.name for one in missed.criteria if not one.passed] == ["recovery_p95_s"]


def test_nothing_is_forgiven_of_a_user_who_never_recovers(tmp_path: Path) -> None:
    tasks = [gap(1, 20, None), failed("READ", 1, 19, 20), failed("LOGON", 1, 21, 22, "refused"), gap(2, 20, 30)]
    figures = judged(tmp_path / "1.tlog", *tasks).figures
    assert (figures.totals.failed, figures.totals.interrupted, figures.logon_failed_share) == (1, 0, 0.5)
    assert figures.sessions.down_share == pytest.approx(80 / (20 * 100))
    assert figures.recovery is not None
    assert figures.recovery.failures == [FailureCount("refused", "connection lost", 1)]


def test_a_refusal_to_a_user_with_a_session_is_not_forgiven(tmp_path: Path) -> None:
    """The server answered, and the session broke only five seconds after the outage."""
    tasks = [failed("SEND", 1, 21, 22, "refused"), failed("SEND", 1, 22, 23), failed("READ", 1, 24, 25), gap(1, 25, 30)]
    totals = judged(tmp_path / "1.tlog", *tasks).figures.totals
    assert (totals.failed, totals.interrupted) == (1, 2)


def test_an_outage_that_ends_no_session_is_not_measured(tmp_path: Path) -> None:
    """The criterion is missed."""
    for by in ("drop", "command", "hand"):
        found = judged(tmp_path / f"{by}.tlog", gap(1, 5, 6), by=by, criteria={"recovery_p95_s": {"max": 60}})
        assert (recovery(found).users, recovery(found).p95_s) == (0, None)
        assert [(one.name, one.passed, one.figure) for one in found.criteria] == [("recovery_p95_s", False, None)]


def test_a_session_that_breaks_within_ten_seconds_was_no_service(tmp_path: Path) -> None:
    flapping = [gap(1, 20, 23), gap(1, 31, 35), gap(1, 44.9, 50), gap(1, 61, 62)]
    assert recovery(judged(tmp_path / "1.tlog", *flapping)).max_s == 30


def test_later_losses_are_not_the_outages(tmp_path: Path) -> None:
    """Users without a session at the outage are interrupted, too; those whose earlier loss is over are not."""
    gaps = [gap(1, 20, 25), gap(2, 140.1, 150), gap(3, 1, 19), gap(4, 10, 28), gap(5, 139, 141)]
    found = judged(tmp_path / "1.tlog", *gaps, failed("READ", 2, 139, 140), window_s=[0, 200])
    assert (recovery(found).users, recovery(found).max_s) == (3, 121)
    assert (found.figures.totals.failed, found.figures.totals.interrupted) == (1, 0)
    # 9.9 s of user 2, 18 of user 3, and of user 4 those before the outage.
    assert found.figures.sessions.down_share == pytest.approx((9.9 + 18 + 10) / (20 * 200))


def test_by_hand_the_outage_begins_with_the_first_session_lost(tmp_path: Path) -> None:
    found = recovery(judged(tmp_path / "1.tlog", gap(1, 10, 11), gap(2, 30, 40), gap(3, 31, 50), by="hand"))
    assert (found.at_s, found.users, found.p50_s, found.max_s) == (30, 2, 10, 20)
    # Sessions lost by chance, long before and after.
    chance = [gap(1, 21, 22), gap(4, 500, 501)]
    found = recovery(judged(tmp_path / "2.tlog", *chance, gap(2, 150, 180), gap(3, 151, 190), by="hand"))
    assert (found.at_s, found.users, found.p50_s, found.max_s) == (150, 2, 30, 40)


def test_a_recovery_of_a_few_users_is_told(tmp_path: Path) -> None:
    """A session lost by chance would otherwise stand for an outage that never happened."""
    for users, told in ((0, True), (9, True), (10, False)):
        found = judged(tmp_path / f"{users}.tlog", *(gap(user + 1, 30, 31) for user in range(users)), by="command")
        expected = [finding(Code.OUTAGE_PARTIAL, interrupted=users, users=20)]
        assert [one for one in found.verdict.findings if one.code is Code.OUTAGE_PARTIAL] == expected * told


def test_only_failures_between_the_outage_and_the_recovery_are_forgiven(tmp_path: Path) -> None:
    tasks = [
        gap(1, 20.001, 30),
        failed("READ", 1, 18, 19.9),  # before
        failed("READ", 1, 19, 20),  # under way
        failed("LOGON", 1, 21, 22, "refused"),
        failed("SEND", 1, 23, 24, "timeout"),
        done("LOGON", 29_000, 1_000, user=1),
        failed("READ", 1, 30.1, 31),  # after
        failed("READ", 2, 21, 22, "refused"),  # of a user with a session
        failed("READ", 1, 24, 25, "generator"),
    ]
    figures = judged(tmp_path / "1.tlog", *tasks).figures
    by_task = {task.task: (task.failed, task.interrupted, task.generator_failed) for task in figures.tasks}
    assert by_task == {"READ": (3, 1, 1), "LOGON": (0, 1, 0), "SEND": (0, 1, 0)}
    assert (figures.totals.failed, figures.totals.interrupted, figures.logon_failed_share) == (3, 2, 0)
    read = next(task for task in figures.tasks if task.task == "READ")
    assert (read.planned, read.response.max_ms, read.done_share) == (105, math.inf, 100 / 105)
    assert figures.recovery is not None
    assert figures.recovery.failures == [FailureCount("refused", "connection lost", 1)]


def test_log_ons_per_second_are_counted_from_the_outage(tmp_path: Path) -> None:
    gaps = [gap(user, 20, 20 + at) for user, at in ((1, 0.5), (2, 1.2), (3, 1.9), (4, 4))]
    log_ons = [done("LOGON", 20_000, 1000 * at, user=user) for user, at in ((1, 0.5), (2, 1.2), (3, 1.9), (4, 4))]
    later = done("LOGON", 60_000, 5, user=4)
    found = recovery(judged(tmp_path / "1.tlog", *gaps, *log_ons, later))
    assert (found.log_ons_per_s, found.log_ons_peak_per_s) == (1, 2)


def test_without_an_outage_nothing_is_forgiven_and_no_figure_is_added(tmp_path: Path) -> None:
    summary = judged(tmp_path / "1.tlog", gap(1, 20, 30), failed("READ", 1, 21, 22), outage=None)
    assert summary.figures.totals.failed == 1
    assert not [key for key in summary.score if "recovery" in key or "interrupted" in key]


# --- the scenario -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["run.outage.at=20s", "run.outage.command=restart it", "run.outage.drop_sessions=yes"], "run.outage"),
        (["run.outage.at=7s"], "run.outage.at"),  # the warm-up takes 8 s
        (["run.outage.at=60s"], "run.outage.at"),
        (["run.outage.at=20s", "run.mode=stress"], "run.outage"),
        (["run.outage.drop_sessions=yes"], "run.outage.at"),
        (["criteria.recovery_p95_s.max=10"], "recovery_p95_s"),
    ],
)
def test_impossible_outages_are_rejected(settings: list[str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        load_scenario("quickstart", settings)


def test_a_command_is_not_shown(tmp_path: Path) -> None:
    """It reaches no engine, and does not change the load; the outage's instant and kind do."""
    plain = load_scenario("quickstart")
    stated = ["run.outage.at=20s", "run.outage.command=restart --key=hidden"]
    scenario = load_scenario("quickstart", stated)
    other = load_scenario("quickstart", [stated[0], "run.outage.command='true'"])
    assert "hidden" not in scenario.to_yaml() + repr(scenario) + repr(scenario.without_commands().outage)
    assert scenario.without_commands().outage != scenario.outage
    digests = {plain.digest(), scenario.digest(), load_scenario("quickstart", ["run.outage.at=20s"]).digest()}
    assert len(digests) == 3
    assert other.digest() == scenario.digest() == scenario.without_commands().digest()
    (tmp_path / "again.yaml").write_text(scenario.to_yaml(), encoding="utf-8")
    again = load_scenario(str(tmp_path / "again.yaml"), passwords=False)
    assert again.outage is not None
    assert (again.outage.at_s, again.outage.by) == (20, "command")
