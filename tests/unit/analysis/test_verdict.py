"""The verdict: each finding by its own case, the order of the exit statuses, and what only warns."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
from judged_runs import sample_figures

from loadsim.analysis.aggregate import TaskRecords
from loadsim.analysis.criteria import Result
from loadsim.analysis.load import load_of
from loadsim.analysis.score import task_figures, weighted_average
from loadsim.analysis.verdict import Facts, judge, relaxed_limits
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.findings.severity import Severity
from loadsim.findings.verdict import Verdict
from loadsim.model.figures import (
    Companions,
    Coverage,
    Delivery,
    DriverFigures,
    FailureCount,
    Figures,
    Lateness,
    NoInterval,
    Outside,
    Sessions,
    TaskFigures,
    TaskLoad,
    Throughput,
    Times,
    Totals,
)
from loadsim.model.records import OUTCOMES
from loadsim.model.terms import LOGON, RETURN_RECEIPT, Window
from loadsim.scenario.limits import Limits

OWN_SHORTAGE = finding(Code.SHORTAGE, times=1, kinds=("no memory (ENOMEM)",))
OWN_BUG = finding(Code.GENERATOR_FAILED, times=1, kinds=("internal error: KeyError",))
CUT = finding(Code.LOG_DAMAGED, damage="a.tlog: cut")

LIMITS = Limits(window_s=60)
MET = Result("failed_share", {"max": 0.01}, 0.01)
CLOSED_LOOP = Throughput(1.0, 1.0, 1.0, {}, {}, 0)
MISSED = Result("delivery.undelivered_at_end", {"max": 0}, 1)


def task(name: str = "READ", p95_ms: float | None = 100, weight: float = 10, **counts: int) -> TaskFigures:
    filled, none = dict.fromkeys(OUTCOMES, 0) | ({"ok": 1000} | counts), np.zeros(0, np.int64)
    found = task_figures(
        name, weight, TaskRecords(filled, {}, none, none, none, 0.0, 0.0), Window(0, 300), NoInterval.SHORT_WINDOW
    )
    return replace(found, service=Times(p95_ms=p95_ms))


def driver(*tasks: TaskFigures, name: str = "imap") -> dict[str, DriverFigures]:
    figures = DriverFigures(
        score_ms=weighted_average((task.weight, task.service.p95_ms) for task in tasks),
        response_score_ms=None,
        score_interval_ms=None,
        provisional=False,
        inbox=None,
        users=100,
        covers=Coverage((), (), (), ()),
        tasks=tasks,
    )
    return {name: figures}


class Run(NamedTuple):
    """The figures and the facts of a run."""

    figures: Figures
    facts: Facts = Facts()

    def having(self, **changes: Any) -> Self:
        """Return the run with other figures or facts, by their names, or with these `drivers`."""
        if "drivers" in changes:
            drivers = changes.pop("drivers")
            changes |= {"by_protocol": drivers, "totals": Totals.of(drivers)}
        if "late_p95_ms" in changes:
            changes["lateness_p95_ms"] = Lateness(0.0, 0.0, changes.pop("late_p95_ms"))
        of_facts = {one.name: changes.pop(one.name) for one in fields(Facts) if one.name in changes}
        of_sessions = {one.name: changes.pop(one.name) for one in fields(Sessions) if one.name in changes}
        figures = replace(self.figures, sessions=replace(self.figures.sessions, **of_sessions), **changes)
        return type(self)(figures, replace(self.facts, **of_facts))

    def judged(self, *criteria: Result, limits: Limits = LIMITS) -> Verdict:
        return judge(self.figures, self.facts, criteria, limits)


Change = Callable[[Run], Run]

MAIL = Delivery(500, 500, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, 0, Times(p50_ms=10, p95_ms=20))
FINE = Run(replace(sample_figures(), embedded=False, machines=())).having(
    drivers=driver(task()), delivery=MAIL, window_s=Window(60, 360), users=100, down_share=None, late_p95_ms=5
)


def with_task(**counts: int) -> Change:
    return lambda run: run.having(drivers=driver(task(**counts)))


def with_facts(**changes: Any) -> Change:
    return lambda run: run.having(**changes)


def with_load(planned: int, made: int) -> Change:
    return lambda run: run.having(load=load_of({"READ": TaskLoad(planned, made)}))


def test_lost_users_at_the_limit_are_within_it() -> None:
    """As 29 of 100 are 29 %, also where floating-point numbers multiplied would say that they are more."""
    for percent in range(1, 100):
        limits = replace(LIMITS, lost_users=percent / 100)
        assert FINE.having(lost_users=percent).judged(MET, limits=limits).validity == "degraded", percent
        assert FINE.having(lost_users=percent + 1).judged(MET, limits=limits).validity == "invalid", percent


def test_a_healthy_run_is_valid_and_passes() -> None:
    verdict = FINE.judged(MET)
    assert (verdict.validity, verdict.passed, verdict.exit_status) == ("valid", True, 0)
    assert verdict.findings == (finding(Code.ONE_RUN),)


@pytest.mark.parametrize("what", [{}, {"embedded": True}, {"throughput": CLOSED_LOOP}])
def test_a_failed_generator_makes_any_run_invalid(what: dict[str, Any]) -> None:
    """On the embedded server and in a closed loop, too: limits may warn there, this does not."""
    verdict = FINE.having(own_faults=(OWN_BUG,), **what).judged(MET)
    assert (verdict.validity, verdict.exit_status) == ("invalid", 3)
    assert OWN_BUG in verdict.defects


def degraded(code: Code, **values: Value) -> Finding:
    return finding(code, "", Severity.DEGRADED, **values)


CASES: list[tuple[Change, str, tuple[Finding, ...]]] = [
    # Validity: each limit, just beyond it
    (with_facts(late_p95_ms=50.1), "invalid", (finding(Code.GENERATOR_LATE, late_p95_ms=50.1, limit_ms=50),)),
    (with_facts(lost_users=3), "invalid", (finding(Code.USERS_LOST, lost=3, users=100, limit_share=0.01),)),
    (
        with_task(ok=969, skipped=21, unfinished=10),
        "invalid",
        (finding(Code.TASKS_NOT_STARTED, started=979, due=1000, started_share=0.979, limit_share=0.98),),
    ),
    (
        with_load(planned=1300, made=1234),
        "invalid",
        (finding(Code.LOAD_MISSING, made=1234, planned=1300, made_share=1234 / 1300, limit_share=0.95),),
    ),
    (with_facts(window_s=Window(60, 119.5)), "invalid", (finding(Code.SHORT_WINDOW, window_s=59.5, limit_s=60),)),
    (with_task(ok=19), "invalid", (finding(Code.FEW_HITS, "READ", hits=19, limit=20),)),
    (with_facts(ended_early=True), "invalid", (finding(Code.STOPPED),)),
    (
        with_facts(ended_early=True, aborted_why="1204 sessions lost over 30 s, at most 1000"),
        "invalid",
        (finding(Code.ABORTED, why="1204 sessions lost over 30 s, at most 1000"),),
    ),
    (with_facts(ended_why="not collected"), "invalid", (finding(Code.FAULT_AT_END, why="not collected"),)),
    # ... and just within
    (with_facts(late_p95_ms=50), "valid", ()),
    (with_facts(late_p95_ms=None), "valid", ()),
    (with_facts(window_s=Window(60, 120)), "valid", ()),
    (with_task(ok=20), "valid", ()),
    (with_task(ok=995, skipped=5), "valid", ()),
    # What the server failed to do was asked of it: whether that is good enough, criteria say
    (with_task(ok=20, refused=400, lost=300, timeout=200, unfinished=80), "valid", ()),
    (with_facts(users_without_session=50, sessions_lost=500, down_share=0.5), "valid", ()),
    # Degraded: some load was missing, within the limits
    (with_facts(lost_users=1), "degraded", (degraded(Code.USERS_LOST, lost=1, users=100, limit_share=0.01),)),
    (
        with_task(ok=900, refused=94, skipped=6),
        "degraded",
        (degraded(Code.TASKS_NOT_STARTED, started=994, due=1000, started_share=0.994, limit_share=0.995),),
    ),
    (
        with_load(planned=1000, made=979),
        "degraded",
        (degraded(Code.LOAD_MISSING, made=979, planned=1000, made_share=0.979, limit_share=0.98),),
    ),
    (with_load(planned=1000, made=980), "valid", ()),
    (with_load(planned=1000, made=1500), "valid", ()),
    (with_load(planned=0, made=0), "valid", ()),
    (with_facts(load_unknown=True), "degraded", (finding(Code.LOAD_UNKNOWN),)),
    (
        with_facts(flags_not_kept=["\\Answered", "\\Seen"]),
        "degraded",
        (finding(Code.FLAGS_NOT_KEPT, flags="\\Answered, \\Seen"),),
    ),
    (with_facts(incomplete=(CUT,)), "degraded", (CUT,)),
    (
        with_facts(incomplete=(CUT,), lost_users=3),
        "invalid",
        (finding(Code.USERS_LOST, lost=3, users=100, limit_share=0.01), CUT),
    ),
    # What damaged logs lack may have been done
    (
        lambda run: with_load(planned=100, made=90)(run).having(incomplete=(CUT,)),
        "invalid",
        (finding(Code.NOT_RECORDED, recorded_share=0.9, limit_share=0.95), CUT),
    ),
    # No score
    (with_facts(drivers=driver(task(p95_ms=None, ok=0))), "invalid", (finding(Code.NOTHING_DUE),)),
    (
        with_facts(drivers=driver(task()) | driver(task(p95_ms=None, ok=0), name="aioimaplib")),
        "invalid",
        (finding(Code.NOTHING_DUE, "aioimaplib"),),
    ),
    (with_facts(drivers={}), "invalid", (finding(Code.NO_TASKS),)),
    # A task that is not scored needs no hits; LOGON and LOGOFF are outside the window
    (
        with_facts(drivers=driver(task(), task("SYNC", 5, weight=0, ok=1), task("LOGON", 5, 0, refused=500))),
        "valid",
        (),
    ),
    # Each driver is judged by itself
    (
        with_facts(drivers=driver(task()) | driver(task(ok=3), name="aioimaplib")),
        "invalid",
        (finding(Code.FEW_HITS, "aioimaplib: READ", hits=3, limit=20),),
    ),
]


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (with_facts(), ()),
        (with_task(ok=994, skipped=6), ()),
        (with_facts(late_p95_ms=50.1), ("generator",)),
        (with_facts(own_faults=(OWN_SHORTAGE,)), ("generator",)),
        (with_facts(own_faults=(OWN_BUG,)), ("fault",)),
        (with_facts(lost_users=3), ("fault",)),
        (with_facts(delivery=replace(MAIL, earliest_ms=5001.0, clock_error_ms=None)), ("fault",)),
        (with_facts(delivery=replace(MAIL, earliest_ms=4999.0, clock_error_ms=None)), ()),
        (with_facts(delivery=replace(MAIL, earliest_ms=9999.0, clock_error_ms=0.0)), ()),
        (with_facts(unended=True), ("fault",)),
        (with_task(ok=969, skipped=21, unfinished=10), ("load",)),
        (with_load(planned=1300, made=1234), ("load",)),
        (with_task(ok=3, refused=16), ("terms",)),
        (with_task(ok=3, refused=17), ("load",)),
        (with_facts(drivers=driver(task(p95_ms=None, ok=0, refused=50))), ("load",)),
        (with_facts(window_s=Window(60, 119.5)), ("terms",)),
        (with_facts(ended_early=True), ("ended",)),
        (with_facts(ended_early=True, aborted_why="1204 sessions lost over 30 s, at most 1000"), ("aborted",)),
        (with_facts(ended_early=True, ended_why="client c2 was lost"), ("fault",)),
        (with_facts(ended_early=True, aborted_why="1204 sessions lost", ended_why="not ready"), ("fault", "aborted")),
        (with_facts(lost_users=3, window_s=Window(60, 61), ended_early=True), ("fault", "terms", "ended")),
    ],
)
def test_each_reason_for_an_invalid_run_has_its_cause(change: Change, causes: tuple[str, ...]) -> None:
    """Scripts, and the search for the capacity, tell a slow server from a slow generator by it."""
    assert change(FINE).judged(MET).causes == causes


@pytest.mark.parametrize(
    ("kind", "times", "warned"),
    [
        ("NO UID FETCH", 11, True),
        ("NO UID FETCH", 10, False),
        ("NO [LIMIT] UID FETCH", 20, False),
        ("450 RCPT", 20, False),
        ("other 4yz RCPT", 20, False),
        ("503 AUTH", 20, True),
        ("503 Email/get", 20, False),
        ("429 Email/get", 20, False),
        ("403 Email/get", 20, True),
        ("441 POST", 20, True),
    ],
)
def test_a_mostly_refused_task_is_named(kind: str, times: int, warned: bool) -> None:
    failures = [FailureCount("refused", kind, times), FailureCount("lost", "NO UID FETCH", 9)]
    read = replace(task(ok=0, refused=20), failures=failures)
    found = FINE.having(drivers=driver(read)).judged()
    expected = [finding(Code.TASK_REFUSED, "READ", refused=times, due=20, answer=kind)] if warned else []
    assert [one for one in found.findings if one.code is Code.TASK_REFUSED] == expected


@pytest.mark.parametrize(("of_mail", "code"), [("554 RCPT", Code.TASK_REFUSED), ("552 DATA", Code.NULL_PATH_REFUSED)])
def test_read_receipts_refused_as_other_mail_is_do_not_blame_their_return_path(of_mail: str, code: Code) -> None:
    tasks = [
        replace(task(name, ok=0, refused=20), failures=[FailureCount("refused", kind, 20)])
        for name, kind in [("SEND", of_mail), (RETURN_RECEIPT, "554 RCPT")]
    ]
    found = [one for one in FINE.having(drivers=driver(*tasks)).judged().findings if "answer" in one.values]
    assert [one.code for one in found] == [Code.TASK_REFUSED, code]


def starved(replies: int, made: int, **changes: Any) -> Run:
    """The run of a server so slow that 14 of the plan's answers were due, of `made` of 1,000 tasks in all."""
    answers = task("REPLY ALL", weight=1, ok=10, refused=4)
    load = load_of({"READ": TaskLoad(1000 - replies, made - 14), "REPLY ALL": TaskLoad(replies, 14)})
    return FINE.having(**({"drivers": driver(task(), answers), "load": load} | changes))


