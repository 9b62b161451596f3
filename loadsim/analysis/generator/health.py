"""The generator's health in a window: its engines and their machines.

Engines are never averaged: the times of a late engine are wrong even if all others kept up. Percentiles of lag are
exact, over all ticks in the window.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes.statistics import PROBE
from loadsim.analysis.score import PERCENTS
from loadsim.model.figures import MachineHealth
from loadsim.model.terms import Window
from loadsim.statistics.nearest_rank import percentile
from loadsim.timinglog.facts import LogFacts
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.reader import Source, TimingLog

TICK_S = 0.01
"""The interval between ticks; each tick measures the lag."""

UNOBSERVED_S = 5.0
"""A longer time between samples is a gap. Each machine takes one a second; a suspended parent process takes none."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """One engine over the window; None stands for figures that were not measured.

    Lags are those of its event loop. `cpu_share` is the mean share of a core. Memory, open files and the garbage
    collector's pause are maxima. `clock_steps` has the instant (s) and size (ms) of each step of the wall clock.
    `began_late_ms` is its delay after the common start, which may be outside the window. `lags_ms` has percentiles of
    the lag by the names in `PERCENTS`; `unobserved_s` has the beginning and end of each gap above 5 s between samples.
    """

    name: str
    lag_p50_ms: float | None = None
    lag_p99_ms: float | None = None
    lag_max_ms: float | None = None
    cpu_share: float | None = None
    rss_bytes: int | None = None
    open_files: int | None = None
    gc_max_ms: float | None = None
    clock_steps: Sequence[tuple[float, float]] = ()
    began_late_ms: float | None = None
    lags_ms: Mapping[str, float] = field(default_factory=dict)
    unobserved_s: tuple[tuple[float, float], ...] = ()


def generator_health(log: TimingLog, window_s: Window) -> tuple[tuple[EngineHealth, ...], tuple[MachineHealth, ...]]:
    """Return the health of every engine, and of every machine with a log or with gaps in its samples, by name."""
    samples = _samples(log, window_s)
    engines = tuple(
        _engine_health(f"{source.client}.{source.engine}", source, samples[source.maker], window_s)
        for source in log.sources
        if source.simulates
    )
    logs = {source.client: source for source in log.sources if source.observes}
    by_client: dict[str, list[Source]] = {client: [] for client in logs}
    for source in log.sources:
        if source.simulates:
            by_client.setdefault(source.client, []).append(source)
    machines = []
    for client, own in sorted(by_client.items()):
        machine = logs.get(client)
        of_machine, facts = (samples[machine.maker], machine.facts) if machine else ([], LogFacts())
        by_engine = [samples[engine.maker] for engine in own]
        machines.append(_machine_health(client, facts, of_machine, by_engine, window_s))
    return engines, tuple(one for one in machines if one.name in logs or one.unobserved_s)


def _gaps(
    samples: Sequence[_Sample], of_engines: Sequence[_Sample], window_s: Window
) -> tuple[tuple[float, float], ...]:
    """Return the gaps in the window between the samples of a machine or engine, while its engines took samples."""
    if not of_engines:
        return ()
    begin_s = max(window_s.begin_s, min(one.begin_s for one in of_engines))
    end_s = min(window_s.end_s, max(one.end_s for one in of_engines))
    instants = [begin_s, *(one.end_s for one in samples if begin_s < one.end_s < end_s), end_s]
    return tuple(between for between in pairwise(instants) if between[1] - between[0] > UNOBSERVED_S)


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample and the time that it covers, in seconds from the common start."""

    begin_s: float
    end_s: float
    found: Sample

    def ended_in(self, window_s: Window) -> bool:
        return window_s.begin_s <= self.end_s < window_s.end_s


def _samples(log: TimingLog, window_s: Window) -> defaultdict[tuple[str, ...], list[_Sample]]:
    """Return each maker's samples in the window, and the next one, whose first ticks may be due in the window."""
    samples: defaultdict[tuple[str, ...], list[_Sample]] = defaultdict(list)
    last_s: dict[tuple[str, ...], float] = {}
    for taken in log.health:
        at_s = taken.get("at_s")
        if at_s is None or PROBE in taken:
            continue
        sample = _Sample(last_s.get(taken.maker, at_s - 1), at_s, taken)
        last_s[taken.maker] = at_s
        if sample.end_s >= window_s.begin_s and sample.begin_s < window_s.end_s:
            samples[taken.maker].append(sample)
    return samples


