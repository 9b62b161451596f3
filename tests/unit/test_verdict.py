"""The verdict: each reason by its own case, the order of the exit statuses, and what only warns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadsim.analysis.aggregate import TaskRecords
from loadsim.analysis.companions import Companions
from loadsim.analysis.criteria import Result
from loadsim.analysis.delivery import Delivery
from loadsim.analysis.generator.failures import OwnFailure
from loadsim.analysis.generator.limits import Generator
from loadsim.analysis.load import Load, TaskLoad
from loadsim.analysis.score import ProtocolStatistics, TaskFigures, Times, weighted_score
from loadsim.analysis.verdict import KEEPS_UP_WITH_LESS, MORE_HITS, Facts, Totals, judge
from loadsim.model.records import OUTCOMES
from loadsim.model.terms import Window

OWN_SHORTAGE = OwnFailure("the generator itself failed in 1 task: no memory (ENOMEM)", shortage=True)
OWN_BUG = OwnFailure("the generator itself failed in 1 task: internal error: KeyError", shortage=False)

LIMITS = {"lost_users": 0.02, "done": 0.98, "hits": 20, "window_s": 60, "generator_lateness_p95_ms": 50}
MET = Result("failed_share", {"max": 0.01}, 0.01)
MISSED = Result("delivery.undelivered_at_end", {"max": 0}, 1)


def task(name: str = "READ", p95_ms: float | None = 100, weight: float = 10, **counts: int) -> TaskFigures:
    """One task's figures; 1000 hits unless told."""
    filled, none = dict.fromkeys(OUTCOMES, 0) | ({"ok": 1000} | counts), np.zeros(0)
    found = TaskFigures.of(name, weight, TaskRecords(filled, {}, none, none.astype(np.uint16), none), Window(0, 300))
    return replace(found, service=Times(p95_ms=p95_ms))


def protocol(*tasks: TaskFigures, name: str = "imap") -> ProtocolStatistics:
    """A client module's statistics."""
    return ProtocolStatistics(name, 100, tasks, weighted_score(tasks))


