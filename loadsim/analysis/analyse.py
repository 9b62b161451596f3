"""Analyse the logs of one or several runs: statistics, their certainty, and the facts of the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from loadsim.analysis.aggregate import gather, windowed_hits
from loadsim.analysis.companions import companions
from loadsim.analysis.completeness import (
    down_share,
    last_sample_s,
    lost_users,
    reported_at_least,
    runs_outside,
    users_had,
    users_present,
    users_without_session,
    without_logs,
)
from loadsim.analysis.delivery import delivery
from loadsim.analysis.generator import engines_health, machines_health
from loadsim.analysis.generator_failures import generator_failures
from loadsim.analysis.generator_limits import Generator
from loadsim.analysis.intervals import Interval, Intervals, intervals
from loadsim.analysis.lateness import late_seconds, lateness_p95_ms
from loadsim.analysis.load import load_made
from loadsim.analysis.repeats import Repeats, repeats
from loadsim.analysis.score import MERGED, ProtocolStatistics, score_protocols, statistics_of
from loadsim.analysis.stationarity import trend_words, trends
from loadsim.analysis.verdict import Facts
from loadsim.model.partition import Slice
from loadsim.model.terms import STRESS, Window
from loadsim.timinglog.compatibility import MIXED
from loadsim.timinglog.early_end import ENDED_WHY, aborted
from loadsim.timinglog.merge import PLANNED_LOAD, mode_of
from loadsim.timinglog.reader import Source, TimingLog


@dataclass(frozen=True, slots=True)
class Analysis:
    """The facts of a verdict, the certainty of figures by driver, and the 95th percentile of lateness by cause."""

    facts: Facts
    intervals: Mapping[str, Intervals]
    repeats: Mapping[str, Repeats]
    late_ms: Mapping[str, float | None]


def analyse(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: Window,
    percent: int | Fraction,
    method: str,
    part: Slice | None = None,
) -> Analysis:
    """Analyse a window of one or several runs together.

    The score is made of the percentile `percent` by `method` (see `score.METHODS`). `part` is the slice of a run that
    the log has, None for whole runs.
    """
    protocols, certain, spreads, unsteady = _statistics(log, weights, window_s, percent, method)
    late_ms = lateness_p95_ms(log, window_s)
    users = sum(users_had(log, part).values())
    unplanned = part is not None or mode_of(log) == STRESS
    load = None if unplanned else load_made(log, protocols, window_s)
    facts = Facts(
        protocols=protocols,
        delivery=delivery(log, window_s),
        window_s=window_s,
        users=users,
        lost_users=lost_users(log, part),
        users_without_session=users_without_session(log),
        sessions_lost=reported_at_least(log, "sessions_lost"),
        unannounced=reported_at_least(log, "unannounced"),
        down_share=down_share(log, window_s, users),
        companions=companions(log),
        ended_early=any(source.facts.get("ended") == "early" for source in log.sources),
        unended=not any(source.ended for source in log.sources if source.simulates),
        embedded=bool(log.header.get("embedded")),
        generator=Generator(
            lateness_p95_ms=late_ms["generator"],
            late=late_seconds(log, window_s),
            engines=engines_health(log, window_s),
            machines=machines_health(log, window_s),
            event_loop=log.header.get("event_loop"),
        ),
        incomplete=_incomplete(log, window_s, part),
        stress=mode_of(log) == STRESS,
        unsteady=unsteady,
        aborted_why=_why(source for source in log.sources if aborted(source.facts)),
        ended_why=_why(source for source in log.sources if not aborted(source.facts)),
        part=str(part) if part else None,
        load=load,
        load_unknown=load is None and not unplanned and _should_know_load(log),
        mixed=log.header.get(MIXED, ()),
        own_faults=generator_failures(log),
        late_busy_p95_ms=late_ms["busy"],
        compression=float(log.header.get("compression") or 1),
    )
    return Analysis(facts, certain, spreads, late_ms)


def _statistics(
    log: TimingLog, weights: Mapping[str, float], window_s: Window, percent: int | Fraction, method: str
) -> tuple[tuple[ProtocolStatistics, ...], Mapping[str, Intervals], Mapping[str, Repeats], Sequence[str]]:
    """Return the statistics, their intervals, their spread between runs, and the trends of an unsteady window.

    Only the merged records of one run have intervals and trends: the spread between several runs says more.
    """
    obstacle = None
    if len(log.runs) > 1:
        obstacle = "the logs are of several runs: see the spread between them"
    elif method != MERGED:
        obstacle = "percentiles are means of those of several clients"
    if obstacle:
        protocols = score_protocols(log, weights, window_s, percent, method)
        none = Interval(why_not=obstacle)
        each = {one.protocol: Intervals(none, {task.task: none for task in one.tasks}) for one in protocols}
        return protocols, each, repeats(log, weights, window_s, percent, method), ()
    modules = gather(log, window_s).get((), {})
    hits = {name: windowed_hits(module, weights) for name, module in modules.items()}
    protocols = statistics_of([modules], weights, percent)
    certain = {one.protocol: _windowed(one, intervals(hits[one.protocol], window_s, percent)) for one in protocols}
    unsteady = [
        f"{module}: {words}" if len(hits) > 1 else words
        for module, of_module in hits.items()
        for words in trend_words(trends(of_module, window_s))
    ]
    return protocols, certain, {}, unsteady


def _windowed(protocol: ProtocolStatistics, found: Intervals) -> Intervals:
    """Return the intervals, without that of a score with tasks outside the window."""
    outside = [task.task for task in protocol.tasks if task.task in protocol.scored and not task.windowed]
    if not outside:
        return found
    return replace(found, score=Interval(why_not=f"{', '.join(outside)} is scored, and lies outside the window"))


def _should_know_load(log: TimingLog) -> bool:
    """Return True if the plan failed, or if the window of a single run is too short to compare with its plan.

    Older logs have no planned load, and runs that do not share a window have none together.
    """
    if PLANNED_LOAD not in log.header:
        return False
    return log.header[PLANNED_LOAD] is None or len(log.runs) == 1


def _why(sources: Iterable[Source]) -> str | None:
    """Return the reasons of an early end, each with the slice if the run has several; None without any."""
    found = [
        f"slice {source.slice}: {why}" if source.slice else str(why)
        for source in sources
        if (why := source.facts.get(ENDED_WHY))
    ]
    return "; ".join(dict.fromkeys(found)) or None


def _incomplete(log: TimingLog, window_s: Window, part: Slice | None) -> list[str]:
    """Return the defects of logs, the missing logs, and the runs without tasks in the window."""
    present, had = users_present(log), users_had(log, part)
    several = len(had) > 1
    return [
        *log.damages,
        *(
            _no_end(source, _of(source.run, several), last_s)
            for source, last_s in zip(log.sources, last_sample_s(log), strict=True)
            if source.simulates and not source.ended
        ),
        *(
            f"the logs{_of(run, several)} are of {present[run]:,} of {users:,} users{_of_whom(without_logs(log, run))}"
            for run, users in had.items()
            if present[run] < users
        ),
        *(
            f"no task of run {run} was due in the window: its own start is another one (see --rebase)"
            for run in (runs_outside(log, window_s) if several else ())
        ),
    ]


def _no_end(source: Source, of_run: str, last_s: float | None) -> str:
    """Return why a log has no end, with the time of the last sample of its engine."""
    after = "" if last_s is None else f" after {last_s:.1f} s"
    name, lost = f"{source.client}.{source.engine}{of_run}", f"its {source.users} users count as lost"
    if source.given_up_why is not None:
        return f"{name} was given up{after}, as {source.given_up_why}: {lost}"
    return f"the log of {name} has no end: {lost}" + (after and f", with nothing known of them{after}")


def _of_whom(missing: Mapping[str, int]) -> str:
    each = ", ".join(f"{users} of client {client}" for client, users in missing.items())
    return each and f"; there are none of {each}"


def _of(run: str, several: bool) -> str:
    return f" of run {run}" if several else ""
