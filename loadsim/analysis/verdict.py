"""The verdict: a fold over findings; their severities alone decide validity and result (`findings.verdict`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadsim.analysis.criteria import Result, missed_criteria
from loadsim.analysis.generator.health import EngineHealth
from loadsim.analysis.generator.limits import bounded, exceeded, suspicious, unobserved
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.findings.severity import Severity
from loadsim.findings.verdict import Verdict, by_severity
from loadsim.model.figures import Figures, TaskFigures, Totals
from loadsim.model.terms import RETURN_RECEIPT, STRESS, WITHOUT_WINDOW
from loadsim.scenario.limits import Limits
from loadsim.timinglog.audited import AuditRecord
from loadsim.timinglog.header import LogHeader

EARLY_MS = 5000.0
"""Mail may appear this much earlier than it was accepted, if the clocks of several machines were not compared."""

FULL_SHARE = 0.995
"""The load counts as complete if at least this share of the planned tasks began: some always wait when a run ends."""


FULL_LOAD = 0.98
"""The load counts as the plan's if at least this share of it was made: healthy runs make 96 to 102 % of a few hundred
tasks, and 99 to 101 % of thousands (`docs/explanation/measurement.md`)."""


OF_STRESS = ("lost_users", "window_s")
"""The limits that decide the validity of a closed loop."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a run that, along with its figures, decide the verdict.

    `engines` has the health of each engine. Findings: `incomplete` on logs that are damaged or have no end, `unsteady`
    on trends in the window, `own_faults` on failures of the generator, `broken` on rules that the server broke and on
    altered mail. `audit` is the result of the audit, if there was one.

    `aborted_why` is the reason for an early end by `abort_on`, `ended_why` for one by a fault of the machines, such as
    a lost client. Without either, a user stopped the run. `unended`: no log has an end. `load_unknown`: the load should
    be compared with the plan, but there is no plan. `sessions_lost` counts what surviving engines reported.
    `unannounced` messages were found when users opened the Inbox again at the end, and `foreign` ones there were not
    sent by any user. `unserved` names some of the users without usable service.
    """

    ended_early: bool = False
    engines: Sequence[EngineHealth] = ()
    incomplete: Sequence[Finding] = ()
    unsteady: Sequence[Finding] = ()
    aborted_why: str | None = None
    ended_why: str | None = None
    unended: bool = False
    load_unknown: bool = False
    sessions_lost: int | None = None
    unannounced: int = 0
    foreign: int = 0
    flags_not_kept: Sequence[str] = ()
    own_faults: Sequence[Finding] = ()
    unserved: Sequence[str] = ()
    audit: AuditRecord | None = None
    audited: bool | None = None
    broken: Sequence[Finding] = ()

    @property
    def cut_short(self) -> bool:
        """True if only the end by `abort_on` can explain the tasks missing from the logs."""
        return self.ended_early and bool(self.aborted_why) and not self.incomplete


def limits_of(header: LogHeader) -> Limits:
    """Return the limits of a run; a closed loop has none on lateness, as nothing is due."""
    limits = Limits.of_header(header.limits or {})
    stress = header.mode == STRESS
    return replace(limits, generator=replace(limits.generator, lateness_p95_ms=None)) if stress else limits


def relaxed_limits(figures: Figures, limits: Limits) -> tuple[str, ...]:
    """Return the limits that are less strict than the defaults; none for the embedded server."""
    stated: dict[str, Any] = limits.in_header()

    def is_relaxed(key: str, default: float | None) -> bool:
        if key.startswith("generator_") or key == "lost_users":
            return stated[key] is None or stated[key] > default
        return bool(stated[key] < default)

    return tuple(
        f"limits.{key.removesuffix('_s')} {'off' if stated[key] is None else format(stated[key], 'g')}"
        for key, default in Limits().in_header().items()
        if not figures.embedded and (key in OF_STRESS or not figures.stress) and is_relaxed(key, default)
    )


def judge(
    figures: Figures, facts: Facts, criteria: Sequence[Result], limits: Limits, missed_late: Sequence[str] = ()
) -> Verdict:
    """Return the verdict on a run, given the results of its criteria.

    `missed_late` names the criteria that are missed only because the generator was late. `summary_of` adds warnings and
    notes, which change neither validity nor result.
    """
    generator = figures.generator
    over_limits = exceeded(figures.lateness_p95_ms.generator, facts.engines, limits.generator, generator.lag_limit_ms)
    if missed_late:
        over_limits.append(finding(Code.MISSED_BY_GENERATOR, criteria=tuple(missed_late)))
    if not figures.generator_counts:
        over_limits = [replace(one, severity=Severity.WARNING) for one in over_limits]
        if figures.stress and over_limits:
            over_limits.append(finding(Code.MEASURED_TOGETHER))
    found = [
        *_ends(facts),
        *_too_little(figures, facts, limits),
        *facts.own_faults,
        *_no_score(figures, facts, limits),
        *over_limits,
        *unobserved([*figures.machines, *facts.engines]),
        *facts.incomplete,
        *missed_criteria(criteria, facts.ended_early),
        *_audit(figures.users, facts, limits.lost_users),
        *facts.broken,
        *_refused(figures),
        *_unserved(figures, facts),
        *_sessions(figures, facts),
        *suspicious(figures.machines, facts.engines, figures.embedded),
        *bounded(figures.generator),
        *facts.unsteady,
    ]
    if figures.embedded:
        found.append(finding(Code.EMBEDDED))
    found.append(finding(Code.ONE_RUN))
    return Verdict(by_severity(found))


def _audit(users: float, facts: Facts, most_lost: float) -> Sequence[Finding]:
    """Return the findings of the audit. It has no result if it was interrupted, or if only the logs were copied."""
    if facts.audit is not None:
        return facts.audit.run_findings(most_lost)
    if facts.audited is False:
        return [finding(Code.MAIL_NOT_AUDITED)]
    if not facts.audited or facts.ended_early:
        return []
    return [finding(Code.AUDIT_INCOMPLETE, left=users, accounts=users, why="no audit.json")]


def _ends(facts: Facts) -> list[Finding]:
    """Return findings on an early or unknown end of the run."""
    whys = {Code.ABORTED: facts.aborted_why, Code.FAULT_ENDED: facts.ended_why}
    if facts.ended_early:
        return [finding(code, why=why) for code, why in whys.items() if why] or [finding(Code.STOPPED)]
    if facts.unended:  # even if all users may be lost: no engine recorded how the run ended
        return [finding(Code.NO_END)]
    return [finding(Code.FAULT_AT_END, why=facts.ended_why)] if facts.ended_why else []


def _too_little(figures: Figures, facts: Facts, limits: Limits) -> list[Finding]:
    """Return findings on a run that measured too little, or whose logs may be incomplete.

    Missing load within the limits degrades a run. Tasks missing from damaged logs may have been done: it is then
    unknown if the server failed.
    """
    findings: list[Finding] = []
    # Divide: 29 of 100 would exceed the rounded product of 29 % and 100.
    if figures.sessions.lost_users:
        lost = {"lost": figures.sessions.lost_users, "users": figures.users, "limit_share": float(limits.lost_users)}
        within = figures.sessions.lost_users / figures.users <= limits.lost_users
        findings.append(finding(Code.USERS_LOST, "", Severity.DEGRADED if within else None, **lost))
    totals = figures.totals
    started = totals.attempted_share
    if not figures.stress and started is not None:
        values = {"started": totals.attempted, "due": totals.planned, "started_share": started}
        findings += _below(facts, Code.TASKS_NOT_STARTED, values, started, limits.done, FULL_SHARE)
    if figures.load and (made := figures.load.share) is not None:
        values = {"made": figures.load.made, "planned": figures.load.planned, "made_share": made}
        findings += _below(facts, Code.LOAD_MISSING, values, made, limits.load, FULL_LOAD)
    if figures.sessions.companions and (down := figures.sessions.companions.down_share) is not None:
        findings += _below(facts, Code.COMPANIONS_DOWN, {"down_share": down}, 1 - down, limits.load, FULL_LOAD)
    if facts.load_unknown:
        findings.append(finding(Code.LOAD_UNKNOWN))
    if figures.delivery.unlisted and facts.audit is None:  # an audit has looked at it
        findings.append(finding(Code.MAIL_NOT_LISTED, messages=figures.delivery.unlisted))
    if facts.flags_not_kept:
        findings.append(finding(Code.FLAGS_NOT_KEPT, flags=", ".join(facts.flags_not_kept)))
    early_ms = figures.delivery.earliest_ms or 0.0
    if figures.delivery.clock_error_ms is None and early_ms > EARLY_MS:
        findings.append(finding(Code.CLOCKS_NOT_COMPARED, early_ms=early_ms))
    length_s = figures.window_s.length_s
    if length_s < limits.window_s:
        findings.append(finding(Code.SHORT_WINDOW, window_s=length_s, limit_s=float(limits.window_s)))
    return findings


def _below(
    facts: Facts, code: Code, values: Mapping[str, Value], share: float, limit: float, full: float
) -> list[Finding]:
    """Return a finding if a share of the load is below its limit, or a degrading one if it is below the full load."""
    if share >= max(limit, full):
        return []
    severity = Severity.INVALID if share < limit else Severity.DEGRADED
    least = limit if share < limit else full
    if facts.incomplete and severity is Severity.INVALID:
        return [finding(Code.NOT_RECORDED, recorded_share=share, limit_share=least)]
    of_limit = 1 - least if code is Code.COMPANIONS_DOWN else least
    return [Finding(code, {**values, "limit_share": of_limit}, "", severity)]


def _no_score(figures: Figures, facts: Facts, limits: Limits) -> list[Finding]:
    """Return findings on a missing score, or on the missing throughput of a closed loop.

    If `abort_on` ended the run before the missing tasks were due, that end is the cause.
    """
    if figures.stress:
        return [] if figures.totals.done else [finding(Code.NO_THROUGHPUT)]
    least = int(limits.hits)
    found, without = [], []
    for name, of_driver in figures.by_protocol.items():
        driver = name if len(figures.by_protocol) > 1 else ""
        due = [task for task in of_driver.tasks if task.weight > 0 and task.planned > 0]
        for task in due:
            if task.hits < least:
                code = _few(figures, facts, task, limits)
                values = {"hits": task.hits} | ({} if code is Code.CUT_SHORT else {"limit": least})
                found.append(finding(code, f"{driver}: {task.task}" if driver else task.task, **values))
        if of_driver.score_ms is None:
            without.append(finding(Code.NO_SCORE, driver) if due else _nothing(facts, Code.NOTHING_DUE, driver))
    if not figures.by_protocol:
        found.append(_nothing(facts, Code.NO_TASKS))
    return [*found, *without]


def _nothing(facts: Facts, code: Code, where: str = "") -> Finding:
    """Return the finding that there is no score, with this code unless the end by `abort_on` is the cause."""
    return finding(Code.CUT_SHORT, where, hits=0) if facts.cut_short else finding(code, where)


def _few(figures: Figures, facts: Facts, task: TaskFigures, limits: Limits) -> Code:
    """Return why a task has too few hits. The first reason that applies counts:

    1. The terms, if the plan has too few of these tasks.
    2. The load, if enough were due: they failed, or were not done.
    3. The end by `abort_on`, if the others would have been due later.
    4. The load, if too little of the plan was made: users of a slow server have less mail to answer. This does not
       apply if records may be missing, or if the plan does not have the task.
    5. The terms.
    """
    planned = _planned(figures, task)
    if planned is not None and planned < limits.hits:
        return Code.FEW_HITS
    if task.planned >= limits.hits:
        return Code.HITS_MISSING
    if facts.cut_short:
        return Code.CUT_SHORT
    complete = not (facts.incomplete or figures.sessions.lost_users or facts.own_faults)
    below = figures.load is not None and figures.load.share is not None and figures.load.share < limits.load
    return Code.HITS_MISSING if complete and planned is not None and below else Code.FEW_HITS


def _planned(figures: Figures, task: TaskFigures) -> int | None:
    """Return how often the plan has a task; None if unknown. The plan does not tell drivers apart."""
    if figures.load is None or len(figures.by_protocol) > 1 or task.task not in figures.load.tasks:
        return None
    return figures.load.tasks[task.task].planned


_OF_LOAD = re.compile(
    r"(421|432|45\d|other 4yz) |429 |503 (?!EHLO|LHLO|AUTH|STARTTLS|MAIL|RCPT|DATA|RSET)"
    r"|(NO|BAD) \[(LIMIT|INUSE|UNAVAILABLE|SERVERBUG|OVERQUOTA)\b"
)
"""Kinds of refusals that load may cause: by SMTP (RFC 5321 section 4.2.1), HTTP (RFC 9110, RFC 6585), IMAP (RFC 5530).

