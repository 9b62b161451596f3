"""The verdict: each reason by its own case, the order of the exit statuses, and what only warns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadsim.results.delivery import Delivery
from loadsim.results.generator_limits import Generator
from loadsim.results.records import OUTCOMES
from loadsim.results.score import ProtocolStatistics, TaskStatistics, Times, weighted_score
from loadsim.results.verdict import Facts, judge

LIMITS = {"lost_users": 0.02, "done": 0.98, "hits": 20, "window_s": 60, "generator_lateness_p95_ms": 50}
CRITERIA = {"score_ms_max": 1000, "failed_max": 0.01, "undelivered_max": 0}


def task(name: str = "READ", p95_ms: float | None = 100, weight: float = 10, **counts: int) -> TaskStatistics:
    """One task's statistics; 1000 hits unless told."""
    filled = dict.fromkeys(OUTCOMES, 0) | ({"ok": 1000} | counts)
    times = Times(p50_ms=p95_ms, p95_ms=p95_ms, mean_ms=p95_ms, stddev_ms=0.0)
    return TaskStatistics(name, weight, filled, times, times, p95_ms)


def protocol(*tasks: TaskStatistics, name: str = "imap") -> ProtocolStatistics:
    """A client module's statistics."""
    return ProtocolStatistics(name, 100, tasks, weighted_score(tasks))


FINE = Facts(
    protocols=(protocol(task()),),
    delivery=Delivery(500, 500, Times(p50_ms=10, p95_ms=20)),
    window_s=(60, 360),
    users=100,
    lost_users=0,
    ended_early=False,
    embedded=False,
    generator=Generator(lateness_p95_ms=5),
)


def with_task(**counts: int) -> Callable[[Facts], Facts]:
    """The facts when READ came to these outcomes."""
    return lambda facts: replace(facts, protocols=(protocol(task(**counts)),))


def with_facts(**fields: Any) -> Callable[[Facts], Facts]:
    """The facts with some replaced."""
    return lambda facts: replace(facts, **fields)


def test_a_fine_run_is_valid_and_passes() -> None:
    """No reason, exit status 0."""
    verdict = judge(FINE, CRITERIA, LIMITS)
    assert (verdict.validity, verdict.passed, verdict.reasons, verdict.warnings) == ("valid", True, (), ())
    assert verdict.exit_status == 0