FINE = Facts(
    protocols=(protocol(task()),),
    delivery=Delivery(500, 500, 500, 0, 0, 0, 0, None, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, Times(p50_ms=10, p95_ms=20)),
    window_s=Window(60, 360),
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


def with_load(planned: int, made: int) -> Callable[[Facts], Facts]:
    """The facts when so much of the plan's load was made."""
    return lambda facts: replace(facts, load=Load.of({"READ": TaskLoad(planned, made)}))


def test_a_share_of_lost_users_that_is_the_limit_is_within_it() -> None:
    """As 29 of 100 are 29 %, also where floating-point numbers multiplied would say that they are more."""
    for percent in range(1, 100):
        limits = LIMITS | {"lost_users": percent / 100}
        assert judge(replace(FINE, lost_users=percent), (MET,), limits).validity == "degraded", percent
        assert judge(replace(FINE, lost_users=percent + 1), (MET,), limits).validity == "invalid", percent


def test_log_offs_that_did_not_end_are_told() -> None:
    """As those that failed: nobody has looked at what these users stored."""
    log_off = task("LOGOFF", weight=0, ok=5, lost=1, unfinished=2)
    (warning,) = judge(replace(FINE, protocols=(protocol(task(), log_off),)), (MET,), LIMITS).warnings
    assert warning.startswith("3 of 8 log-offs failed or did not end,")


def test_a_fine_run_is_valid_and_passes() -> None:
    """No reason, exit status 0."""
    verdict = judge(FINE, (MET,), LIMITS)
    assert (verdict.validity, verdict.passed, verdict.reasons, verdict.warnings) == ("valid", True, (), ())
    assert verdict.exit_status == 0


@pytest.mark.parametrize("what", [{}, {"embedded": True}, {"stress": True}])
def test_a_failed_generator_makes_any_run_invalid(what: dict[str, Any]) -> None:
    """On the embedded server and in a closed loop, too: limits may warn there, this does not."""
    verdict = judge(replace(FINE, own_faults=(OWN_BUG,), **what), (MET,), LIMITS)
    assert (verdict.validity, verdict.exit_status) == ("invalid", 3)
    assert OWN_BUG.reason in verdict.reasons


CASES: list[tuple[Callable[[Facts], Facts], str, bool, int, tuple[str, ...]]] = [
    # Validity: each limit, just beyond it
    (
        with_facts(generator=Generator(lateness_p95_ms=50.1)),
        "invalid", True, 3,
        ("the generator was late: 95th percentile 50.1 ms, at most 50 ms allowed",),
    ),
    (with_facts(lost_users=3), "invalid", True, 3, ("the generator lost 3 of 100 users, at most 2 % allowed",)),
    (
        with_task(ok=969, skipped=21, unfinished=10),
        "invalid", True, 3,
        ("979 of 1,000 tasks that were due were begun (97.9 %), at least 98 % needed",),
    ),
    (
        with_load(planned=1300, made=1234),
        "invalid", True, 3,
        ("1,234 of 1,300 tasks that the plan expects were asked of the server (94.92 %), at least 95 % needed",),
    ),
    (with_facts(window_s=Window(60, 119.5)), "invalid", True, 3, ("the window is 59.5 s long, at least 60 s needed",)),
    (with_task(ok=19), "invalid", True, 3, ("READ has too few hits: 19, at least 20 needed",)),
    (with_facts(ended_early=True), "invalid", True, 3, ("the run was ended early",)),
    (
        with_facts(ended_early=True, aborted_why="1204 sessions lost over 30 s, at most 1000"),
        "invalid", True, 3,
        ("ended early: 1204 sessions lost over 30 s, at most 1000",),
    ),
    # ... and just within
    (with_facts(generator=Generator(lateness_p95_ms=50)), "valid", True, 0, ()),
    (with_facts(generator=Generator()), "valid", True, 0, ()),
    (with_facts(window_s=Window(60, 120)), "valid", True, 0, ()),
    (with_task(ok=20), "valid", True, 0, ()),
    (with_task(ok=995, skipped=5), "valid", True, 0, ()),
    # What the server failed to do was asked of it: whether that is good enough, criteria say
    (with_task(ok=20, refused=400, lost=300, timeout=200, unfinished=80), "valid", True, 0, ()),
    (with_facts(users_without_session=50, sessions_lost=500, down_share=0.5), "valid", True, 0, ()),
    # Degraded: some load was missing, within the limits
    (with_facts(lost_users=2), "degraded", True, 0, ("the generator lost 2 of 100 users",)),
    (
        with_task(ok=994, skipped=6),
        "degraded", True, 0,
        ("994 of 1,000 tasks that were due were begun (99.4 %), at least 99.5 % wanted",),
    ),
    (
        with_task(ok=900, refused=80, skipped=20),
        "degraded", True, 0,
        ("980 of 1,000 tasks that were due were begun (98 %), at least 99.5 % wanted",),
    ),
    (
        with_load(planned=1000, made=979),
        "degraded", True, 0,
        ("979 of 1,000 tasks that the plan expects were asked of the server (97.9 %), at least 98 % wanted",),
    ),
    (with_load(planned=1000, made=980), "valid", True, 0, ()),
    (with_load(planned=1000, made=1500), "valid", True, 0, ()),
    (with_load(planned=0, made=0), "valid", True, 0, ()),
    (with_facts(incomplete=("a.tlog: cut",)), "degraded", True, 0, ("a.tlog: cut",)),
    (
        with_facts(incomplete=("a.tlog: cut",), lost_users=3),
        "invalid", True, 3,
        ("the generator lost 3 of 100 users, at most 2 % allowed", "a.tlog: cut"),
    ),
    # No score
    (
        with_facts(protocols=(protocol(task(p95_ms=None, ok=0)),)),
        "invalid", True, 3,
        ("no scored task has a hit: there is no score",),
    ),
    (
        with_facts(protocols=()),
        "invalid", True, 3,
        ("the logs hold no task: there is no score",),
    ),
    # A task that is not scored needs no hits; LOGON and LOGOFF are outside the window
    (
        with_facts(protocols=(protocol(task(), task("SYNC", 5, weight=0, ok=1), task("LOGON", 5, 0, refused=500)),)),
        "valid", True, 0,
        (),
    ),
    # Client modules are judged each for itself
    (
        with_facts(protocols=(protocol(task()), protocol(task(ok=3), name="aioimaplib"))),
        "invalid", True, 3,
        ("aioimaplib: READ has too few hits: 3, at least 20 needed",),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (with_facts(), ()),
        (with_task(ok=994, skipped=6), ()),
        (with_facts(generator=Generator(lateness_p95_ms=50.1)), ("generator",)),
        (with_facts(own_faults=(OWN_SHORTAGE,)), ("generator",)),
        (with_facts(own_faults=(OWN_BUG,)), ("fault",)),
        (with_facts(lost_users=3), ("fault",)),
        (with_facts(delivery=replace(FINE.delivery, earliest_ms=5001.0, clock_error_ms=None)), ("fault",)),
        (with_facts(delivery=replace(FINE.delivery, earliest_ms=4999.0, clock_error_ms=None)), ()),
        (with_facts(delivery=replace(FINE.delivery, earliest_ms=9999.0, clock_error_ms=0.0)), ()),
        (with_facts(unended=True), ("fault",)),
        (with_task(ok=969, skipped=21, unfinished=10), ("load",)),
        (with_load(planned=1300, made=1234), ("load",)),
        (with_task(ok=3, refused=16), ("terms",)),
        (with_task(ok=3, refused=17), ("load",)),
        (with_facts(protocols=(protocol(task(p95_ms=None, ok=0, refused=50)),)), ("load",)),
        (with_facts(window_s=Window(60, 119.5)), ("terms",)),
        (with_facts(ended_early=True), ("ended",)),
        (with_facts(ended_early=True, aborted_why="1204 sessions lost over 30 s, at most 1000"), ("aborted",)),
        (with_facts(ended_early=True, ended_why="client c2 was lost"), ("fault",)),
        (with_facts(ended_early=True, aborted_why="1204 sessions lost", ended_why="not ready"), ("fault", "aborted")),
        (with_facts(lost_users=3, window_s=Window(60, 61), ended_early=True), ("fault", "terms", "ended")),
    ],
)
def test_each_reason_for_an_invalid_run_has_its_cause(
    change: Callable[[Facts], Facts], causes: tuple[str, ...]
) -> None:
    """Scripts, and the search for the capacity, tell a slow server from a slow generator by it."""
    assert judge(change(FINE), (MET,), LIMITS).causes == causes


def starved(replies: int, made: int, **fields: Any) -> Facts:
    """The facts of a server so slow that 14 of the plan's answers were due, of `made` of 1,000 tasks in all."""
    answers = task("REPLY ALL", weight=1, ok=10, refused=4)
    load = Load.of({"READ": TaskLoad(1000 - replies, made - 14), "REPLY ALL": TaskLoad(replies, 14)})
    return replace(FINE, **({"protocols": (protocol(task(), answers),), "load": load} | fields))


@pytest.mark.parametrize(
    ("facts", "causes"),
    [
        (starved(86, 380), ("load",)),
        (starved(20, 380), ("load",)),
        # The run is too small by its plan
        (starved(19, 380), ("load", "terms")),
        (starved(19, 1000), ("terms",)),
        # The load was made: that one task is rare is chance
        (starved(86, 960), ("terms",)),
        (starved(20, 1000), ("terms",)),
        # Tasks may be missing from the logs, or for a fault of the generator
        (starved(86, 380, incomplete=("a.tlog: cut",)), ("fault", "terms")),
        (starved(86, 380, lost_users=1), ("load", "terms")),
        (starved(86, 380, lost_users=3), ("fault", "load", "terms")),
        (starved(86, 380, generator=Generator(lateness_p95_ms=50.1)), ("generator", "load")),
        (starved(86, 380, window_s=Window(60, 119.5)), ("load", "terms")),
        (starved(86, 380, ended_early=True), ("load", "ended")),
        # The plan does not tell the tasks of two drivers apart, and has no SYNC; old logs have no plan
        (
            starved(86, 380, protocols=(protocol(task()), protocol(task("REPLY ALL", ok=14), name="aioimaplib"))),
            ("load", "terms"),
        ),
        (starved(86, 380, protocols=(protocol(task(), task("SYNC", ok=14)),)), ("load", "terms")),
        (starved(86, 380, load=None), ("terms",)),
    ],
)
def test_a_slow_server_is_no_short_plan(facts: Facts, causes: tuple[str, ...]) -> None:
    """Its users answer less mail. More days would not help them, and a repeated run could be better by chance only."""
    verdict = judge(facts, (MET,), LIMITS)
    assert (verdict.validity, verdict.causes) == ("invalid", causes)
    short = "terms" in causes and facts.window_s == FINE.window_s
    assert (MORE_HITS in verdict.advice) == short


def test_an_abort_of_a_run_too_small_by_its_plan_keeps_the_cause() -> None:
    """Too few tasks in the plan do not follow from the end."""
    small = starved(19, 380, ended_early=True, aborted_why="1204 sessions lost")
    assert judge(small, (MET,), LIMITS).causes == ("load", "terms", "aborted")
    assert judge(starved(86, 380, ended_early=True, aborted_why="x"), (MET,), LIMITS).causes == ("load", "aborted")


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({}, ("aborted",)),
        ({"protocols": ()}, ("aborted",)),
        # What does not follow from the end stays
        ({"protocols": (), "incomplete": ("a.tlog: cut",)}, ("fault", "aborted")),
        ({"incomplete": ("a.tlog: cut",)}, ("terms", "aborted")),
        ({"lost_users": 3}, ("fault", "aborted")),
        ({"unended": True, "ended_early": False}, ("fault", "terms")),
        ({"own_faults": (OWN_SHORTAGE,)}, ("generator", "aborted")),
        ({"generator": Generator(lateness_p95_ms=50.1)}, ("generator", "aborted")),
        ({"window_s": Window(60, 119.5)}, ("terms", "aborted")),
        # Other ends explain nothing about the server
        ({"aborted_why": None, "ended_why": "client c2 was lost"}, ("fault", "terms")),
        ({"aborted_why": None}, ("terms", "ended")),
    ],
)
def test_tasks_that_an_abort_left_out_are_no_fault_of_the_run(fields: dict[str, Any], causes: tuple[str, ...]) -> None:
    """The log has 3 of 20 hits that are needed, and no others that were due."""
    cut_short = replace(with_task(ok=3, refused=2)(FINE), ended_early=True, aborted_why="1204 sessions lost")
    verdict = judge(replace(cut_short, **fields), (MET,), LIMITS)
    assert (verdict.validity, verdict.causes) == ("invalid", causes)
    assert (MORE_HITS in verdict.advice) == ("terms" in causes and "window_s" not in fields)