@pytest.mark.parametrize(
    ("run", "causes"),
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
        (starved(86, 380, incomplete=(CUT,)), ("fault", "terms")),
        (starved(86, 380, lost_users=1), ("load", "terms")),
        (starved(86, 380, lost_users=3), ("fault", "load", "terms")),
        (starved(86, 380, late_p95_ms=50.1), ("generator", "load")),
        (starved(86, 380, window_s=Window(60, 119.5)), ("load", "terms")),
        (starved(86, 380, ended_early=True), ("load", "ended")),
        # The plan does not tell the tasks of two drivers apart, and has no SYNC; old logs have no plan
        (
            starved(86, 380, drivers=driver(task()) | driver(task("REPLY ALL", ok=14), name="aioimaplib")),
            ("load", "terms"),
        ),
        (starved(86, 380, drivers=driver(task(), task("SYNC", ok=14))), ("load", "terms")),
        (starved(86, 380, load=None), ("terms",)),
    ],
)
def test_a_slow_servers_missing_tasks_are_not_the_plans(run: Run, causes: tuple[str, ...]) -> None:
    """Its users answer less mail. More days would not help them, and a repeated run could be better by chance only."""
    verdict = run.judged(MET)
    assert (verdict.validity, verdict.causes) == ("invalid", causes)