CASES: list[tuple[Callable[[Facts], Facts], str, bool, int, tuple[str, ...]]] = [
    # Validity: each limit, just beyond it
    (
        with_facts(generator=Generator(lateness_p95_ms=50.1)),
        "invalid", True, 3,
        ("the generator was late: 95th percentile 50.1 ms, at most 50 ms allowed",),
    ),
    (with_facts(lost_users=3), "invalid", True, 3, ("3 of 100 users were lost, at most 2 % allowed",)),
    (
        with_task(ok=979, skipped=11, unfinished=10),
        "invalid", True, 3,
        ("979 of 1000 planned tasks were done (97.9 %), at least 98 % needed",),
    ),
    (with_facts(window_s=(60, 119.5)), "invalid", True, 3, ("the window is 59.5 s long, at least 60 s needed",)),
    (with_task(ok=19), "invalid", True, 3, ("READ has too few hits: 19, at least 20 needed",)),
    (with_facts(ended_early=True), "invalid", True, 3, ("the run was ended early",)),
    (
        with_facts(ended_early=True, ended_why="1204 sessions lost over 30 s, at most 1000"),
        "invalid", True, 3,
        ("ended early: 1204 sessions lost over 30 s, at most 1000",),
    ),
    # ... and just within
    (with_facts(generator=Generator(lateness_p95_ms=50)), "valid", True, 0, ()),
    (with_facts(generator=Generator()), "valid", True, 0, ()),
    (with_facts(window_s=(60, 120)), "valid", True, 0, ()),
    (with_task(ok=20), "valid", True, 0, ()),
    (with_task(ok=995, skipped=5), "valid", True, 0, ()),
    # Degraded: some load was missing, within the limits
    (with_facts(lost_users=2), "degraded", True, 0, ("2 of 100 users were lost",)),
    (with_task(ok=994, skipped=6), "degraded", True, 0, ("994 of 1000 planned tasks were done (99.4 %)",)),
    (with_task(ok=980, unfinished=20), "degraded", True, 0, ("980 of 1000 planned tasks were done (98 %)",)),
    (with_facts(incomplete=("a.tlog: cut",)), "degraded", True, 0, ("a.tlog: cut",)),
    (
        with_facts(incomplete=("a.tlog: cut",), lost_users=3),
        "invalid", True, 3,
        ("3 of 100 users were lost, at most 2 % allowed", "a.tlog: cut"),
    ),
    # Criteria: each just missed, and just met
    (
        with_facts(protocols=(protocol(task(p95_ms=1000)),)),
        "valid", False, 1,
        ("score 1000.0 ms, below 1000 ms wanted",),
    ),
    (with_facts(protocols=(protocol(task(p95_ms=999.9)),)), "valid", True, 0, ()),
    (
        with_task(ok=989, refused=4, lost=4, timeout=3),
        "valid", False, 1,
        ("11 of 1000 tasks failed (1.1 %), at most 1 % wanted",),
    ),
    (with_task(ok=990, refused=4, lost=4, timeout=2), "valid", True, 0, ()),
    (
        with_facts(delivery=Delivery(500, 500, Times(), 1)),
        "valid", False, 1,
        ("1 accepted messages were not delivered when the run ended, at most 0 wanted",),
    ),
    # Invalid goes before missed
    (
        with_facts(ended_early=True, delivery=Delivery(2, 1, Times(), 1)),
        "invalid", False, 3,
        ("the run was ended early", "1 accepted messages were not delivered when the run ended, at most 0 wanted"),
    ),
    # What was skipped does not dilute what failed
    (
        with_task(ok=985, refused=10, skipped=5),
        "valid", False, 1,
        ("10 of 995 tasks failed (1.005 %), at most 1 % wanted",),
    ),
    # No score
    (
        with_facts(protocols=(protocol(task(p95_ms=None, ok=0)),)),
        "invalid", False, 3,
        ("no scored task has a hit: there is no score", "no score, one below 1000 ms wanted"),
    ),
    (
        with_facts(protocols=()),
        "invalid", False, 3,
        ("the logs hold no task: there is no score", "no score, one below 1000 ms wanted"),
    ),
    # A task that is not scored needs no hits; LOGON and LOGOFF are outside the window
    (
        with_facts(protocols=(protocol(task(), task("SYNC", 5, weight=0, ok=1), task("LOGON", 5, 0, refused=500)),)),
        "valid", True, 0,
        (),
    ),
    # Client modules are judged each for itself
    (
        with_facts(protocols=(protocol(task(p95_ms=10)), protocol(task(p95_ms=2000), name="aioimaplib"))),
        "valid", False, 1,
        ("aioimaplib: score 2000.0 ms, below 1000 ms wanted",),
    ),
    (
        with_facts(protocols=(protocol(task()), protocol(task(ok=3), name="aioimaplib"))),
        "invalid", True, 3,
        ("aioimaplib: READ has too few hits: 3, at least 20 needed",),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("change", "validity", "passed", "exit_status", "reasons"), CASES)
def test_each_reason_by_its_own_case(
    change: Callable[[Facts], Facts], validity: str, passed: bool, exit_status: int, reasons: tuple[str, ...]
) -> None:
    """Validity, criteria, exit status and every reason with its figure."""
    verdict = judge(change(FINE), CRITERIA, LIMITS)
    assert (verdict.validity, verdict.passed, verdict.exit_status, verdict.reasons) == (
        validity,
        passed,
        exit_status,
        reasons,
    )


def test_generator_limits_only_warn_on_the_embedded_server() -> None:
    """It shares the machine; the figure is told all the same."""
    verdict = judge(replace(FINE, embedded=True, generator=Generator(lateness_p95_ms=5000)), CRITERIA, LIMITS)
    assert (verdict.validity, verdict.exit_status, verdict.reasons) == ("valid", 0, ())
    assert verdict.warnings == ("the generator was late: 95th percentile 5000.0 ms, at most 50 ms allowed",)
    assert verdict.advice is None


def test_an_unsteady_window_only_warns() -> None:
    """Neither validity nor criteria nor the exit status know of it."""
    verdict = judge(replace(FINE, unsteady=("times are rising",)), CRITERIA, LIMITS)
    assert (verdict.validity, verdict.passed, verdict.exit_status, verdict.reasons) == ("valid", True, 0, ())
    assert verdict.warnings == ("times are rising",)


def test_the_built_in_criteria_are_those_of_the_documents() -> None:
    """Without any given: below 1000 ms, at most 1 % failed, nothing undelivered; a given one replaces its own only."""
    slow = replace(FINE, protocols=(protocol(task(p95_ms=1000)),))
    assert not judge(slow, {}, LIMITS).passed
    assert judge(slow, {"score_ms_max": 2000}, LIMITS).passed
    assert not judge(replace(FINE, protocols=(protocol(task(ok=980, lost=20)),)), {"score_ms_max": 2000}, LIMITS).passed
    assert not judge(replace(FINE, delivery=Delivery(1, 0, Times(), 1)), {}, LIMITS).passed


def test_a_criterion_that_is_off_is_never_missed() -> None:
    """A null in the scenario switches it off, and leaves the others on."""
    bad = replace(
        FINE, protocols=(protocol(task(p95_ms=5000, ok=900, lost=100)),), delivery=Delivery(500, 400, Times(), 100)
    )
    off = {"score_ms_max": None, "failed_max": None, "undelivered_max": None}
    assert judge(bad, off, LIMITS).passed
    for name in off:
        (reason,) = judge(bad, off | {name: CRITERIA[name]}, LIMITS).reasons
        assert "wanted" in reason


def test_no_score_does_not_pass_as_valid_with_all_criteria_off() -> None:
    """A run without a hit is invalid whatever is asked of it."""
    off = {"score_ms_max": None, "failed_max": None, "undelivered_max": None}
    assert judge(replace(FINE, protocols=()), off, LIMITS).exit_status == 3


@given(ok=st.integers(20, 2000), failed=st.integers(0, 50), more=st.integers(1, 50))
def test_more_failures_never_make_a_verdict_better(ok: int, failed: int, more: int) -> None:
    """Turning hits into failures, or adding failures, never turns a miss into a pass."""
    before = judge(with_task(ok=ok, refused=failed)(FINE), CRITERIA, LIMITS)
    for changed in (with_task(ok=ok, refused=failed + more), with_task(ok=max(ok - more, 1), refused=failed + more)):
        after = judge(changed(FINE), CRITERIA, LIMITS)
        assert not (after.exit_status == 0 and before.exit_status != 0)