@pytest.mark.parametrize(
    ("counts", "helps"), [({"ok": 19}, True), ({"ok": 3, "refused": 16}, True), ({"ok": 3, "refused": 17}, False)]
)
def test_more_hits_are_advised_where_too_few_tasks_were_planned(counts: dict[str, int], helps: bool) -> None:
    """Where they failed instead, a longer window does not help."""
    verdict = judge(with_task(**counts)(FINE), (MET,), LIMITS)
    assert verdict.validity == "invalid"
    assert verdict.advice == ((MORE_HITS,) if helps else ())


def test_a_server_that_does_not_keep_up_needs_less_load() -> None:
    """Unless the generator was late, or the load is missing for another reason."""
    little = with_load(planned=1000, made=748)(FINE)
    assert judge(little, (MET,), LIMITS).advice == (KEEPS_UP_WITH_LESS,)
    assert judge(with_load(planned=1000, made=985)(FINE), (MET,), LIMITS).advice == ()
    for other in ({"ended_early": True}, {"lost_users": 1}, {"own_faults": (OWN_SHORTAGE,)}):
        assert judge(replace(little, **other), (MET,), LIMITS).advice == ()
    (advice,) = judge(replace(little, generator=Generator(lateness_p95_ms=60)), (MET,), LIMITS).advice
    assert "another machine for the generator" in advice