def test_an_aborted_run_with_too_small_a_plan_keeps_its_cause() -> None:
    """Too few tasks in the plan do not follow from the end."""
    small = starved(19, 380, ended_early=True, aborted_why="1204 sessions lost")
    assert small.judged(MET).causes == ("load", "terms", "aborted")
    assert starved(86, 380, ended_early=True, aborted_why="x").judged(MET).causes == ("load", "aborted")


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, ("aborted",)),
        ({"drivers": {}}, ("aborted",)),
        # What does not follow from the end stays
        ({"drivers": {}, "incomplete": (CUT,)}, ("fault", "aborted")),
        ({"incomplete": (CUT,)}, ("terms", "aborted")),
        ({"lost_users": 3}, ("fault", "aborted")),
        ({"unended": True, "ended_early": False}, ("fault", "terms")),
        ({"own_faults": (OWN_SHORTAGE,)}, ("generator", "aborted")),
        ({"late_p95_ms": 50.1}, ("generator", "aborted")),
        ({"window_s": Window(60, 119.5)}, ("terms", "aborted")),
        # Other ends explain nothing about the server
        ({"aborted_why": None, "ended_why": "client c2 was lost"}, ("fault", "terms")),
        ({"aborted_why": None}, ("terms", "ended")),
    ],
)
def test_tasks_left_out_by_an_abort_add_no_cause(changes: dict[str, Any], causes: tuple[str, ...]) -> None:
    """The log has 3 of 20 hits that are needed, and no others that were due."""
    cut_short = with_task(ok=3, refused=2)(FINE).having(ended_early=True, aborted_why="1204 sessions lost")
    verdict = cut_short.having(**changes).judged(MET)
    assert (verdict.validity, verdict.causes) == ("invalid", causes)


