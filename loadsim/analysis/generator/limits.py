"""Limits of the generator: which were exceeded, and the measures that may help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadsim.analysis.generator.health import EngineHealth, MachineHealth

LEAST_LAG_LIMIT_MS = 2.0
"""The least limit of the event loop's lag, even for the fastest server."""

MOST_UNOBSERVED_S = 30.0
"""A longer gap between a machine's samples makes a run invalid, a shorter one degrades it. In a longer gap the
generator could have been too busy for the whole of the shortest window that counts (`limits.window_s`)."""

BUSY_SHARE, STOLEN_SHARE, SENT_AGAIN_SHARE = 0.9, 0.05, 0.01
"""Limits of warnings: shares of busy cores, of CPU stolen by others on the hardware, and of segments sent again."""


@dataclass(frozen=True, slots=True)
class Generator:
    """The generator's figures. `lateness_p95_ms` is over the tasks of the window."""

    lateness_p95_ms: float | None = None
    engines: Sequence[EngineHealth] = ()
    machines: Sequence[MachineHealth] = ()
    event_loop: str | None = None


def lag_limit_ms(limits: Mapping[str, Any], fastest_p95_ms: float | None) -> float | None:
    """Return the limit of the event loop's lag (99th percentile) for the fastest scored task; None without a limit."""
    allowed_ms = []
    if limits["generator_lag_p99_ms"] is not None:
        allowed_ms.append(float(limits["generator_lag_p99_ms"]))
    if limits["generator_lag_share"] is not None and fastest_p95_ms is not None:
        allowed_ms.append(max(LEAST_LAG_LIMIT_MS, limits["generator_lag_share"] * fastest_p95_ms))
    return min(allowed_ms, default=None)


def exceeded(generator: Generator, limits: Mapping[str, Any], fastest_p95_ms: float | None) -> list[str]:
    """Return a line for each limit that the generator exceeded."""
    late_limit_ms, cpu_limit = limits["generator_lateness_p95_ms"], limits["generator_cpu"]
    lag_limit = lag_limit_ms(limits, fastest_p95_ms)
    reasons = []
    if _above(generator.lateness_p95_ms, late_limit_ms):
        reasons.append(
            f"the generator was late: 95th percentile {generator.lateness_p95_ms:.1f} ms, at most {late_limit_ms:g} ms"
            " allowed"
        )
    reasons += began_late(generator, limits)
    for engine in generator.engines:
        if _above(engine.lag_p99_ms, lag_limit):
            reasons.append(
                f"the event loop of engine {engine.name} was late: 99th percentile {engine.lag_p99_ms:.1f} ms, at most"
                f" {lag_limit:.3g} ms allowed"
            )
        if _above(engine.cpu_share, cpu_limit):
            reasons.append(
                f"engine {engine.name} took {engine.cpu_share:.0%} of a core, at most {cpu_limit:.0%} allowed"
            )
    return reasons


def began_late(generator: Generator, limits: Mapping[str, Any]) -> list[str]:
    """Return a line for each engine that noticed the common start too late."""
    limit_ms = limits["generator_lateness_p95_ms"]
    return [
        f"engine {engine.name} began {engine.began_late_ms:.1f} ms after the common start, at most {limit_ms:g} ms"
        " allowed"
        for engine in generator.engines
        if _above(engine.began_late_ms, limit_ms)
    ]


def unobserved(generator: Generator) -> tuple[list[str], list[str]]:
    """Return the gaps without samples of machines: those that make a run invalid, and those that degrade it."""
    too_long: list[str] = []
    shorter: list[str] = []
    for machine in generator.machines:
        if not machine.unobserved_s:
            continue
        longest = max(machine.unobserved_s, key=lambda gap: gap[1] - gap[0])
        length_s = sum(end_s - begin_s for begin_s, end_s in machine.unobserved_s)
        reason = (
            f"{machine.name} was not observed for {length_s:.0f} s, longest from {longest[0]:.0f} s to"
            f" {longest[1]:.0f} s of the run: how busy it was then is not known"
        )
        (too_long if longest[1] - longest[0] > MOST_UNOBSERVED_S else shorter).append(reason)
    return too_long, shorter


PIN_APART, OTHER_MACHINE = "--pin (as root) keeps them apart", "another machine keeps them apart"
"""The remedies in the warning about a server that shares the generator's cores."""


def _above(figure: float | None, limit: float | None) -> bool:
    return figure is not None and limit is not None and figure > limit


def advice(generator: Generator, compression: float) -> str:
    """Return the measures that may help a generator beyond its limits. A day with a `compression` may be longer."""
    longer = "a longer day (run.day_length), " if compression > 1 else ""
    others = f"more engines, {longer}fewer users, or another machine for the generator"
    first = []
    if any(machine.shares_cpus and has_more_cores(machine) for machine in generator.machines):
        first.append("run with --pin (as root), which keeps server and generator apart")
    if any(map(_is_taken, generator.machines)):
        first.append("end other programs on the generator's machine, which top shows")
    return f"{'; '.join(first)}. If that does not suffice: {others}" if first else others


def _is_taken(machine: MachineHealth) -> bool:
    """Return True if a machine was busy, and its engines took less than half of that."""
    share = machine.engines_share
    return _above(machine.cpu_share, BUSY_SHARE) and share is not None and share < (machine.cpu_share or 0.0) / 2


def has_more_cores(machine: MachineHealth) -> bool:
    """Return True if a machine has cores to keep apart, as far as it is known."""
    return (machine.cores or 2) > 1


def suspicious(generator: Generator, embedded: bool) -> list[str]:
    """Return warnings about the generator. An embedded server on the same machine is expected."""
    warnings = []
    for machine in generator.machines:
        if machine.shares_cpus and not embedded:
            warnings.append(
                f"the server runs on the same cores of {machine.name} as the generator: "
                + (f"{PIN_APART}, another machine does it better" if has_more_cores(machine) else OTHER_MACHINE)
            )
        if _above(machine.cpu_share, BUSY_SHARE):
            warnings.append(f"{machine.cpu_share:.0%} of the cores of {machine.name} were taken{_takers(machine)}")
        if _above(machine.stolen_share, STOLEN_SHARE):
            warnings.append(f"others on the same hardware took {machine.stolen_share:.0%} of the CPU of {machine.name}")
        again, sent = machine.segments_sent_again, machine.segments_sent
        if again > SENT_AGAIN_SHARE * sent:
            warnings.append(f"{machine.name} sent {again:,} of {sent:,} TCP segments again: the network lost them")
    for client, steps in _clock_steps(generator.engines).items():
        warnings += [
            f"the wall clock of {client} was set by {by_ms / 1000:+.3f} s, {at_s:.0f} s into the run"
            for at_s, by_ms in steps
        ]
    return warnings


def _takers(machine: MachineHealth) -> str:
    """Return who took the cores of a machine: a busy program that is no part of the test looks like a slow server."""
    if machine.engines_share is None:
        return ""
    others = "the server and other programs" if machine.server_here else "other programs"
    return f", {machine.engines_share:.0%} by loadsim's engines, the rest by {others}"


def _clock_steps(engines: Sequence[EngineHealth]) -> dict[str, Sequence[tuple[float, float]]]:
    """Return the steps by client: its engines see the same clock, and the one with most steps missed none."""
    steps: dict[str, Sequence[tuple[float, float]]] = {}
    for engine in engines:
        client = engine.name.rpartition(".")[0]
        steps[client] = max(steps.get(client, ()), engine.clock_steps, key=len)
    return steps
