"""Analyse the log of a run: statistics, their certainty, and the facts of the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loadsim.analysis.aggregate import gather, windowed_hits
from loadsim.analysis.companions import companions
from loadsim.analysis.completeness import (
    down_share,
    last_sample_s,
    lost_users,
    reported_at_least,
    users_had,
    users_present,
    users_without_session,
    without_logs,
)
from loadsim.analysis.delivery import altered_mail, delivery
from loadsim.analysis.generator.failures import generator_failures
from loadsim.analysis.generator.health import engines_health, machines_health
from loadsim.analysis.generator.lateness import lateness_p95_ms
from loadsim.analysis.load import load_made
from loadsim.analysis.score import DriverFigures
from loadsim.analysis.verdict import Facts
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.state_checks import Violation
from loadsim.model.terms import STRESS, Window
from loadsim.statistics.stationarity import trends
from loadsim.timinglog.facts import ABORT_ON
from loadsim.timinglog.reader import Source, TimingLog


def analyse(log: TimingLog, weights: Mapping[str, float], window_s: Window) -> tuple[Facts, Mapping[str, float | None]]:
    """Return the facts of the verdict on a window of a run, and the 95th percentile of lateness by cause."""
    drivers, unsteady = _statistics(log, weights, window_s)
    late_ms = lateness_p95_ms(log, window_s)
    users, stress = users_had(log), log.header.mode == STRESS
    load = None if stress else load_made(log, drivers, window_s)
    facts = Facts(
        drivers=drivers,
        delivery=delivery(log, window_s),
        window_s=window_s,
        users=users,
        lost_users=lost_users(log),
        users_without_session=users_without_session(log),
        sessions_lost=reported_at_least(log, "sessions_lost"),
        unannounced=reported_at_least(log, "unannounced"),
        foreign=reported_at_least(log, "foreign"),
        flags_not_kept=sorted({flag for source in log.sources for flag in source.facts.flags_not_kept or ()}),
        down_share=down_share(log, window_s, users),
        companions=companions(log),
        ended_early=any(source.facts.ended == "early" for source in log.sources),
        unended=not any(source.ended for source in log.sources if source.simulates),
        embedded=log.header.embedded,
        late_p95_ms=late_ms["generator"],
        engines=engines_health(log, window_s),
        machines=machines_health(log, window_s),
        incomplete=incomplete(log),
        stress=stress,
        unsteady=unsteady,
        aborted_why=_why(source for source in log.sources if source.facts.ended_by == ABORT_ON),
        ended_why=_why(source for source in log.sources if source.facts.ended_by != ABORT_ON),
        load=load,
        load_unknown=load is None and not stress and (log.header.load_unknown or log.header.planned_load is not None),
        own_faults=generator_failures(log),
        audit=log.audit,
        audited=log.header.audited,
        broken=[*_broken_rules(log), *altered_mail(log)],
    )
    return facts, late_ms


def _statistics(
    log: TimingLog, weights: Mapping[str, float], window_s: Window
) -> tuple[Mapping[str, DriverFigures], Sequence[Finding]]:
    """Return the figures of each driver, by name, and the trends of an unsteady window."""
    records = gather(log, window_s)
    unsteady = [
        trend
        for driver, of_driver in records.items()
        for trend in trends(windowed_hits(of_driver, weights), window_s, driver if len(records) > 1 else "")
    ]
    return {driver: DriverFigures.of(of_driver, weights, window_s) for driver, of_driver in records.items()}, unsteady


def _broken_rules(log: TimingLog) -> list[Finding]:
    """Return a finding for each rule that a server has broken, with the first violation in the first log."""
    found: dict[str, Violation] = {}
    for source in log.sources:
        for one in source.facts.state_checks.violations if source.facts.state_checks else ():
            found[one.rule] = found[one.rule].joined(one) if one.rule in found else one
    return [one.finding for one in found.values()]


def _why(sources: Iterable[Source]) -> str | None:
    found = [why for source in sources if (why := source.facts.ended_why)]
    return "; ".join(dict.fromkeys(found)) or None


def incomplete(log: TimingLog) -> list[Finding]:
    """Return a finding for each log that is damaged, has no end or is missing."""
    present, had = users_present(log), users_had(log)
    found = [finding(Code.LOG_DAMAGED, damage=damage) for damage in log.damages]
    found += [
        _no_end(source, last_s)
        for source, last_s in zip(log.sources, last_sample_s(log), strict=True)
        if source.simulates and not source.ended
    ]
    if present < had:
        missing = tuple(f"{users} of client {client}" for client, users in without_logs(log).items())
        found.append(finding(Code.LOGS_MISSING, present=present, users=had, missing=missing or None))
    return found


def _no_end(source: Source, last_s: float | None) -> Finding:
    """Return that a log has no end, with the time of the last sample of its engine."""
    name = f"{source.client}.{source.engine}"
    if source.facts.given_up_why is not None:
        return finding(Code.ENGINE_GIVEN_UP, name, last_s=last_s, why=source.facts.given_up_why, users=source.users)
    return finding(Code.LOG_WITHOUT_END, name, last_s=last_s, users=source.users)