@pytest.mark.parametrize(("change", "validity", "defects"), CASES)
def test_each_defect_has_its_finding(change: Change, validity: str, defects: tuple[Finding, ...]) -> None:
    verdict = change(FINE).judged(MET)
    assert (verdict.validity, verdict.passed, verdict.defects) == (validity, True, defects)
    assert verdict.exit_status == (3 if validity == "invalid" else 0)


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (with_facts(sessions_lost=7, down_share=0.0123), finding(Code.SESSIONS_LOST, sessions=7, down_share=0.0123)),
        (with_facts(sessions_lost=7), finding(Code.SESSIONS_LOST, sessions=7, down_share=None)),
        (
            with_facts(drivers=driver(task(), task("LOGON", 5, 0, ok=9, refused=2, timeout=1, unfinished=1))),
            finding(Code.LOG_ONS_FAILED, failed=3, tried=13),
        ),
        (
            with_facts(drivers=driver(task(), task("FIRST SYNC", weight=0, ok=9, refused=2, lost=1))),
            finding(Code.FIRST_SYNCS_FAILED, failed=3, tried=12),
        ),
        (
            with_facts(drivers=driver(task(), task("LOGOFF", weight=0, ok=5, lost=3))),
            finding(Code.LOG_OFFS_NOT_DONE, not_done=3, tried=8),
        ),
        # These users' stored mail was not listed
        (
            with_facts(drivers=driver(task(), task("LOGOFF", weight=0, ok=5, unfinished=2))),
            finding(Code.LOG_OFFS_NOT_DONE, not_done=2, tried=7),
        ),
        (with_facts(users_without_session=3), finding(Code.NO_SESSION_AT_END, without=3, users=100)),
        (with_facts(unannounced=1234), finding(Code.NOT_ANNOUNCED, messages=1234)),
        (with_facts(outside=Outside(9, 70, 8)), finding(Code.UNKNOWN_ACCEPTED, messages=8)),
        (with_facts(foreign=50), finding(Code.FOREIGN_MAIL, messages=50)),
        (with_facts(delivery=replace(MAIL, left_out=30)), finding(Code.LISTS_OMIT_SENDER, copies=30)),
    ],
)
def test_deviations_of_the_server_are_warnings(change: Change, warning: Finding) -> None:
    """None makes a run invalid, for all are the server's doing; criteria ask for the shares."""
    verdict = change(FINE).judged(MET)
    assert (verdict.validity, verdict.passed, verdict.defects, verdict.warnings) == ("valid", True, (), (warning,))


