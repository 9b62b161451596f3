"""The answer of a run: the figures of `score.json`, LsLog's table as plain text, and the exit status, from its logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadsim.errors import LogError
from loadsim.report.answer_text import answer_text
from loadsim.results.delivery import Delivery, delivery
from loadsim.results.generator import EngineHealth, engines_health, late_seconds, machines_health
from loadsim.results.generator_limits import Generator, lag_limit_ms
from loadsim.results.merge import STRESS, check_window, find_logs, merge, mode_of, window_of
from loadsim.results.score import (
    DEFAULT_WEIGHTS,
    CommandStatistics,
    ProtocolStatistics,
    TaskStatistics,
    command_statistics,
    lateness_p95_ms,
    lost_users,
    score_protocols,
)
from loadsim.results.throughput import throughput
from loadsim.results.timinglog import TimingLog, read_each
from loadsim.results.verdict import DEFAULT_LIMITS, Facts, Totals, Verdict, judge

SESSIONS = ("sessions_lost", "sessions_restored")
"""Facts of an engine: how many sessions broke over the whole run, and how many log-ons after that succeeded."""

FULL_DAY_S = 28_800.0
"""The working day that the profiles' rates are given for: 8 hours."""


@dataclass(frozen=True, slots=True)
class Summary:
    """`score` is what score.json holds, `text` what answer.txt holds, `exit_status` that of the verdict (0, 1 or 3)."""

    score: dict[str, Any]
    text: str
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
) -> Summary:
    """Merge the logs of a run and say what they come to.

    `logs` are logs, log files, patterns or run directories. Weights and window are those of the log's header unless
    given; `commands` adds the single protocol commands; `rebase` and `force` are those of `merge`.
    Raises `LogError` for what cannot be read or merged, an impossible window, or weights for a run without a score.
    """
    read = [log for log in logs if isinstance(log, TimingLog)]
    paths = [log for log in logs if not isinstance(log, TimingLog)]
    if paths:
        read += read_each(find_logs(paths))
    return _summarise(merge(read, rebase, force), weights, begin_s, end_s, commands)


