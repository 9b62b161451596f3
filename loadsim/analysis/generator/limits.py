"""Limits of the generator, and findings about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadsim.analysis.generator.health import EngineHealth
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.severity import Severity
from loadsim.model.figures import GeneratorFigures, MachineHealth
from loadsim.scenario.limits import GeneratorLimits

LEAST_LAG_LIMIT_MS = 2.0
"""The lowest limit on the event loop's lag, even for the fastest server."""

LOOP_SHARE = 0.01
"""Up to this share of a task's hits timed by the event loop, its lag is no part of the 95th percentile."""

BOUND_SHARE = 0.02
"""The largest share of hits whose end is only known as a bound: enough for four tenths of the slowest twentieth."""

MOST_UNOBSERVED_S = 30.0
"""A longer gap between the samples of a machine or engine makes a run invalid; a shorter one degrades it. During a
longer gap, the generator could have been too busy for the whole of the shortest valid window (`limits.window_s`)."""

BUSY_SHARE, STOLEN_SHARE, SENT_AGAIN_SHARE = 0.9, 0.05, 0.01
"""Limits beyond which to warn: the shares of busy cores, stolen CPU time, and retransmitted segments."""


def lag_limit_ms(
    limits: GeneratorLimits, fastest_p95_ms: float | None, loop_share: float | None = None
) -> float | None:
    """Return the limit on the event loop's lag (99th percentile), given the fastest scored task; None without one.

    `loop_share` is the largest share of a task's hits that the loop timed. If there are next to none, the lag is no
    part of their times, and is limited as lateness is: a loop that stands still makes users do less.
    """
    if loop_share is not None and loop_share <= LOOP_SHARE:
        return _number(limits.lateness_p95_ms)
    allowed_ms = []
    if limits.lag_p99_ms is not None:
        allowed_ms.append(float(limits.lag_p99_ms))
    if limits.lag_share is not None and fastest_p95_ms is not None:
        allowed_ms.append(max(LEAST_LAG_LIMIT_MS, limits.lag_share * fastest_p95_ms))
    return min(allowed_ms, default=None)


def worst_engine(
    engines: Sequence[EngineHealth],
    limits: GeneratorLimits,
    fastest_p95_ms: float | None,
    timing: Mapping[str, float | None],
) -> GeneratorFigures:
    """Return the worst of each figure over all engines, the limits, and how tasks were timed (`timing_of`)."""
    names = ("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "cpu_share", "rss_bytes", "open_files", "gc_max_ms")
    known = {name: [value for engine in engines if (value := getattr(engine, name)) is not None] for name in names}
    return GeneratorFigures(
        **{name: max(values, default=None) for name, values in known.items()},
        **timing,
        lag_limit_ms=lag_limit_ms(limits, fastest_p95_ms, timing["loop_share"]),
        lateness_limit_ms=limits.lateness_p95_ms,
        clock_steps=sum(len(engine.clock_steps) for engine in engines) if known["lag_p99_ms"] else None,
    )


def exceeded(
    late_p95_ms: float | None, engines: Sequence[EngineHealth], limits: GeneratorLimits, most_lag_ms: float | None
) -> list[Finding]:
    """Return a finding for each limit that the generator exceeded.

    `late_p95_ms` is its lateness in the window, `most_lag_ms` the limit on its lag (`lag_limit_ms`).
    """
    late_limit_ms, cpu_limit = _number(limits.lateness_p95_ms), _number(limits.cpu)
    findings = []
    if _above(late_p95_ms, late_limit_ms):
        findings.append(finding(Code.GENERATOR_LATE, late_p95_ms=late_p95_ms, limit_ms=late_limit_ms))
    for engine in engines:
        if _above(engine.began_late_ms, late_limit_ms):
            late_ms, limit_ms = engine.began_late_ms, late_limit_ms
            findings.append(finding(Code.ENGINE_BEGAN_LATE, engine.name, late_ms=late_ms, limit_ms=limit_ms))
        if _above(engine.lag_p99_ms, most_lag_ms):
            findings.append(
                finding(Code.EVENT_LOOP_LATE, engine.name, lag_p99_ms=engine.lag_p99_ms, limit_ms=most_lag_ms)
            )
        if _above(engine.cpu_share, cpu_limit):
            findings.append(finding(Code.ENGINE_BUSY, engine.name, cpu_share=engine.cpu_share, limit_share=cpu_limit))
    return findings


def bounded(generator: GeneratorFigures) -> list[Finding]:
    """Return a finding if too many answers were read together with later data."""
    share = generator.bound_share
    return [finding(Code.BOUNDS, bound_share=share, limit_share=BOUND_SHARE)] if _above(share, BOUND_SHARE) else []


def unobserved(observed: Sequence[MachineHealth | EngineHealth]) -> list[Finding]:
    """Return a finding for each machine or engine with gaps between samples; short gaps only degrade a run."""
    findings = []
    for machine in observed:
        if machine.unobserved_s:
            begin_s, end_s = max(machine.unobserved_s, key=lambda gap: gap[1] - gap[0])
            length_s = sum(end_s - begin_s for begin_s, end_s in machine.unobserved_s)
            severity = None if end_s - begin_s > MOST_UNOBSERVED_S else Severity.DEGRADED
            values = {"length_s": round(length_s), "begin_s": round(begin_s), "end_s": round(end_s)}
            findings.append(finding(Code.NOT_OBSERVED, machine.name, severity, **values))
    return findings


def _number(limit: float | None) -> float | None:
    return None if limit is None else float(limit)


def _above(figure: float | None, limit: float | None) -> bool:
    return figure is not None and limit is not None and figure > limit


def suspicious(machines: Sequence[MachineHealth], engines: Sequence[EngineHealth], embedded: bool) -> list[Finding]:
    """Return warnings about the generator. An embedded server shares the machine and its cores by design."""
    warnings = []
    for machine in machines:
        name, busy = machine.name, machine.cpu_share
        if machine.shares_cpus and not embedded:
            warnings.append(finding(Code.CORES_SHARED, name))
        if _above(busy, BUSY_SHARE):
            own_share = machine.engines_share
            by_others = own_share is not None and busy is not None and own_share < busy / 2
            code = Code.CORES_BUSY_BY_OTHERS if by_others else Code.CORES_BUSY
            warnings.append(finding(code, name, busy_share=busy, engines_share=own_share))
        if _above(machine.stolen_share, STOLEN_SHARE):
            warnings.append(finding(Code.CPU_STOLEN, name, stolen_share=machine.stolen_share))
        again, sent = machine.segments_sent_again, machine.segments_sent
        if again > SENT_AGAIN_SHARE * sent:
            warnings.append(finding(Code.SEGMENTS_LOST, name, again=again, sent=sent))
    for client, steps in _clock_steps(engines).items():
        warnings += [finding(Code.CLOCK_SET, client, step_ms=by_ms, at_s=round(at_s)) for at_s, by_ms in steps]
    return warnings


def _clock_steps(engines: Sequence[EngineHealth]) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the steps by client. A client's engines see the same clock; the engine with the most steps missed none."""
    steps: dict[str, Sequence[tuple[float, float]]] = {}
    for engine in engines:
        client = engine.name.rpartition(".")[0]
        steps[client] = max(steps.get(client, ()), engine.clock_steps, key=len)
    return steps
