"""Measure a run from its log: compute all figures, and the other facts that the verdict needs.

Opening a log checks it in one pass. Its tasks are then read once, or twice if there was an outage. A scenario file's
criteria may depend on the drivers: they take a further pass, for the users without usable service. Mail is joined once,
at most `WHOLE_RECORDS` records at a time. Health samples stay in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from loadsim.analysis.aggregate import ByDriver, read_tasks, windowed_hits
from loadsim.analysis.completeness import (
    DownTime,
    last_sample_s,
    outside,
    reported_at_least,
    sessions,
    users_had,
    users_present,
    without_logs,
)
from loadsim.analysis.criteria import Limits as Bounds
from loadsim.analysis.criteria import criteria_of
from loadsim.analysis.delivery import altered_mail, delivery
from loadsim.analysis.generator.failures import OwnFailures
from loadsim.analysis.generator.health import EngineHealth, generator_health
from loadsim.analysis.generator.lateness import LateTasks, timing_of
from loadsim.analysis.generator.limits import worst_engine
from loadsim.analysis.generator.per_client import client_figures
from loadsim.analysis.load import load_made, throughput
from loadsim.analysis.probes.resources import probe_places, ranked_resources
from loadsim.analysis.probes.statistics import probe_statistics
from loadsim.analysis.recovery import Interruptions, recovery_of
from loadsim.analysis.score import driver_figures, fastest_p95_ms
from loadsim.analysis.unserved import MailByUser, TasksByUser, Unserved, unserved
from loadsim.analysis.verdict import Facts
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import (
    ClientFigures,
    Day,
    Delivery,
    DriverFigures,
    Figures,
    GeneratorFigures,
    Lateness,
    Load,
    MachineHealth,
    ProbeStatistics,
    Totals,
)
from loadsim.model.state_checks import Violation
from loadsim.model.terms import LOGON, STRESS, Window
from loadsim.scenario.day_shape import factor_of_window
from loadsim.scenario.limits import Limits
from loadsim.statistics.stationarity import trends
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.facts import ABORT_ON
from loadsim.timinglog.header import LogHeader
from loadsim.timinglog.reader import Source, TimingLog

FULL_DAY_S = 28_800.0
"""The length of the day in load-equivalents: 8 hours, as in the canonical profiles."""


class RunTerms(NamedTuple):
    """The window, weights and limits that measure a run; tasks without a weight are not scored."""

    window_s: Window
    weights: Mapping[str, float]
    limits: Limits


class Measured(NamedTuple):
    """A run's figures, other facts for the verdict, and all criteria (None: switched off)."""

    figures: Figures
    facts: Facts
    criteria: Mapping[str, Bounds | None]


class _Tasks(NamedTuple):
    """Results of the first pass over the tasks; `unsteady` has the trends in the window."""

    drivers: Mapping[str, DriverFigures]
    unsteady: Sequence[Finding]
    late: LateTasks
    timing: Mapping[str, float | None]
    down: DownTime
    own_failures: OwnFailures
    recovery: Interruptions | None


def measure(log: TimingLog, terms: RunTerms, criteria: Path | Mapping[str, Bounds | None] | None) -> Measured:
    """Measure a run by the given criteria, such as a scenario file's, or else by its own.

    Raises `ConfigError` for criteria on figures that the log does not have.
    """
    window_s, weights, limits = terms
    header, stress = log.header, log.header.mode == STRESS

    # 1. Drivers and probes.
    wanted = header.criteria if criteria is None else criteria
    user_tasks = TasksByUser(log, window_s, weights, {} if isinstance(wanted, Path) else wanted)
    one_pass = not (stress or isinstance(wanted, Path))
    tasks = _first_pass(log, weights, window_s, *([user_tasks.add] if one_pass else []))
    probes = probe_statistics(log, window_s)

    # 2. The criteria, and the users not served accordingly.
    if isinstance(wanted, Path):
        wanted = criteria_of(wanted, tasks.drivers, probes or (), stress, outage=header.outage is not None)
        user_tasks = TasksByUser(log, window_s, weights, wanted)
        if not stress:
            read_tasks(log, user_tasks.add)
    user_mail = MailByUser(window_s, wanted)
    mail = delivery(log, window_s, user_mail.add)
    served = unserved(user_tasks, user_mail, wanted)

    # 3. The figures, and the facts.
    engines, machines = generator_health(log, window_s)
    generator = worst_engine(engines, limits.generator, fastest_p95_ms(tasks.drivers), tasks.timing)
    per_client = client_figures(log, engines, tasks.late, tasks.own_failures, limits, generator.lag_limit_ms)
    figures = _figures(log, window_s, tasks, probes, served, mail, generator, machines, per_client)
    facts = _facts(log, tasks, engines, served, figures)
    return Measured(figures, facts, wanted)