def with_companions(down_share: float | None, **changes: int) -> Change:
    """A run of which 100 companions were not served for a share of the time."""
    counts = dict.fromkeys(("log_ons_failed", "sessions_lost", "failures", "looks", "listed"), 0) | changes
    return with_facts(companions=Companions(count=100, log_ons=120, **counts, down_share=down_share))


@pytest.mark.parametrize(
    ("change", "limits", "validity", "defects", "warnings"),
    [
        (with_companions(0.02), {}, "valid", (), ()),
        (with_companions(None), {}, "valid", (), ()),
        (
            with_companions(0.03, log_ons_failed=20),
            {},
            "degraded",
            (degraded(Code.COMPANIONS_DOWN, down_share=0.03, limit_share=1 - 0.98),),
            (finding(Code.COMPANION_LOG_ONS_FAILED, failed=20, tried=120),),
        ),
        (
            with_companions(0.06),
            {"load": 0.95},
            "invalid",
            (finding(Code.COMPANIONS_DOWN, down_share=0.06, limit_share=1 - 0.95),),
            (),
        ),
        (
            lambda run: with_companions(0.01, sessions_lost=3)(run).having(sessions_lost=7, down_share=0.5),
            {},
            "valid",
            (),
            (
                finding(Code.SESSIONS_LOST, sessions=7, down_share=0.5),
                finding(Code.COMPANION_SESSIONS_LOST, sessions=3),
            ),
        ),
    ],
)
def test_companions_without_a_session_count_as_missing_load(
    change: Change, limits: dict[str, Any], validity: str, defects: tuple[Finding, ...], warnings: tuple[Finding, ...]
) -> None:
    """A server that lets no second mail program in would look better than it is; the limits are those of the load."""
    verdict = change(FINE).judged(MET, limits=replace(LIMITS, **limits))
    assert (verdict.validity, verdict.passed, verdict.defects) == (validity, True, defects)
    assert verdict.warnings == warnings