def _summarise(
    log: TimingLog, weights: Mapping[str, float] | None, begin_s: float | None, end_s: float | None, commands: bool
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
    protocols = score_protocols(log, weights, window_s)
    delivered = delivery(log, window_s)
    late_ms = lateness_p95_ms(log, window_s)
    users = _users(log)
    limits = log.header.get("limits") or {}
    facts = Facts(
        protocols=protocols,
        delivery=delivered,
        window_s=window_s,
        users=users,
        lost_users=lost_users(log),
        ended_early=any(source.facts.get("ended") == "early" for source in log.sources),
        embedded=bool(log.header.get("embedded")),
        generator=Generator(
            lateness_p95_ms=late_ms["generator"],
            late=late_seconds(log, window_s),
            engines=engines_health(log, window_s),
            machines=machines_health(log, window_s),
            event_loop=log.header.get("event_loop"),
        ),
        incomplete=_incomplete(log),
        stress=stress,
    )
    verdict = judge(facts, log.header.get("criteria") or {}, limits)
    score = _score(log, protocols, weights, window_s, verdict, users)
    score["delivery"] = _delivery(delivered)
    score["lateness_p95_ms"] = dict.fromkeys(late_ms) if stress else late_ms
    score["throughput"] = asdict(throughput(log, window_s, protocols, delivered)) if stress else None
    lag_ms = lag_limit_ms({**DEFAULT_LIMITS, **limits}, facts.fastest_p95_ms)
    score["generator"] = _generator(facts.generator.engines, lag_ms)
    score["machines"] = [asdict(machine) for machine in facts.generator.machines]
    if commands:
        score["commands"] = [_command(command) for command in command_statistics(log, window_s)]
    return Summary(score, answer_text(score), verdict.exit_status)


def _score(
    log: TimingLog,
    protocols: Sequence[ProtocolStatistics],
    weights: Mapping[str, float],
    window_s: tuple[float, float],
    verdict: Verdict,
    users: int,
) -> dict[str, Any]:
    by_protocol = {protocol.protocol: _protocol(protocol, weights) for protocol in protocols}
    only = next(iter(by_protocol.values())) if len(by_protocol) == 1 else {}
    totals = Totals.of(protocols)
    day_s = float(log.header.get("day_s") or FULL_DAY_S)
    compression = float(log.header.get("compression") or FULL_DAY_S / day_s)
    return {
        "run": ", ".join(sorted({source.run for source in log.sources if source.run})) or None,
        "name": log.header.get("name"),
        "mode": mode_of(log),
        "score_ms": only.get("score_ms"),
        "users": users,
        "clients": len({source.client for source in log.sources}),
        "engines": sum(source.simulates for source in log.sources),
        "window_s": list(window_s),
        "verdict": {"validity": verdict.validity, "passed": verdict.passed, "reasons": list(verdict.reasons)},
        "warnings": list(verdict.warnings),
        "advice": verdict.advice,
        "plan_digest": log.header.get("plan_digest"),
        "server": log.header.get("server"),
        "embedded": bool(log.header.get("embedded")),
        "submission": log.header.get("submission"),
        "day_s": day_s,
        "compression": compression,
        "load_equivalent_users": None if mode_of(log) == STRESS else round(users * compression),
        "tasks_per_s": totals.done / (window_s[1] - window_s[0]),
        **asdict(totals),
        **{fact: sum(int(source.facts.get(fact, 0)) for source in log.sources) for fact in SESSIONS},
        "covers": only.get("covers"),
        "tasks": only.get("tasks", []),
        "by_protocol": by_protocol,
    }


def _users(log: TimingLog) -> int:
    """Of all runs together; of one run with engines whose logs are missing, those that its scenario has."""
    return max(int(log.header.get("users") or 0), sum(source.users for source in log.sources))


def _incomplete(log: TimingLog) -> list[str]:
    """What is wrong with which log, and which logs are missing."""
    present = sum(source.users for source in log.sources)
    missing = [f"the logs are of {present} of {_users(log)} users"] if present < _users(log) else []
    return [
        *log.damages,
        *(
            f"the log of {source.client}.{source.engine} has no end: its {source.users} users count as lost"
            for source in log.sources
            if source.simulates and not source.ended
        ),
        *missing,
    ]


def _protocol(protocol: ProtocolStatistics, weights: Mapping[str, float]) -> dict[str, Any]:
    return {
        "score_ms": protocol.score_ms,
        "users": protocol.users,
        "covers": _covers(protocol, [task for task, weight in weights.items() if weight > 0]),
        "tasks": [_task(task) for task in protocol.tasks],
    }


def _covers(protocol: ProtocolStatistics, weighted: Iterable[str]) -> dict[str, list[str]]:
    """What the score is made of, and which tasks with a weight are not in it: none succeeded, or none was due."""
    planned = {task.task for task in protocol.tasks if task.planned}
    return {
        "scored": list(protocol.scored),
        "without_hits": [task for task in weighted if task in planned and task not in protocol.scored],
        "not_planned": [task for task in weighted if task not in planned],
    }


def _task(task: TaskStatistics) -> dict[str, Any]:
    return {
        "task": task.task,
        "weight": task.weight,
        "hits": task.hits,
        "failed": task.failed,
        **asdict(task.service),
        "response_p95_ms": task.response_p95_ms,
        **{outcome: count for outcome, count in task.counts.items() if outcome != "ok"},
    }


def _delivery(delivered: Delivery) -> dict[str, Any]:
    return {
        "accepted": delivered.accepted,
        "delivered": delivered.delivered,
        "undelivered": delivered.undelivered,
        "unwatched": delivered.unwatched,
        "undelivered_at_end": delivered.undelivered_at_end,
        **asdict(delivered.times),
    }


def _generator(engines: Sequence[EngineHealth], lag_limit_ms: float | None) -> dict[str, Any]:
    """The worst that was seen of any engine, figure by figure."""

    def most(figures: Iterable[float | None]) -> float | None:
        return max((figure for figure in figures if figure is not None), default=None)

    return {
        "lag_p50_ms": most(engine.lag_p50_ms for engine in engines),
        "lag_p99_ms": most(engine.lag_p99_ms for engine in engines),
        "lag_max_ms": most(engine.lag_max_ms for engine in engines),
        "lag_limit_ms": lag_limit_ms,
        "cpu_share": most(engine.cpu_share for engine in engines),
        "rss_bytes": most(engine.rss_bytes for engine in engines),
        "open_files": most(engine.open_files for engine in engines),
        "gc_max_ms": most(engine.gc_max_ms for engine in engines),
        "clock_steps": sum(len(engine.clock_steps) for engine in engines),
    }


def _command(command: CommandStatistics) -> dict[str, Any]:
    return {"command": command.command, "hits": command.hits, "failed": command.failed, **asdict(command.times)}
