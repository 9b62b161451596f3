"""Files of `loadsim monitor`: samples of probes on a server's machine, placed on the time axis of a run.

A monitor counts by its own monotonic clock, and states its time of day each second. If it ran on a machine of the run,
their monotonic clocks are one clock. Otherwise the time of day places its samples: one offset for the whole run, so
that a clock that is set meanwhile moves no sample against another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from loadsim.errors import LogError
from loadsim.timinglog.header import MONITOR
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.reader import Placement, Source, TimingLog
from loadsim.timinglog.records import MAKERS

WALL_CLOCK, WALL_CLOCK_ERROR = "wall_clock_ns", "wall_clock_error_ns"
"""Keys of a sample, and the latter a fact of a machine: its time of day (nanoseconds since 1970), and the error that
the kernel states for it, if a time service disciplines it."""

COLLECTION = "collection"
"""Fact of a monitor's file that a run collected: what is missing in it, as a text."""

FARTHEST_S = 1e7
"""The most seconds between a run and a monitor that are stated: about four months."""

BEFORE_S, BEHIND_S = 600.0, 600.0
"""The time before the common start, and behind the planned end of a run, of which samples are kept."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """The common start of a run, t = 0 of its merged log, by the clocks of the machines in it.

    `wall_ns` is the time of day (None if unknown), `spread_ns` by how much the machines differ on it. `error_ns` is the
    largest error that their kernels state; None if unknown. `by_boot` has the instant on each monotonic clock.
    """

    run: str
    length_s: float
    wall_ns: int | None
    spread_ns: int
    error_ns: int | None
    by_boot: Mapping[str, int]


def parted(logs: Sequence[TimingLog]) -> tuple[list[TimingLog], list[TimingLog]]:
    """Return the logs of runs, and the files of monitors. Raises `LogError` for monitors alone, or one twice."""
    monitors = [log for log in logs if log.monitor]
    runs = [log for log in logs if not log.monitor]
    seen = set[tuple[object, ...]]()
    for log in monitors:
        (source,) = log.sources
        if (identity := (source.client, source.wall_clock_start, source.epoch_ns)) in seen:
            raise LogError(f"merge: expected each file once, found that of the monitor {log.monitor} twice")
        seen.add(identity)
    if monitors and not runs:
        raise LogError(f"expected logs of a run, found only those of the monitor {monitors[0].monitor}")
    return runs, monitors


def run_start(sources: Sequence[Source], length_s: float) -> RunStart:
    started = [source for source in sources if source.started]
    machines = [source for source in started if not source.simulates] or started
    walls = [wall_ns for source in machines if (wall_ns := source.zero_wall_ns) is not None]
    errors = [source.facts.wall_clock_error_ns for source in machines]
    return RunStart(
        run=sources[0].run,
        length_s=length_s,
        wall_ns=(min(walls) + max(walls)) // 2 if walls else None,
        spread_ns=max(walls) - min(walls) if walls else 0,
        error_ns=max((error for error in errors if error is not None), default=None) if all(errors) else None,
        by_boot={
            source.facts.boot_id: source.facts.start_ns
            for source in machines
            if source.facts.boot_id and source.facts.start_ns is not None
        },
    )


def with_monitors(log: TimingLog, monitors: Sequence[TimingLog], start: RunStart) -> TimingLog:
    """Return a merged log with the samples of these monitors on its time axis, and a source for each.

    Raises `LogError` for two machines with one name: their figures would be mixed.
    """
    sources, samples = list(log.sources), list(log.health)
    numbers = Counter[str]()
    for monitor in sorted(monitors, key=lambda each: (each.monitor or "", each.sources[0].wall_clock_start)):
        source, placed = _placed(monitor, start)
        numbers[source.client] += 1
        engine = MONITOR if numbers[source.client] == 1 else f"{MONITOR}{numbers[source.client]}"
        source = replace(source, engine=engine)
        sources.append(source)
        whose = dict(zip(MAKERS, source.maker, strict=True))
        samples += [sample.placed(at_s, whose) for sample, at_s in placed]
    order = sorted(samples, key=lambda sample: (sample.get("at_s", 0.0), sample.client, sample.engine))
    _check_machines(sources, order)
    return replace(log, sources=tuple(sources), health=tuple(order))


def _check_machines(sources: Iterable[Source], samples: Iterable[Sample]) -> None:
    """Raise `LogError` if two machines took samples of one probe at the same time, and so have one name.

    Samples are in time order. After a restart of the machine, those of its earlier boot do not come back.
    """
    boots = {source.maker: source.facts.boot_id or source.engine for source in sources if source.is_monitor}
    seen: dict[str, list[str]] = {}
    for sample in samples:
        if "probe" not in sample or (boot := boots.get(sample.maker)) is None:
            continue
        own = seen.setdefault(sample.probe, [])
        if boot in own[:-1]:
            raise LogError(
                f"merge: expected one machine of the monitor {sample['client']}, found files of two that sampled at the"
                " same time: keep one of them, and name the monitors apart by --name"
            )
        if boot not in own:
            own.append(boot)


def _placed(monitor: TimingLog, start: RunStart) -> tuple[Source, list[tuple[Sample, float]]]:
    source, timed = monitor.sources[0], [sample for sample in monitor.health if "at_ns" in sample]
    zero_ns, error_ns = _zero_ns(source, timed, start)
    placed = [] if zero_ns is None else [(sample, (sample.at_ns - zero_ns) / 1e9) for sample in timed]
    instants_s = [min(max(at_s, -FARTHEST_S), FARTHEST_S) for _, at_s in placed]
    placement = Placement(
        error_ms=None if error_ns is None else math.ceil(error_ns / 1e3) / 1e3,
        span_s=(round(min(instants_s), 6), round(max(instants_s), 6)) if instants_s else None,
        damages=monitor.damages,
    )
    of_run = [(sample, at_s) for sample, at_s in placed if -BEFORE_S <= at_s < start.length_s + BEHIND_S]
    return replace(source, run=start.run, monitor=placement), of_run


def _zero_ns(source: Source, timed: Sequence[Sample], start: RunStart) -> tuple[int | None, int | None]:
    """Return a run's start by the monitor's monotonic clock, and the error; None if no clock can tell."""
    if (started_ns := start.by_boot.get(source.facts.boot_id or "")) is not None:
        return started_ns, 0
    read = [sample for sample in timed if WALL_CLOCK in sample]
    if start.wall_ns is None or not read:
        return None, None
    # The leads during the run: their median places it, their spread is what the clock was set by.
    during = [
        sample
        for sample in read
        if -BEFORE_S <= (sample.wall_clock_ns - start.wall_ns) / 1e9 <= start.length_s + BEHIND_S
    ]
    used = during or read
    ahead_ns = sorted(sample.wall_clock_ns - sample.at_ns for sample in used)
    zero_ns = start.wall_ns - ahead_ns[len(ahead_ns) // 2]
    own_ns = [sample.wall_clock_error_ns for sample in used if WALL_CLOCK_ERROR in sample]
    if len(own_ns) < len(used) or start.error_ns is None:
        return zero_ns, None
    return zero_ns, max(own_ns) + start.error_ns + start.spread_ns + ahead_ns[-1] - ahead_ns[0]
