"""Compute the summary of a run from its logs: the figures of `score.json`, the verdict and the exit status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from loadsim.analysis.analyse import Analysis, analyse
from loadsim.analysis.breakdown_tables import breakdown
from loadsim.analysis.completeness import told
from loadsim.analysis.criteria import Result, hold, missed_texts, read_criteria
from loadsim.analysis.criteria_file import criteria_of
from loadsim.analysis.delivery import Delivery
from loadsim.analysis.generator import EngineHealth
from loadsim.analysis.generator_limits import lag_limit_ms
from loadsim.analysis.intervals import Interval, Intervals
from loadsim.analysis.json_values import finite, response_figures, table_row, times_figures
from loadsim.analysis.load import Load, TaskLoad
from loadsim.analysis.per_client import client_figures
from loadsim.analysis.per_run import mean, per_run
from loadsim.analysis.repeats import Repeats
from loadsim.analysis.score import (
    DEFAULT_WEIGHTS,
    MERGED,
    SCORED_PERCENT,
    CommandStatistics,
    ProtocolStatistics,
    TaskStatistics,
    command_statistics,
)
from loadsim.analysis.throughput import throughput
from loadsim.analysis.verdict import Facts, Totals, Verdict, judge, limits_of
from loadsim.errors import LogError
from loadsim.model.partition import Slice
from loadsim.timinglog.merge import STRESS, check_window, find_logs, merge, mode_of, of_run, window_of
from loadsim.timinglog.reader import TimingLog, read_each
from loadsim.timinglog.records import GENERATOR
from loadsim.timinglog.slices import part_of

SESSIONS = ("sessions_lost", "sessions_restored")
"""Facts of an engine: how many sessions broke over the whole run, and how many log-ons after that succeeded."""

FULL_DAY_S = 28_800.0
"""The day of the users in which load-equivalents are told: 8 hours, that of the canonical profiles."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything computed from the logs of a run. `score` is what score.json holds.

    `exit_status` is that of the verdict: 0, 1 or 3.
    """

    score: dict[str, Any]
    exit_status: int


def summarise(
    logs: Sequence[Path | str | TimingLog],
    *,
    weights: Mapping[str, float] | None = None,
    begin_s: float | None = None,
    end_s: float | None = None,
    commands: bool = False,
    rebase: bool = False,
    force: bool = False,
    percent: int | Fraction = SCORED_PERCENT,
    method: str = MERGED,
    by: str | None = None,
    criteria: Path | None = None,
) -> Summary:
    """Merge the logs of a run and say what they come to.

    `logs` are logs, log files, patterns or run directories. Weights and window are those of the log's header unless
    given; `commands` adds the single protocol commands; `rebase` and `force` are those of `merge`. The score is made of
    the percentile `percent`, percentiles by `method` (see `score.METHODS`); `by` adds a table for each value of one
    of `breakdown.BY`; `criteria` is a scenario whose criteria the run is held against instead of its own.
    Raises `LogError` for what cannot be read or merged, an impossible window, or weights for a run without a score;
    `ConfigError` for criteria of what the logs do not have.
    """
    read = [log for log in logs if isinstance(log, TimingLog)]
    paths = [log for log in logs if not isinstance(log, TimingLog)]
    if paths:
        read += read_each(find_logs(paths))
    how = _How(percent, method, commands, by, criteria)
    log = merge(read, rebase, force)
    return _summarise(log, weights, begin_s, end_s, how, part=None if force else part_of(log))


@dataclass(frozen=True, slots=True)
class _How:
    """How the answer is made, and what else belongs to it."""

    percent: int | Fraction
    method: str
    commands: bool
    by: str | None
    criteria: Path | None


def _summarise(
    log: TimingLog,
    weights: Mapping[str, float] | None,
    begin_s: float | None,
    end_s: float | None,
    how: _How,
    part: Slice | None,
) -> Summary:
    window = window_of(log)
    window_s = (window[0] if begin_s is None else begin_s, window[1] if end_s is None else end_s)
    check_window(log, window_s)
    stress = mode_of(log) == STRESS
    if stress:
        if weights is not None:
            raise LogError("weights: expected a log of a canonical run, found a stress run's: it has no score")
        weights = {}
    weights = weights if weights is not None else log.header.get("weights") or DEFAULT_WEIGHTS
    limits = log.header.get("limits") or {}

    # Each of several runs by itself: among many, one that is worth nothing would not be noticed.
    runs = sorted({source.run for source in log.sources})
    alone = {run: _judged(of_run(log, run), weights, window_s, how.criteria) for run in (runs if len(runs) > 1 else ())}

    # All together, by the standard percentiles; what is shown may be made of others.
    own = [one.figures for one in alone.values()]
    judged = _judged(log, weights, window_s, how.criteria, part, own)
    verdict = judge(_with_runs(judged.facts, alone, limits), judged.results, limits)
    figures = judged.figures
    if (how.percent, how.method) != (SCORED_PERCENT, MERGED):
        figures = per_run(_figures(log, weights, window_s, how.percent, how.method, part)[1], own)
    verdict = replace(verdict, warnings=(*(log.header.get("in_the_clear") or ()), *verdict.warnings))
    score = {**_verdict(verdict, judged.results), **figures}
    if how.commands:
        score["commands"] = mean([_command(command) for command in command_statistics(log, window_s)], len(runs))
    if how.by is not None:
        score["by"] = mean(breakdown(log, weights, window_s, how.by, how.percent, how.method), len(runs))
    return Summary(score, verdict.exit_status)


@dataclass(frozen=True, slots=True)
class _Judged:
    """The facts and figures of a log by the standard percentiles, and what came of its criteria."""

    facts: Facts
    figures: dict[str, Any]
    results: Sequence[Result]


def _judged(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: tuple[float, float],
    criteria: Path | None,
    part: Slice | None = None,
    own: Sequence[Mapping[str, Any]] = (),
) -> _Judged:
    """`own` has the figures of each run, if they are several. Of some users, a slice, criteria say nothing."""
    facts, figures = _figures(log, weights, window_s, SCORED_PERCENT, MERGED, part)
    figures = per_run(figures, own)
    wanted = criteria_of(criteria, figures) if criteria else read_criteria(log.header)
    return _Judged(facts, figures, () if part else hold(wanted, figures))


def _with_runs(facts: Facts, alone: Mapping[str, _Judged], limits: Mapping[str, Any]) -> Facts:
    """The facts of several runs, with those runs that are invalid by themselves or miss criteria, and why."""
    invalid, missed = [], []
    for run, judged in alone.items():
        verdict = judge(judged.facts, (), limits)
        if verdict.validity == "invalid":
            invalid.append(f"run {run} by itself is invalid: {'; '.join(verdict.reasons)}")
        if texts := missed_texts(judged.results):
            missed.append(f"run {run} by itself misses criteria: {'; '.join(texts)}")
    return replace(facts, invalid_runs=invalid, missed_runs=missed)


def _figures(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: tuple[float, float],
    percent: int | Fraction,
    method: str,
    part: Slice | None,
) -> tuple[Facts, dict[str, Any]]:
    """Figures that verdicts are made of, and what `score.json` has beside the verdict: of all runs together."""
    measured = analyse(log, weights, window_s, percent, method, part)
    facts = measured.facts
    figures = _measured_figures(log, measured, weights, window_s)
    figures["percentile"] = int(percent) if percent == int(percent) else float(percent)
    figures["slice"] = facts.part
    figures["method"] = method
    figures["load"] = _load(facts.load)
    figures["delivery"] = _delivery(facts.delivery)
    figures["lateness_p95_ms"] = dict.fromkeys(measured.late_ms) if facts.stress else measured.late_ms
    figures["throughput"] = asdict(throughput(log, window_s, facts.protocols, facts.delivery)) if facts.stress else None
    held, fastest_ms = limits_of(log.header.get("limits") or {}, facts.stress), facts.fastest_p95_ms
    figures["generator"] = _generator(facts.generator.engines, lag_limit_ms(held, fastest_ms))
    figures["machines"] = [asdict(machine) for machine in facts.generator.machines]
    figures["per_client"] = [
        asdict(one)
        for one in client_figures(
            log, window_s, facts.generator.engines, held, fastest_ms, generator_counts=facts.generator_counts
        )
    ]
    return facts, figures


def _verdict(verdict: Verdict, results: Sequence[Result]) -> dict[str, Any]:
    return {
        "verdict": {
            "validity": verdict.validity,
            "passed": verdict.passed,
            "reasons": list(verdict.reasons),
            "criteria": [
                {
                    "name": result.name,
                    **{limit: result.limits.get(limit) for limit in ("min", "max", "below")},
                    "figure": finite(result.figure),
                    "passed": result.passed,
                    "found": result.found,
                    "wanted": result.wanted,
                    "each": result.each,
                }
                for result in results
            ],
        },
        "warnings": list(verdict.warnings),
        "advice": verdict.advice,
    }


def _measured_figures(
    log: TimingLog, measured: Analysis, weights: Mapping[str, float], window_s: tuple[float, float]
) -> dict[str, Any]:
    length_s = window_s[1] - window_s[0]
    facts, certainty = measured.facts, measured.certainty
    protocols, users, stress = facts.protocols, facts.users, facts.stress
    by_protocol = {
        protocol.protocol: _protocol(
            protocol,
            weights,
            length_s,
            certainty.intervals[protocol.protocol],
            certainty.repeats.get(protocol.protocol),
        )
        for protocol in protocols
    }
    only = next(iter(by_protocol.values())) if len(by_protocol) == 1 else {}
    totals = Totals.of(protocols)
    day_s = float(log.header.get("day_s") or FULL_DAY_S)
    load = measured.facts.load
    made = 1.0 if load is None or load.share is None else min(1.0, load.share)
    compression = float(log.header.get("compression") or FULL_DAY_S / day_s)
    return {
        "run": ", ".join(sorted({source.run for source in log.sources if source.run})) or None,
        "runs": len({source.run for source in log.sources}),
        "name": log.header.get("name"),
        "mode": mode_of(log),
        "start_at": log.header.get("start_at"),
        "score_ms": only.get("score_ms"),
        "response_score_ms": only.get("response_score_ms"),
        "score_interval_ms": only.get("score_interval_ms"),
        "no_score_interval": only.get("no_score_interval"),
        "provisional": any(module["provisional"] for module in by_protocol.values()),
        "users": users,
        "clients": len({source.client for source in log.sources}),
        "engines": sum(source.simulates for source in log.sources),
        "window_s": list(window_s),
        "plan_digest": log.header.get("plan_digest"),
        "server": log.header.get("server"),
        "embedded": bool(log.header.get("embedded")),
        "submission": log.header.get("submission"),
        "profile_day_s": float(log.header.get("profile_day_s") or round(day_s * compression, 6)),
        "day_s": day_s,
        "night_s": float(log.header.get("night_s") or 0),
        "compression": compression,
        "load_equivalent_users": None if stress else round(users * FULL_DAY_S / day_s * made),
        "offered_per_s": None if stress else totals.planned / length_s,
        "achieved_per_s": totals.hits / length_s,
        "tasks_per_s": totals.hits / length_s,
        **asdict(totals),
        "attempted_share": None if stress else totals.attempted_share,
        "done_share": None if stress else totals.done_share,
        "failed_share": totals.failed_share,
        **{fact: told(log, fact) for fact in SESSIONS},
        "lost_users": facts.lost_users,
        "users_without_session": facts.users_without_session,
        "down_share": facts.down_share,
        "log_ons": facts.log_ons.planned,
        "logon_failed_share": facts.log_ons.failed_share,
        "inbox": only.get("inbox"),
        "covers": only.get("covers"),
        "tasks": only.get("tasks", []),
        "by_protocol": by_protocol,
    }


def _protocol(
    protocol: ProtocolStatistics,
    weights: Mapping[str, float],
    length_s: float,
    certain: Intervals,
    repeated: Repeats | None,
) -> dict[str, Any]:
    return {
        "score_ms": protocol.score_ms,
        "response_score_ms": finite(protocol.response_score_ms),
        "score_interval_ms": _interval(certain.score),
        "no_score_interval": certain.score.why_not,
        "spell_s": certain.spell_s,
        "provisional": bool(protocol.few_hits),
        "inbox": _inbox(protocol.inbox),
        "repeats": asdict(repeated) if repeated else None,
        "users": protocol.users,
        "covers": _covers(protocol, [task for task, weight in weights.items() if weight > 0]),
        "tasks": [_task(task, length_s, certain.tasks.get(task.task, _OUTSIDE)) for task in protocol.tasks],
    }


def _inbox(inbox: TaskStatistics | None) -> dict[str, Any] | None:
    """Processings of an Inbox that were due in the window, with the times from when they were due until they ended."""
    if inbox is None:
        return None
    counts = {"processings": inbox.planned, "done": inbox.hits, "unfinished": inbox.planned - inbox.hits}
    return {**counts, **times_figures(inbox.response)}


_OUTSIDE = Interval(why_not="no hits in the window")


def _interval(interval: Interval) -> list[float] | None:
    return None if interval.low_ms is None or interval.high_ms is None else [interval.low_ms, interval.high_ms]


def _covers(protocol: ProtocolStatistics, weighted: Iterable[str]) -> dict[str, list[str]]:
    """What the score is made of, and which tasks with a weight are not in it: none succeeded, or none was due."""
    planned = {task.task for task in protocol.tasks if task.planned}
    return {
        "scored": list(protocol.scored),
        "without_hits": [task for task in weighted if task in planned and task not in protocol.scored],
        "not_planned": [task for task in weighted if task not in planned],
        "few_hits": list(protocol.few_hits),
    }


def _task(task: TaskStatistics, length_s: float, certain: Interval) -> dict[str, Any]:
    return {
        **table_row(task),
        "interval_ms": _interval(certain),
        "no_interval": certain.why_not,
        **response_figures(task.response),
        "planned": task.planned,
        "attempted": task.attempted,
        "attempted_share": task.attempted_share,
        "done": task.done,
        "done_share": task.done_share,
        "failed_share": task.failed_share,
        "done_per_s": task.hits / length_s if task.windowed else None,
        **{outcome: count for outcome, count in task.counts.items() if outcome not in ("ok", GENERATOR)},
        "generator_failed": task.counts[GENERATOR],
        "failures": [
            {"outcome": outcome, "kind": kind, "times": times} for (outcome, kind), times in task.failures.items()
        ],
    }


def _load(load: Load | None) -> dict[str, Any] | None:
    if load is None:
        return None

    def counts(of: Load | TaskLoad) -> dict[str, int]:
        return {"planned": of.planned, "made": of.made}

    return {**counts(load), "share": load.share, "tasks": {name: counts(task) for name, task in load.tasks.items()}}


def _delivery(delivered: Delivery) -> dict[str, Any]:
    return {
        "accepted": delivered.accepted,
        "delivered": delivered.delivered,
        "timed": delivered.timed,
        "found": delivered.found,
        "undelivered": delivered.undelivered,
        "unwatched": delivered.unwatched,
        "early": delivered.early,
        "earliest_ms": delivered.earliest_ms,
        "clock_error_ms": delivered.clock_error_ms,
        "undelivered_at_end": delivered.undelivered_at_end,
        "duplicates": delivered.duplicates,
        "under_way_max": delivered.under_way_max,
        "under_way_at_end": delivered.under_way_at_end,
        **times_figures(delivered.times),
    }


def _generator(engines: Sequence[EngineHealth], lag_limit_ms: float | None) -> dict[str, Any]:
    """The worst that was seen of any engine, figure by figure."""

    def most(figures: Iterable[float | None]) -> float | None:
        return max((figure for figure in figures if figure is not None), default=None)

    lag_p99_ms = most(engine.lag_p99_ms for engine in engines)
    return {
        "lag_p50_ms": most(engine.lag_p50_ms for engine in engines),
        "lag_p99_ms": lag_p99_ms,
        "lag_max_ms": most(engine.lag_max_ms for engine in engines),
        "lag_limit_ms": lag_limit_ms,
        "cpu_share": most(engine.cpu_share for engine in engines),
        "rss_bytes": most(engine.rss_bytes for engine in engines),
        "open_files": most(engine.open_files for engine in engines),
        "gc_max_ms": most(engine.gc_max_ms for engine in engines),
        "clock_steps": sum(len(engine.clock_steps) for engine in engines) if lag_p99_ms is not None else None,
    }


def _command(command: CommandStatistics) -> dict[str, Any]:
    return {"command": command.command, "hits": command.hits, "failed": command.failed, **asdict(command.times)}