@pytest.mark.parametrize(("change", "validity", "passed", "exit_status", "reasons"), CASES)
def test_each_reason_by_its_own_case(
    change: Callable[[Facts], Facts], validity: str, passed: bool, exit_status: int, reasons: tuple[str, ...]
) -> None:
    """Validity, criteria, exit status and every reason with its figure."""
    verdict = judge(change(FINE), (MET,), LIMITS)
    assert (verdict.validity, verdict.passed, verdict.exit_status, verdict.reasons) == (
        validity,
        passed,
        exit_status,
        reasons,
    )


def test_generator_limits_only_warn_on_the_embedded_server() -> None:
    """It shares the machine; the figure is told all the same."""
    verdict = judge(replace(FINE, embedded=True, generator=Generator(lateness_p95_ms=5000)), (MET,), LIMITS)
    assert (verdict.validity, verdict.exit_status, verdict.reasons) == ("valid", 0, ())
    assert verdict.warnings == ("the generator was late: 95th percentile 5000.0 ms, at most 50 ms allowed",)
    assert verdict.advice == ()


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (
            with_facts(sessions_lost=7, down_share=0.0123),
            "7 sessions were lost; users were without one 1.23 % of the window",
        ),
        (with_facts(sessions_lost=1, down_share=0.0), "1 session was lost; users were without one 0 % of the window"),
        (with_facts(sessions_lost=7), "7 sessions were lost"),
        (
            with_facts(protocols=(protocol(task(), task("LOGON", 5, 0, ok=9, refused=2, timeout=1, unfinished=1)),)),
            "3 of 13 log-ons failed",
        ),
        (with_facts(users_without_session=3), "3 of 100 users had no session at the end"),
        (
            with_facts(unannounced=1234),
            "messages that the server did not announce, found when users opened the Inbox again: 1,234",
        ),
        (
            with_facts(delivery=replace(FINE.delivery, left_out=30)),
            "copies not expected, since the server's lists leave out the sender: 30",
        ),
    ],
)
def test_what_servers_do_differently_is_warned_of(change: Callable[[Facts], Facts], warning: str) -> None:
    """Neither makes a run invalid, for both are the server's doing; criteria ask for the shares."""
    verdict = judge(change(FINE), (MET,), LIMITS)
    assert (verdict.validity, verdict.passed, verdict.reasons, verdict.warnings) == ("valid", True, (), (warning,))


