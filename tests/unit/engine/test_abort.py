"""When a run is hopeless: each reason just beyond its limit and just within, over the time that is asked for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loadsim.engine.abort import FEWEST_TASKS, AbortCheck
from loadsim.engine.snapshot import LiveSnapshot
from loadsim.scenario.sections import AbortOn

USERS = 100
PERIOD_S = 30.0


def at(at_s: float, ok: int = 0, failed: int = 0, users_on: int = USERS) -> LiveSnapshot:
    """Where the run stands, all counts from its beginning."""
    tasks = {"READ": {"ok": ok}, "SEND": {"timeout": failed}}
    return LiveSnapshot("work", at_s, USERS, users_on, tasks, 0, 0, 0.0)


Course = Callable[[int], LiveSnapshot]
"""The snapshot of each second."""


def ended(abort_on: AbortOn, course: Course, seconds: int = 100) -> tuple[int, str] | None:
    """The second in which it is called hopeless, and why; None when it never is."""
    hopeless = AbortCheck(abort_on, USERS)
    for second in range(seconds):
        if end := hopeless.judge(course(second)):
            return second, end.why
    return None


@pytest.mark.parametrize(
    ("abort_on", "course", "why"),
    [
        (
            AbortOn(failed_share=0.5),
            lambda second: at(second, ok=38 * second, failed=62 * second),
            "failed share 62 % over 30 s, at most 50 %",
        ),
        (AbortOn(failed_share=0.5), lambda second: at(second, ok=50 * second, failed=50 * second), None),
        (
            AbortOn(lost_users=0.2),
            lambda second: at(second, users_on=79),
            "21 % of the users without a session over 30 s, at most 20 %",
        ),
        (AbortOn(lost_users=0.2), lambda second: at(second, users_on=80), None),
        (AbortOn(), lambda second: at(second, failed=second, users_on=0), None),
    ],
)
def test_each_reason_ends_the_run_once_its_period_is_over(abort_on: AbortOn, course: Course, why: str | None) -> None:
    """With figure, time and limit; a run that stays at its limit goes on, and so does any without one."""
    assert ended(abort_on, course) == (None if why is None else (30, why))


def test_only_the_period_counts() -> None:
    """A server that fails after an hour of good work is found out within the period, not by the average."""

    def course(second: int) -> LiveSnapshot:
        good, bad = min(second, 3600), max(second - 3600, 0)
        return at(second, ok=10 * good, failed=10 * bad)

    found = ended(AbortOn(failed_share=0.5), course, seconds=4000)
    assert found is not None
    assert found[0] == 3616  # the first second of which more than half of the last 30 were bad


def test_users_who_come_back_within_the_period_are_not_lost() -> None:
    """A server that is restarted loses everybody for a while: no reason, as long as they are on again in time."""
    restarts = AbortOn(lost_users=0.2)
    assert ended(restarts, lambda second: at(second, users_on=0 if second % 30 else USERS)) is None
    assert ended(restarts, lambda second: at(second, users_on=0 if second > 40 else USERS)) == (
        71,
        "100 % of the users without a session over 30 s, at most 20 %",
    )


def test_a_failed_share_of_few_tasks_ends_nothing() -> None:
    """Fewer than twenty may all fail."""
    few = ended(AbortOn(failed_share=0.0), lambda second: at(second, failed=min(second, FEWEST_TASKS - 1)), 31)
    assert few is None
    enough = ended(AbortOn(failed_share=0.0), lambda second: at(second, failed=min(second, FEWEST_TASKS)), 31)
    assert enough == (30, "failed share 100 % over 30 s, at most 0 %")


@pytest.mark.parametrize("phase", ["log-on", "finish", "drain", "log-off", "over"])
def test_only_the_load_phase_is_judged(phase: str) -> None:
    """While users log on, or the run ends anyway, nothing ends it."""

    def course(second: int) -> LiveSnapshot:
        return replace(at(second, failed=99 * second, users_on=0), phase=phase)

    assert ended(AbortOn(0.1, 0.1), course) is None


def test_users_of_engines_that_never_reported_are_lost_too() -> None:
    """The share is of the scenario's users, not of those that have reported."""
    half = ended(AbortOn(lost_users=0.4), lambda second: replace(at(second, users_on=50), users=50))
    assert half == (30, "50 % of the users without a session over 30 s, at most 40 %")


@pytest.mark.parametrize(("lost", "by"), [([], "abort_on"), (["c2"], "users lost")])
def test_an_abort_after_a_lost_client_does_not_blame_the_server(lost: list[str], by: str) -> None:
    """The users of a lost client or engine count as users without a session."""
    check = AbortCheck(AbortOn(lost_users=0.4), USERS)
    ends = [check.judge(at(second, users_on=50), lost) for second in range(31)]
    assert ends[-1] is not None
    assert (ends[:-1], ends[-1].by) == ([None] * 30, by)