def _first_pass(
    log: TimingLog, weights: Mapping[str, float], window_s: Window, *readers: Callable[[Columns], None]
) -> _Tasks:
    """Read the tasks once, also for further readers."""
    recovery = recovery_of(log)
    forgiven = None if recovery is None else recovery.has
    by_driver, late = ByDriver(log, window_s, forgiven), LateTasks(log, window_s)
    down, own_failures = DownTime(log, window_s, recovery), OwnFailures(log)
    read_tasks(log, by_driver.add, late.add, down.add, own_failures.add, *readers)
    records = by_driver.closed()
    unsteady = [
        trend
        for driver, of_driver in records.items()
        for trend in trends(windowed_hits(of_driver, weights), window_s, driver if len(records) > 1 else "")
    ]
    drivers = {driver: driver_figures(of_driver, weights, window_s) for driver, of_driver in records.items()}
    return _Tasks(drivers, unsteady, late, timing_of(records.values()), down, own_failures, recovery)


def _figures(
    log: TimingLog,
    window_s: Window,
    tasks: _Tasks,
    probes: Mapping[str, Mapping[str, ProbeStatistics]] | None,
    served: Unserved | None,
    mail: Delivery,
    generator: GeneratorFigures,
    machines: Sequence[MachineHealth],
    per_client: Sequence[ClientFigures],
) -> Figures:
    """Return all figures. Those of a single driver are also those of the run."""
    header, stress, drivers = log.header, log.header.mode == STRESS, tasks.drivers
    only = next(iter(drivers.values())) if len(drivers) == 1 else None
    totals, log_ons, users = Totals.of(drivers, stress=stress), Totals.of(drivers, LOGON), users_had(log)
    day, load = _day(header, window_s), None if stress else load_made(log, drivers, window_s)
    return Figures(
        run=log.sources[0].run or None,
        name=header.name,
        mode=header.mode,
        score_ms=only.score_ms if only else None,
        response_score_ms=only.response_score_ms if only else None,
        score_interval_ms=only.score_interval_ms if only else None,
        provisional=any(driver.provisional for driver in drivers.values()),
        users=users,
        clients=len({source.client for source in log.sources if not source.is_monitor}),
        engines=sum(source.simulates for source in log.sources),
        window_s=window_s,
        plan_digest=header.plan_digest,
        server=header.server,
        embedded=header.embedded,
        submission=header.submission,
        acknowledgements=header.acknowledgements,
        day=day,
        load_equivalent_users=None if stress else _load_equivalent(users, day, load),
        received_share=header.planned_load.received_share if header.planned_load else None,
        offered_per_s=None if stress else totals.planned / window_s.length_s,
        tasks_per_s=totals.hits / window_s.length_s,
        totals=totals,
        sessions=sessions(log, tasks.down.share(users)),
        log_ons=log_ons.planned,
        logon_failed_share=log_ons.failed_share,
        unserved_users=served.users if served else None,
        unserved_share=served.share if served else None,
        inbox=only.inbox if only else None,
        covers=only.covers if only else None,
        tasks=only.tasks if only else (),
        by_protocol=drivers,
        load=load,
        delivery=mail,
        lateness_p95_ms=Lateness(None, None, None) if stress else tasks.late.p95_ms(),
        throughput=throughput(log, window_s, drivers, mail) if stress else None,
        generator=generator,
        machines=machines,
        per_client=per_client,
        probes=probes,
        recovery=None if tasks.recovery is None else tasks.recovery.figures(),
        outside=outside(log),
        receipts=only.receipts if only else None,
        resources=ranked_resources(probes, probe_places(log)) or None if probes else None,
    )