def with_companions(down_share: float | None, **changes: int) -> Callable[[Facts], Facts]:
    """The facts when 100 companions were not served for a share of the run."""
    counts = dict.fromkeys(("log_ons_failed", "sessions_lost", "failures", "looks", "listed"), 0) | changes
    return with_facts(companions=Companions(count=100, log_ons=120, **counts, down_share=down_share))


@pytest.mark.parametrize(
    ("change", "limits", "validity", "reasons", "warnings"),
    [
        (with_companions(0.02), {}, "valid", (), ()),
        (with_companions(None), {}, "valid", (), ()),
        (
            with_companions(0.03, log_ons_failed=20),
            {},
            "degraded",
            ("companions, the users' further mail programs, were not served for 3 % of the run, at most 2 % wanted",),
            ("20 of 120 log-ons of companions failed",),
        ),
        (
            with_companions(0.06),
            {"load": 0.95},
            "invalid",
            ("companions, the users' further mail programs, were not served for 6 % of the run, at most 5 % allowed",),
            (),
        ),
        (
            lambda facts: replace(with_companions(0.01, sessions_lost=3)(facts), sessions_lost=7, down_share=0.5),
            {},
            "valid",
            (),
            ("7 sessions were lost, 3 of them of companions; users were without one 50 % of the window",),
        ),
    ],
)
def test_companions_without_a_session_are_load_that_was_not_made(
    change: Callable[[Facts], Facts],
    limits: dict[str, Any],
    validity: str,
    reasons: tuple[str, ...],
    warnings: tuple[str, ...],
) -> None:
    """A server that lets no second mail program in would look better than it is; the limits are those of the load."""
    verdict = judge(change(FINE), (MET,), LIMITS | limits)
    assert (verdict.validity, verdict.passed, verdict.reasons) == (validity, True, reasons)
    assert verdict.warnings == warnings