def _engine_health(name: str, source: Source, samples: Sequence[_Sample], window_s: Window) -> EngineHealth:
    all_us = np.concatenate([np.zeros(0, np.int64), *(_ticks_in(sample, window_s) for sample in samples)])
    all_us.sort()
    p50_ms, p99_ms, most_ms = (percentile(all_us, of) / 1000 if len(all_us) else None for of in (50, 99, 100))
    inside = [sample for sample in samples if sample.ended_in(window_s)]
    return EngineHealth(
        name=name,
        lag_p50_ms=p50_ms,
        lag_p99_ms=p99_ms,
        lag_max_ms=most_ms,
        cpu_share=_mean(inside, "cpu_share"),
        rss_bytes=_most(inside, "rss_bytes"),
        open_files=_most(inside, "open_files"),
        gc_max_ms=_most(inside, "gc_max_ms"),
        clock_steps=tuple(
            (sample.end_s, sample.found.clock_step_ms) for sample in inside if "clock_step_ms" in sample.found
        ),
        began_late_ms=source.began_late_ms,
        lags_ms={name: percentile(all_us, of) / 1000 for name, of in PERCENTS.items()} if len(all_us) else {},
        unobserved_s=_gaps(samples, samples, window_s),
    )


def _machine_health(
    name: str, facts: LogFacts, all_samples: Sequence[_Sample], by_engine: Sequence[Sequence[_Sample]], window_s: Window
) -> MachineHealth:
    samples = [one.found for one in all_samples if one.ended_in(window_s) and "core_shares" in one.found]

    def mean(name: str) -> float | None:
        return float(np.mean([sample[name] for sample in samples])) if samples else None

    cores = len(samples[0].core_shares) if samples else None
    of_engines = [_mean([one for one in each if one.ended_in(window_s)], "cpu_share") for each in by_engine]
    known = [share for share in of_engines if share is not None]
    return MachineHealth(
        name=name,
        cores=cores,
        cpu_share=mean("cpu_share"),
        stolen_share=mean("stolen_share"),
        engines_share=sum(known) / cores if cores and known and len(known) == len(of_engines) else None,
        memory_available_bytes=min((sample.memory_available_bytes for sample in samples), default=None),
        segments_sent=sum(sample.segments_sent for sample in samples),
        segments_sent_again=sum(sample.segments_sent_again for sample in samples),
        server_here=facts.server_here,
        shares_cpus=facts.shares_cpus,
        pinned=bool(facts.pinned),
        generator_cores=max(cores // 2, 1) if cores and facts.pinned else cores,
        unobserved_s=_gaps(all_samples, [one for each in by_engine for one in each], window_s),
    )


def _ticks_in(sample: _Sample, window_s: Window) -> NDArray[np.int64]:
    lags_us = np.array(sample.found.get("lags_us", ()), np.int64)
    if "lags_from_ns" not in sample.found:
        return np.zeros(0, np.int64)
    first_s = sample.end_s - (sample.found.at_ns - sample.found.lags_from_ns) * 1e-9
    due_s = first_s + np.arange(len(lags_us)) * TICK_S
    return np.asarray(lags_us[(due_s >= window_s.begin_s) & (due_s < window_s.end_s)])


def _mean(samples: Sequence[_Sample], name: str) -> float | None:
    """Return the mean of a share over time: a sample that covers five seconds counts five times."""
    known = [sample for sample in samples if name in sample.found]
    weights = [max(one.end_s - one.begin_s, 0.0) for one in known]
    return float(np.average([one.found[name] for one in known], weights=weights)) if sum(weights) else None


def _most(samples: Iterable[_Sample], name: str) -> Any:
    return max((sample.found[name] for sample in samples if name in sample.found), default=None)
