"""Files from `loadsim monitor`: samples of probes on a server's machine, placed on a run's time axis.

A monitor uses its own monotonic clock, and records the time of day each second. If it ran on one of the run's machines,
both have the same monotonic clock. Otherwise the time of day places its samples, with one offset for the whole run: if
the clock is changed in mid-run, samples do not move relative to each other.
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
"""Keys of a sample: the time of day (nanoseconds since 1970), and the error that the kernel states for it, if a time
service disciplines the clock. The latter is also a fact of a machine."""

COLLECTION = "collection"
"""Fact in a monitor's file that was collected by a run: a text saying what is missing."""

FARTHEST_S = 1e7
"""The largest reported distance between a run and a monitor: about four months."""

BEFORE_S, BEHIND_S = 600.0, 600.0
"""Samples are kept from this long before the common start to this long after the planned end."""


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run's common start, which is t = 0 in its merged log, on the clocks of its machines.

    `wall_ns` is the time of day (None if unknown), on which the machines disagree by up to `spread_ns`. `error_ns` is
    the largest error that their kernels state; None if unknown. `by_boot` has the instant on each monotonic clock.
    """

    run: str
    length_s: float
    wall_ns: int | None
    spread_ns: int
    error_ns: int | None
    by_boot: Mapping[str, int]


def parted(logs: Sequence[TimingLog]) -> tuple[list[TimingLog], list[TimingLog]]:
    """Separate runs' logs from monitors' files. Raises `LogError` if there are only monitors, or one appears twice."""
    monitors = [log for log in logs if log.monitor]
    runs = [log for log in logs if not log.monitor]
    seen = set[tuple[object, ...]]()
    for log in monitors:
        (source,) = log.sources
        if (identity := (source.client, source.wall_clock_start, source.epoch_ns)) in seen:
            raise LogError(f"merge: expected each file once, found the file of monitor {log.monitor} twice")
        seen.add(identity)
    if monitors and not runs:
        raise LogError(f"expected logs of a run, found only those of monitor {monitors[0].monitor}")
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
    """Add monitors to a merged log: their samples on its time axis, and a source for each.

    Raises `LogError` if two machines have the same name, as their figures would be mixed up.
    """
    sources, samples = list(log.sources), list(log.health)
    numbers = Counter[str]()
    for monitor in sorted(monitors, key=lambda log: (log.monitor or "", log.sources[0].wall_clock_start)):
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
    """Raise `LogError` if two machines have the same name: both took samples of one probe at the same time.

    Samples are in time order. Once a machine has restarted, no samples from an earlier boot may follow.
    """
    boots = {source.maker: source.facts.boot_id or source.engine for source in sources if source.is_monitor}
    seen: dict[str, list[str]] = {}
    for sample in samples:
        if "probe" not in sample or (boot := boots.get(sample.maker)) is None:
            continue
        own = seen.setdefault(sample.probe, [])
        if boot in own[:-1]:
            raise LogError(
                f"merge: expected one machine for monitor {sample['client']}, found files of two that sampled at the"
                " same time: keep one of them, and give each monitor its own --name"
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
    """Return when the run started on the monitor's monotonic clock, and the error; None if no clock can tell."""
    if (started_ns := start.by_boot.get(source.facts.boot_id or "")) is not None:
        return started_ns, 0
    read = [sample for sample in timed if WALL_CLOCK in sample]
    if start.wall_ns is None or not read:
        return None, None
    # The wall clock's lead during the run: the median places the run, the spread shows changes of the clock.
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