def test_log_ons_of_all_client_modules_are_added_up() -> None:
    """1 of 10 and 2 of 20 failed: 3 of 30."""
    modules = [protocol(task("LOGON", 5, 0, ok=9 * size, lost=size), name=str(size)) for size in (1, 2)]
    log_ons = replace(FINE, protocols=tuple(modules)).log_ons
    assert (log_ons.planned, log_ons.failed, log_ons.failed_share) == (30, 3, 0.1)
    assert FINE.log_ons.failed_share is None


def test_shares_of_what_was_planned() -> None:
    """100 tasks: 60 hits, 10 + 5 + 3 failed, 12 unfinished, 10 never begun; LOGON is outside the window."""
    counts = {"ok": 60, "refused": 10, "lost": 5, "timeout": 3, "unfinished": 12, "skipped": 10}
    one = task(**counts)
    totals = Totals.of([protocol(one, task("LOGON", 5, 0, refused=500)), protocol(task("SEND", ok=100))])
    assert (one.failed, one.attempted, one.attempted_share) == (18, 90, 0.9)
    assert (one.done_share, one.failed_share) == (0.6, 0.18)
    assert (totals.planned, totals.attempted, totals.failed) == (200, 190, 18)
    assert (totals.attempted_share, totals.done_share, totals.failed_share) == (0.95, 0.8, 0.09)
    nothing = Totals.of([protocol(task(ok=0))])
    assert (nothing.attempted_share, nothing.done_share, nothing.failed_share) == (None, None, None)


def test_an_unsteady_window_only_warns() -> None:
    """Neither validity nor criteria nor the exit status know of it."""
    verdict = judge(replace(FINE, unsteady=("times are rising",)), (MET,), LIMITS)
    assert (verdict.validity, verdict.passed, verdict.exit_status, verdict.reasons) == ("valid", True, 0, ())
    assert verdict.warnings == ("times are rising",)


@pytest.mark.parametrize(
    ("criteria", "ended_early", "exit_status", "reasons"),
    [
        ((), False, 0, ()),
        ((MET, MISSED), False, 1, ("delivery.undelivered_at_end 1, at most 0 wanted",)),
        ((MET,), True, 3, ("the run was ended early",)),
        ((MISSED, MET), True, 3, ("the run was ended early", "delivery.undelivered_at_end 1, at most 0 wanted")),
    ],
)
def test_one_missed_criterion_is_enough_and_invalid_goes_before_it(
    criteria: tuple[Result, ...], ended_early: bool, exit_status: int, reasons: tuple[str, ...]
) -> None:
    """3 invalid, 1 missed, 0 met; every reason is told, those of validity first."""
    verdict = judge(replace(FINE, ended_early=ended_early), criteria, LIMITS)
    assert (verdict.exit_status, verdict.reasons) == (exit_status, reasons)
    assert verdict.passed == (MISSED not in criteria)


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({}, ()),
        ({"generator_cpu": 0.5}, ()),
        ({"generator_lag_p99_ms": None, "generator_cpu": 0.9}, ("lag_p99_ms off, cpu 0.9",)),
    ],
)
def test_a_generator_that_is_hardly_judged_is_said(limits: dict[str, Any], named: tuple[str, ...]) -> None:
    """Limits of its own make a run valid that by the defaults is not; a stricter one does no harm."""
    verdict = judge(FINE, (MET,), LIMITS | limits)
    assert tuple(warning.rpartition(": ")[2] for warning in verdict.warnings) == named
    assert judge(replace(FINE, embedded=True), (MET,), LIMITS | limits).warnings == ()