def _day(header: LogHeader, window_s: Window) -> Day:
    day_s, night_s, day_shape = float(header.day_s or FULL_DAY_S), float(header.night_s or 0), header.day_shape or ()
    compression = float(header.compression or FULL_DAY_S / day_s)
    return Day(
        profile_day_s=float(header.profile_day_s or round(day_s * compression, 6)),
        day_s=day_s,
        night_s=night_s,
        day_shape=day_shape,
        window_factor=factor_of_window(day_shape, window_s, day_s, night_s),
        compression=compression,
    )


def _load_equivalent(users: int, day: Day, load: Load | None) -> int:
    """Return the number of users who would make as many tasks per second with an 8 h day."""
    made = 1.0 if load is None or load.share is None else min(1.0, load.share)
    return round(users * FULL_DAY_S / day.day_s * made * day.window_factor)


def _facts(
    log: TimingLog, tasks: _Tasks, engines: Sequence[EngineHealth], served: Unserved | None, figures: Figures
) -> Facts:
    planned = log.header.load_unknown or log.header.planned_load is not None
    return Facts(
        ended_early=any(source.facts.ended == "early" for source in log.sources),
        engines=engines,
        incomplete=incomplete(log),
        unsteady=tasks.unsteady,
        aborted_why=_why(source for source in log.sources if source.facts.ended_by == ABORT_ON),
        ended_why=_why(source for source in log.sources if source.facts.ended_by != ABORT_ON),
        unended=not any(source.ended for source in log.sources if source.simulates),
        load_unknown=planned and figures.load is None and not figures.stress,
        sessions_lost=reported_at_least(log, "sessions_lost"),
        unannounced=reported_at_least(log, "unannounced"),
        foreign=reported_at_least(log, "foreign"),
        flags_not_kept=sorted({flag for source in log.sources for flag in source.facts.flags_not_kept or ()}),
        own_faults=tasks.own_failures.findings(),
        unserved=served.first if served else (),
        audit=log.audit,
        audited=log.header.audited,
        broken=[*_broken_rules(log), *altered_mail(log, figures.delivery.altered)],
    )


def _broken_rules(log: TimingLog) -> list[Finding]:
    """Return a finding for each rule that the server broke, with the first violation in the first log."""
    by_rule: dict[str, Violation] = {}
    for source in log.sources:
        for violation in source.facts.state_checks.violations if source.facts.state_checks else ():
            earlier = by_rule.get(violation.rule)
            by_rule[violation.rule] = earlier.joined(violation) if earlier else violation
    return [violation.finding for violation in by_rule.values()]


def _why(sources: Iterable[Source]) -> str | None:
    whys = [why for source in sources if (why := source.facts.ended_why)]
    return "; ".join(dict.fromkeys(whys)) or None


def incomplete(log: TimingLog) -> list[Finding]:
    """Return a finding for each log that is damaged, incomplete or missing."""
    present, had = users_present(log), users_had(log)
    findings = [finding(Code.LOG_DAMAGED, damage=damage) for damage in log.damages]
    findings += [
        _no_end(source, last_s)
        for source, last_s in zip(log.sources, last_sample_s(log), strict=True)
        if source.simulates and not source.ended
    ]
    if present < had:
        missing = tuple(f"{users} of client {client}" for client, users in without_logs(log).items())
        findings.append(finding(Code.LOGS_MISSING, present=present, users=had, missing=missing or None))
    return findings


def _no_end(source: Source, last_s: float | None) -> Finding:
    """Return the finding on a log without an end, with the time of its engine's last sample."""
    name = f"{source.client}.{source.engine}"
    if source.facts.given_up_why is not None:
        return finding(Code.ENGINE_GIVEN_UP, name, last_s=last_s, why=source.facts.given_up_why, users=source.users)
    return finding(Code.LOG_WITHOUT_END, name, last_s=last_s, users=source.users)