SMTP's 503 is a bad sequence of commands; other codes with 4 are HTTP's and NNTP's, and final.
"""


def _refused(figures: Figures) -> list[Finding]:
    """Return a warning for each task that the server refused more than half the time, for reasons other than load.

    Read receipts that are refused as other mail is have no reason of their own.
    """
    mostly: list[tuple[TaskFigures, int, str]] = []
    for task in (task for driver in figures.by_protocol.values() for task in driver.tasks):
        kinds = [one for one in task.failures if one.outcome == "refused" and not _OF_LOAD.match(one.kind)]
        if (refused := sum(one.times for one in kinds)) > task.planned / 2:
            mostly.append((task, refused, max(kinds, key=lambda one: one.times).kind))
    others = {answer for task, _, answer in mostly if task.task != RETURN_RECEIPT}
    warnings = []
    for task, refused, answer in mostly:
        is_null_path = task.task == RETURN_RECEIPT and answer not in others
        code = Code.NULL_PATH_REFUSED if is_null_path else Code.TASK_REFUSED
        warnings.append(finding(code, task.task, refused=refused, due=task.planned, answer=answer))
    return warnings


def _unserved(figures: Figures, facts: Facts) -> list[Finding]:
    if not figures.unserved_users:
        return []
    left = round(figures.unserved_users) - len(facts.unserved)
    first = (*facts.unserved, *((f"{left:,} more",) if left else ()))
    users, share = figures.unserved_users, figures.unserved_share
    return [finding(Code.USERS_UNSERVED, unserved=users, unserved_share=share, first=first)]


def _sessions(figures: Figures, facts: Facts) -> list[Finding]:
    """Return warnings on sessions, log-ons, first syncs, log-offs and companions, and on how servers treat mail."""
    companions = figures.sessions.companions
    log_ons, first_syncs, log_offs = (Totals.of(figures.by_protocol, task) for task in WITHOUT_WINDOW)
    reports = facts.audit.bounces.items() if facts.audit else ()
    known = sum(times for status, times in reports if not status.startswith("2"))  # receipts are not foreign
    receipts = [driver.receipts for driver in figures.by_protocol.values() if driver.receipts]
    requested, arrived = (sum(getattr(one, name) for one in receipts) for name in ("requested", "arrived"))
    counted: tuple[tuple[Code, dict[str, Value]], ...] = (
        (Code.SESSIONS_LOST, {"sessions": facts.sessions_lost, "down_share": figures.sessions.down_share}),
        (Code.COMPANION_SESSIONS_LOST, {"sessions": companions.sessions_lost if companions else 0}),
        (Code.LOG_ONS_FAILED, {"failed": log_ons.failed, "tried": log_ons.planned}),
        (
            Code.COMPANION_LOG_ONS_FAILED,
            {"failed": companions.log_ons_failed, "tried": companions.log_ons} if companions else {"failed": 0},
        ),
        (Code.FIRST_SYNCS_FAILED, {"failed": first_syncs.failed, "tried": first_syncs.planned}),
        (Code.LOG_OFFS_NOT_DONE, {"not_done": log_offs.failed + log_offs.unfinished, "tried": log_offs.planned}),
        (Code.NO_SESSION_AT_END, {"without": figures.sessions.users_without_session, "users": figures.users}),
        (Code.NOT_ANNOUNCED, {"messages": facts.unannounced}),
        (Code.UNKNOWN_ACCEPTED, {"messages": figures.outside.unknown_accepted if figures.outside else 0}),
        (Code.RECEIPTS_NOT_OFFERED, {"messages": sum(one.planned - one.requested for one in receipts)}),
        (Code.RECEIPTS_MISSING, {"missing": 0 if facts.ended_early else requested - arrived, "requested": requested}),
        (Code.FOREIGN_MAIL, {"messages": max(0, facts.foreign - known)}),
        (Code.LISTS_OMIT_SENDER, {"copies": figures.delivery.left_out}),
    )
    found = [finding(code, **values) for code, values in counted if next(iter(values.values()))]
    if figures.recovery is not None and figures.recovery.users < figures.users / 2:
        found.append(finding(Code.OUTAGE_PARTIAL, interrupted=figures.recovery.users, users=figures.users))
    return found
