"""The verdict: the validity of a run, and the result of its criteria.

Validity judges the generator and the logs, criteria judge the server. Every reason has its figure and the limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from loadsim.analysis.companions import Companions
from loadsim.analysis.criteria import Result, missed_texts
from loadsim.analysis.delivery import Delivery
from loadsim.analysis.generator.failures import OwnFailure
from loadsim.analysis.generator.limits import Generator, advice, exceeded, suspicious, unobserved
from loadsim.analysis.load import Load
from loadsim.analysis.score import ProtocolStatistics, TaskFigures
from loadsim.analysis.unserved import Unserved
from loadsim.model.limits import Limits
from loadsim.model.terms import LOGOFF, LOGON, Window

MORE_HITS = "for more hits, more days (run.days), more users, or a longer window that fits into the run (run.window)"
"""The advice if too few tasks were due."""

ENDED_EARLY = "the run was ended early"
"""The reason if a user ended a run."""

KEEPS_UP_WITH_LESS = "the server, or this machine, does not keep up: take fewer users, or a longer day (run.day_length)"
"""The advice if users were asked for less than the plan expects: they waited for answers, or for mail to answer."""

GENERATOR, FAULT, LOAD, TERMS, ABORTED, ENDED = (
    "generator",
    "fault",
    "load",
    "terms",
    "aborted",
    "ended",
)
"""The causes of invalid runs, in this order. `generator`: it was beyond its limits, or lacked ports, files or memory.
`fault`: it failed otherwise, or what it did is not known. `load`: the server did not take the load of the scenario.
`terms`: the run was too short or too small. `aborted`: `abort_on` found the run hopeless. `ended`: a user ended it."""

CAUSES = (GENERATOR, FAULT, LOAD, TERMS, ABORTED, ENDED)


def server_failed(causes: Collection[str]) -> bool:
    """Return True if an invalid run is an answer: the server did not take the load, or it was aborted as hopeless."""
    return bool(causes) and {*causes} <= {LOAD, ABORTED}


EARLY_MS = 5000.0
"""By so much, mail may be seen before it is accepted, if the clocks of several machines were not compared."""

FULL_SHARE = 0.995
"""With at least this share of the planned tasks begun, the load counts as complete: at the end of a run some tasks
are always waiting."""


@dataclass(frozen=True, slots=True)
class LogOns:
    """Log-ons of the whole run, also those after a lost session: how many were tried, and how many failed."""

    planned: int
    failed: int

    @classmethod
    def of(cls, protocols: Iterable[ProtocolStatistics]) -> LogOns:
        tasks = [task for protocol in protocols for task in protocol.tasks if task.task == LOGON]
        return cls(sum(task.planned for task in tasks), sum(task.failed for task in tasks))

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.planned if self.planned else None


FULL_LOAD = 0.98
"""With at least this share of the plan's tasks made, the load counts as that of the plan: healthy runs
make 97 to 102 % of some hundred tasks and 99 to 101 % of thousands (`docs/explanation/measurement.md`)."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that decide the verdict.

    `lost_users` of the `users` were lost by the generator; `users_without_session` were left by the server without a
    session at the end. `generator` has the generator's figures, `own_faults` its own failures.
    `sessions_lost` counts broken sessions in the logs of engines that survived; `down_share` is the share of the
    window's user-seconds without a session. Users found `unannounced` messages when they opened the Inbox again at the
    end. `companions` is None for users with one mail program each.

    `aborted_why` is the reason of an early end by `abort_on`, `ended_why` that by a fault of the machines, as a lost
    client. Without either, a user ended the run. `unended`: no log has the end.
    `incomplete` has the defect of each log that is damaged or has no end, and `unsteady` the trends of the window.
    `stress`: the run was a closed loop, without a plan or a score. `load` is None if it is not compared with the
    plan; `load_unknown`: it should be, but there is no plan. `unserved` is None in a closed loop, and without a scored
    task. `compression` is the number of seconds of the users' day in a second of the run.
    """

    protocols: Sequence[ProtocolStatistics]
    delivery: Delivery
    window_s: Window
    users: int
    lost_users: int
    ended_early: bool
    embedded: bool
    generator: Generator = field(default_factory=Generator)
    incomplete: Sequence[str] = ()
    stress: bool = False
    unsteady: Sequence[str] = ()
    aborted_why: str | None = None
    ended_why: str | None = None
    unended: bool = False
    load: Load | None = None
    load_unknown: bool = False
    users_without_session: int = 0
    sessions_lost: int | None = None
    unannounced: int = 0
    down_share: float | None = None
    companions: Companions | None = None
    own_faults: Sequence[OwnFailure] = ()
    compression: float = 1.0
    unserved: Unserved | None = None

    @property
    def log_ons(self) -> LogOns:
        return LogOns.of(self.protocols)

    @property
    def cut_short(self) -> bool:
        """True if only the end by `abort_on` can be why the logs lack tasks."""
        return self.ended_early and bool(self.aborted_why) and not self.incomplete

    @property
    def generator_counts(self) -> bool:
        """True if the generator's limits make a run invalid; with the embedded server or a closed loop, they warn."""
        return not (self.embedded or self.stress)

    @property
    def fastest_p95_ms(self) -> float | None:
        """The 95th percentile of the fastest scored task, or None without a score."""
        return min(
            (
                task.service.p95_ms
                for protocol in self.protocols
                for task in protocol.tasks
                if task.weight > 0 and task.service.p95_ms is not None
            ),
            default=None,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a run: `validity` is valid, degraded or invalid.

    `passed`: all criteria were met. `defects` are the reasons for the validity;
    `causes` are the kinds of those that make the run invalid, some of `CAUSES`.
    `missed` has the missed criteria. `warnings` did not change the verdict. `advice` helps if
    the generator was the bottleneck, too few tasks were due, or too little of the load was made.
    """

    validity: str
    passed: bool
    ended_early: bool
    defects: tuple[str, ...]
    missed: tuple[str, ...]
    warnings: tuple[str, ...]
    advice: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*self.defects, *self.missed)

    @property
    def exit_status(self) -> int:
        """3 invalid or ended early, 1 criteria missed, 0 pass, in this precedence."""
        if self.validity == "invalid" or self.ended_early:
            return 3
        return 0 if self.passed else 1


def limits_of(stated: Mapping[str, Any], stress: bool) -> dict[str, Any]:
    """Return all limits of a run, with defaults; a closed loop has none for lateness, as nothing is due."""
    return {**Limits().in_header(), **stated} | ({"generator_lateness_p95_ms": None} if stress else {})


def _laxer(facts: Facts, limits: Mapping[str, Any]) -> list[str]:
    """Return a warning that names the generator's limits that are less strict than the defaults."""
    laxer = [
        f"{key.removeprefix('generator_')} {'off' if limits[key] is None else format(limits[key], 'g')}"
        for key, default in Limits().in_header().items()
        if key.startswith("generator_") and (limits[key] is None or limits[key] > default)
    ]
    judged = facts.generator_counts and laxer
    return [f"the generator was judged by less strict limits than the defaults: {', '.join(laxer)}"] if judged else []


def judge(facts: Facts, criteria: Sequence[Result], limits: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a run by the results of its criteria; missing `limits` have their defaults."""
    limits = limits_of(limits, facts.stress)
    over_limits = exceeded(facts.generator, limits, facts.fastest_p95_ms)
    warnings = suspicious(facts.generator, facts.embedded)
    if facts.stress and over_limits:
        over_limits.append(
            "client and server were measured together: the server alone may do more than this throughput"
        )
    if not facts.generator_counts:
        over_limits, warnings = [], [*over_limits, *warnings]
    long_gaps, short_gaps = unobserved(facts.generator)
    measured = _no_score(facts, limits)
    invalid_for = [
        *_too_little(facts, limits),
        *((GENERATOR if own.shortage else FAULT, own.reason) for own in facts.own_faults),
        *measured,
        *((GENERATOR, reason) for reason in over_limits),
        *((FAULT, reason) for reason in long_gaps),
    ]
    invalid = [reason for _, reason in invalid_for]
    causes = {cause for cause, _ in invalid_for}
    degraded = [*(facts.incomplete if invalid else _missing(facts)), *short_gaps]
    ways = []
    if over_limits:
        ways.append(advice(facts.generator, facts.compression))
    elif not (facts.ended_early or facts.unended or facts.lost_users or facts.own_faults) and _load_below(
        facts, max(limits["load"], FULL_LOAD)
    ):
        ways.append(KEEPS_UP_WITH_LESS)
    few = [] if facts.stress else _few_hits(facts, limits)
    if any(_cause_of_few(facts, task, limits) == TERMS for _, task in few):
        ways.append(MORE_HITS)
    missed = tuple(missed_texts(criteria))
    return Verdict(
        validity="invalid" if invalid else "degraded" if degraded else "valid",
        passed=not missed,
        ended_early=facts.ended_early,
        defects=(*invalid, *degraded),
        missed=missed,
        warnings=(
            *_laxer(facts, limits),
            *_unserved(facts),
            *_sessions(facts),
            *_unlike_others(facts),
            *warnings,
            *facts.unsteady,
        ),
        advice=tuple(ways),
        causes=tuple(cause for cause in CAUSES if cause in causes),
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """The tasks that have a window, of all drivers together.

    `attempted` tasks began, `done` ones ended, failed or not. `generator_failed` counts tasks in which the generator
    itself failed: they are attempted, but neither done nor failed. Shares are of planned tasks, None without any.
    """

    planned: int
    attempted: int
    done: int
    failed: int
    generator_failed: int
    unfinished: int
    skipped: int

    @classmethod
    def of(cls, protocols: Iterable[ProtocolStatistics]) -> Totals:
        tasks = [task for protocol in protocols for task in protocol.tasks if task.windowed]
        return cls(**{one.name: sum(getattr(task, one.name) for task in tasks) for one in fields(cls)})

    @property
    def hits(self) -> int:
        return self.done - self.failed

    @property
    def attempted_share(self) -> float | None:
        return self.attempted / self.planned if self.planned else None

    @property
    def done_share(self) -> float | None:
        return (self.done - self.failed) / self.planned if self.planned else None

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.planned if self.planned else None


Reason = tuple[str, str]
"""The cause of an invalid run, one of `CAUSES`, and its text."""


def _too_little(facts: Facts, limits: Mapping[str, Any]) -> list[Reason]:
    """Return the reasons for which the run measured too little to be valid."""
    reasons: list[Reason] = []
    if facts.ended_early:
        ends = [(ABORTED, facts.aborted_why), (FAULT, facts.ended_why)]
        reasons += [(cause, f"ended early: {why}") for cause, why in ends if why] or [(ENDED, ENDED_EARLY)]
    elif facts.unended:  # even if all users may be lost: no engine recorded how the run ended
        reasons.append((FAULT, "no log has the end of the run: it still runs, or no engine survived"))
    elif facts.ended_why:
        reasons.append((FAULT, facts.ended_why))
    # Divide, as a product is rounded: 29 of 100 would be more than 29 %.
    if facts.lost_users and facts.lost_users / facts.users > limits["lost_users"]:
        lost = f"the generator lost {facts.lost_users:,} of {facts.users:,} users"
        reasons.append((FAULT, f"{lost}, at most {_percent(limits['lost_users'])} allowed"))
    totals = Totals.of(facts.protocols)
    missing = FAULT if facts.incomplete else LOAD  # what damaged logs lack may have been done
    if not facts.stress and totals.attempted_share is not None and totals.attempted_share < limits["done"]:
        reasons.append((missing, f"{_attempted(totals)}, at least {_percent(limits['done'])} needed"))
    least = limits["load"]
    reasons += [(missing, f"{found}, at least {_percent(least)} needed") for found in _load_below(facts, least)]
    reasons += [
        (missing, f"{found}, at most {_percent(1 - least)} allowed") for found in _companions_down(facts, least)
    ]
    early_ms = facts.delivery.earliest_ms or 0.0
    if facts.delivery.clock_error_ms is None and early_ms > EARLY_MS:
        early = f"mail was seen {early_ms / 1000:,.1f} s before it was accepted"
        reasons.append((FAULT, f"{early}: clocks of machines were not compared"))
    length_s = facts.window_s.length_s
    if length_s < limits["window_s"]:
        reasons.append((TERMS, f"the window is {length_s:g} s long, at least {limits['window_s']:g} s needed"))
    return reasons


def _no_score(facts: Facts, limits: Mapping[str, Any]) -> list[Reason]:
    """Return the reasons for which there is no valid score, or no throughput of a closed loop.

    An end by `abort_on` is the cause if tasks that would have been due later are missing.
    """
    if facts.stress:
        done = Totals.of(facts.protocols).done
        return [] if done else [(LOAD, "no task was done in the window: there is no throughput")]
    reasons = [
        (
            _cause_of_few(facts, task, limits),
            f"{_of(facts, protocol)}{task.task} has too few hits: {task.hits}, at least {limits['hits']:g} needed",
        )
        for protocol, task in _few_hits(facts, limits)
    ]
    reasons += [
        (
            LOAD
            if any(task.weight > 0 and task.planned for task in protocol.tasks)
            else ABORTED
            if facts.cut_short
            else TERMS,
            f"{_of(facts, protocol)}no scored task has a hit: there is no score",
        )
        for protocol in facts.protocols
        if protocol.score_ms is None
    ]
    if not facts.protocols:
        reasons.append((ABORTED if facts.cut_short else FAULT, "the logs hold no task: there is no score"))
    return reasons


def _cause_of_few(facts: Facts, task: TaskFigures, limits: Mapping[str, Any]) -> str:
    """Return why a task has too few hits: the terms only if the server, or the end by `abort_on`, is no reason.

    1. Terms, if the plan has too few of the task.
    2. The load, if enough were due: they failed, or were not done.
    3. The end by `abort_on`, if the others would have been due later.
    4. The load, if too little of the plan's was made: users of a slow server have less mail to answer. A task that is
       rare by itself, or whose records may be missing, is no such reason.
    """
    planned = _planned(facts, task)
    if planned is not None and planned < limits["hits"]:
        return TERMS
    if task.planned >= limits["hits"]:
        return LOAD
    if facts.cut_short:
        return ABORTED
    complete = not (facts.incomplete or facts.lost_users or facts.own_faults)
    return LOAD if complete and planned is not None and _load_below(facts, limits["load"]) else TERMS


def _planned(facts: Facts, task: TaskFigures) -> int | None:
    """Return the number of a task in the plan; None if it is not known. The plan does not tell drivers apart."""
    if facts.load is None or len(facts.protocols) > 1 or task.task not in facts.load.tasks:
        return None
    return facts.load.tasks[task.task].planned


def _few_hits(facts: Facts, limits: Mapping[str, Any]) -> list[tuple[ProtocolStatistics, TaskFigures]]:
    """Return the scored and planned tasks with too few hits for a percentile."""
    return [
        (protocol, task)
        for protocol in facts.protocols
        for task in protocol.tasks
        if task.weight > 0 and task.planned > 0 and task.hits < limits["hits"]
    ]


def _missing(facts: Facts) -> list[str]:
    """Return the reasons for a degraded run: load that is missing within the limits."""
    reasons = list(facts.incomplete)
    if facts.lost_users:
        reasons.append(f"the generator lost {facts.lost_users:,} of {facts.users:,} users")
    totals = Totals.of(facts.protocols)
    if not facts.stress and totals.attempted_share is not None and totals.attempted_share < FULL_SHARE:
        reasons.append(f"{_attempted(totals)}, at least {_percent(FULL_SHARE)} wanted")
    if facts.load_unknown:
        reasons.append("how much of the load of the plan was made is not known")
    full = _percent(FULL_LOAD)
    reasons += [f"{found}, at least {full} wanted" for found in _load_below(facts, FULL_LOAD)]
    return reasons + [
        f"{found}, at most {_percent(1 - FULL_LOAD)} wanted" for found in _companions_down(facts, FULL_LOAD)
    ]


def _load_below(facts: Facts, least: float) -> list[str]:
    """Return the share of the plan's load that was made, if it is known and below `least`."""
    load = facts.load
    if load is None or load.share is None or load.share >= least:
        return []
    return [
        f"{load.made:,} of {load.planned:,} tasks that the plan expects were asked of the server"
        f" ({_percent(load.share)})"
    ]


def _companions_down(facts: Facts, least: float) -> list[str]:
    """Return companions' share of time without service as a reason, if the share with service is below `least`."""
    found = facts.companions
    if found is None or found.down_share is None or 1 - found.down_share >= least:
        return []
    return [
        f"companions, the users' further mail programs, were not served for {_percent(found.down_share)} of the run"
    ]


def _unserved(facts: Facts) -> list[str]:
    """Return a warning that names users without usable service."""
    found = facts.unserved
    if found is None or not found.users:
        return []
    more = f" and {found.users - len(found.first):,} more" if found.users > len(found.first) else ""
    return [
        f"{found.users:,} of {found.judged:,} users had no usable service, as too many of their scored tasks failed, or"
        f" their tasks or mail were later than the criteria allow: user {', '.join(found.first)}{more}"
    ]


def _sessions(facts: Facts) -> list[str]:
    """Return warnings of lost sessions, failed log-ons and log-offs, also of companions."""
    warnings = []
    if facts.sessions_lost:
        down = (
            "" if facts.down_share is None else f"; users were without one {_percent(facts.down_share)} of the window"
        )
        lost = "1 session was" if facts.sessions_lost == 1 else f"{facts.sessions_lost:,} sessions were"
        companions = facts.companions.sessions_lost if facts.companions else 0
        of_companions = f", {companions:,.10g} of them of companions" if companions else ""
        warnings.append(f"{lost} lost{of_companions}{down}")
    if facts.log_ons.failed:
        warnings.append(f"{facts.log_ons.failed:,} of {facts.log_ons.planned:,} log-ons failed")
    if facts.companions and (failed_of := facts.companions.log_ons_failed):
        warnings.append(f"{failed_of:,.10g} of {facts.companions.log_ons:,.10g} log-ons of companions failed")
    log_offs = [task for protocol in facts.protocols for task in protocol.tasks if task.task == LOGOFF]
    unended = sum(task.unfinished for task in log_offs)
    if failed := sum(task.failed for task in log_offs) + unended:
        told = " or did not end, so that stored mail was not looked at" if unended else ""
        warnings.append(f"{failed:,} of {sum(task.planned for task in log_offs):,} log-offs failed{told}")
    if facts.users_without_session:
        warnings.append(f"{facts.users_without_session:,} of {facts.users:,} users had no session at the end")
    return warnings


def _unlike_others(facts: Facts) -> list[str]:
    """Return the numbers of messages that no session learned of, and of copies that lists do not make, as warnings."""
    counts = {
        "messages that the server did not announce, found when users opened the Inbox again": facts.unannounced,
        "copies not expected, since the server's lists leave out the sender": facts.delivery.left_out,
    }
    return [f"{what}: {number:,.10g}" for what, number in counts.items() if number]


def _of(facts: Facts, protocol: ProtocolStatistics) -> str:
    """Return the driver as a prefix, if there is more than one."""
    return f"{protocol.protocol}: " if len(facts.protocols) > 1 else ""


def _attempted(totals: Totals) -> str:
    share = _percent(totals.attempted / totals.planned)
    return f"{totals.attempted:,} of {totals.planned:,} tasks that were due were begun ({share})"


def _percent(share: float) -> str:
    return f"{share * 100:.4g} %"