def test_log_ons_are_added_up_over_drivers() -> None:
    """1 of 10 and 2 of 20 failed: 3 of 30."""
    first, second = (driver(task("LOGON", 5, 0, ok=9 * size, lost=size), name=str(size)) for size in (1, 2))
    log_ons = Totals.of(first | second, LOGON)
    assert (log_ons.planned, log_ons.failed, log_ons.failed_share) == (30, 3, 0.1)
    assert Totals.of(driver(task()), LOGON).failed_share is None


def test_failed_shares_are_of_planned_tasks() -> None:
    """100 tasks: 60 hits, 10 + 5 + 3 failed, 12 unfinished, 10 never begun; LOGON is outside the window."""
    counts = {"ok": 60, "refused": 10, "lost": 5, "timeout": 3, "unfinished": 12, "skipped": 10}
    one = task(**counts)
    drivers = driver(one, task("LOGON", 5, 0, refused=500)) | driver(task("SEND", ok=100), name="aioimaplib")
    totals = Totals.of(drivers)
    assert (one.failed, one.attempted, one.attempted_share) == (18, 90, 0.9)
    assert (one.done_share, one.failed_share) == (0.6, 0.18)
    assert (totals.planned, totals.attempted, totals.failed) == (200, 190, 18)
    assert (totals.attempted_share, totals.done_share, totals.failed_share) == (0.95, 0.8, 0.09)
    nothing = Totals.of(driver(task(ok=0)))
    assert (nothing.attempted_share, nothing.done_share, nothing.failed_share) == (None, None, None)


def test_an_unsteady_window_only_warns() -> None:
    """Neither validity nor criteria nor the exit status know of it."""
    rising = finding(Code.RISING, percentile=50, first_share=0.4, last_share=0.6)
    verdict = FINE.having(unsteady=(rising,)).judged(MET)
    assert (verdict.validity, verdict.passed, verdict.exit_status, verdict.defects) == ("valid", True, 0, ())
    assert verdict.warnings == (rising,)


@pytest.mark.parametrize(
    ("criteria", "ended_early", "exit_status", "codes"),
    [
        ((), False, 0, ()),
        ((MET, MISSED), False, 1, (Code.CRITERION_MISSED,)),
        ((MET,), True, 3, (Code.STOPPED,)),
        ((MISSED, MET), True, 3, (Code.STOPPED, Code.CRITERION_NOT_JUDGED)),
    ],
)
def test_the_exit_status_follows_validity_and_criteria(
    criteria: tuple[Result, ...], ended_early: bool, exit_status: int, codes: tuple[Code, ...]
) -> None:
    """3 invalid, 1 missed, 0 met; findings of validity come first."""
    verdict = FINE.having(ended_early=ended_early).judged(*criteria)
    assert verdict.exit_status == exit_status
    assert tuple(one.code for one in verdict.findings if one.code is not Code.ONE_RUN) == codes
    assert verdict.passed == (MISSED not in criteria)


@pytest.mark.parametrize(
    ("limits", "relaxed"),
    [
        ({}, ()),
        ({"generator_cpu": 0.9}, ()),
        ({"generator_lag_p99_ms": None, "generator_cpu": 0.95}, ("generator_lag_p99_ms off", "generator_cpu 0.95")),
        ({"hits": 0, "window_s": 1}, ("hits 0", "window 1")),
        ({"lost_users": 0.5, "done": 0.5, "load": 0.9}, ("lost_users 0.5", "done 0.5", "load 0.9")),
        ({"lost_users": 0, "done": 1, "load": 1, "hits": 300, "window_s": 60}, ()),
    ],
)
def test_limits_that_are_less_strict_are_named(limits: dict[str, Any], relaxed: tuple[str, ...]) -> None:
    """They make a run valid that by the defaults is not; stricter ones do no harm."""
    stated = Limits.of_header(LIMITS.in_header() | limits)
    assert relaxed_limits(FINE.figures, stated) == tuple(f"limits.{name}" for name in relaxed)
    assert relaxed_limits(FINE.having(embedded=True).figures, stated) == ()
