"""Files of `loadsim monitor` in a log: their places on the time axis, and what is missing in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loadsim.analysis.generator.health import UNOBSERVED_S
from loadsim.analysis.probes.statistics import PROBE
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.criteria import expected_monitors
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

FAR_APART_MS = 1000.0
"""The error of a monitor's clock beyond which a warning says so: probes sample each second."""


@dataclass(frozen=True, slots=True)
class MonitorPlace:
    """A file of a monitor in a run. Instants are seconds from the common start; `span_s` is that of the whole file.

    `error_ms` is the largest error of their place by the clocks, 0 for monotonic clocks of one machine; None if
    unknown. `ended`: the monitor ended by itself. `lacks` is what its collection missed. `at_s` has the instants at
    which it was awake during the run, and `samples` is the number of samples of its probes then.
    """

    name: str
    error_ms: float | None
    span_s: tuple[float, float] | None
    ended: bool
    damages: tuple[str, ...]
    lacks: str | None
    at_s: tuple[float, ...]
    samples: int


def monitor_places(log: TimingLog) -> tuple[MonitorPlace, ...]:
    """Return the monitors of a log."""
    found = []
    for source in log.sources:
        if source.monitor is None:
            continue
        own = [one for one in log.health if one.maker == source.maker]
        found.append(
            MonitorPlace(
                name=source.client,
                error_ms=source.monitor.error_ms,
                span_s=source.monitor.span_s,
                ended=source.ended,
                damages=source.monitor.damages,
                lacks=source.facts.collection,
                at_s=tuple(one.at_s for one in own if "at_s" in one),
                samples=sum(PROBE in one and "at_s" in one for one in own),
            )
        )
    return tuple(found)


def monitor_findings(log: TimingLog, window_s: Window) -> list[Finding]:
    """Return what is missing in the files of monitors: no verdict depends on it, but a criterion may."""
    files: dict[str, list[MonitorPlace]] = {}
    for place in monitor_places(log):
        files.setdefault(place.name, []).append(place)
    expected = {*expected_monitors(log.header.criteria), *log.header.monitors}
    return [
        *(finding(Code.MONITOR_MISSING, name) for name in sorted(expected - files.keys())),
        *(one for name, own in files.items() for one in _missing(name, own, window_s)),
    ]


def _missing(name: str, files: Sequence[MonitorPlace], window_s: Window) -> Iterator[Finding]:
    """Yield what is missing in the files of a monitor, of which one that was started again has several."""
    lacks = [one.lacks for one in files if one.lacks]
    yield from (finding(Code.MONITOR_DEFECT, name, why=why) for why in lacks)
    # Gaps.
    at_s = sorted(at_s for one in files for at_s in one.at_s)
    inside = [each for each in at_s if window_s.begin_s <= each < window_s.end_s]
    damages = [damage for one in files for damage in one.damages]
    gaps = [
        (begin_s, end_s)
        for begin_s, end_s in pairwise((window_s.begin_s, *inside, window_s.end_s))
        if end_s - begin_s > UNOBSERVED_S
    ]
    spans_s = [one.span_s for one in files if one.span_s]
    if not inside and spans_s:
        begin_s, end_s = min(begin_s for begin_s, _ in spans_s), max(end_s for _, end_s in spans_s)
        yield finding(Code.MONITOR_OF_OTHER_TIME, name, begin_s=round(begin_s), end_s=round(end_s))
    elif not inside and not lacks and not damages:
        yield finding(Code.MONITOR_WITHOUT_TIME, name)
    for begin_s, end_s in gaps if inside else ():
        yield finding(Code.MONITOR_GAP, name, begin_s=round(begin_s), end_s=round(end_s))
    if gaps or not inside:
        yield from (finding(Code.MONITOR_DEFECT, name, why=damage) for damage in damages)
    # Clocks.
    error_ms = max(math.inf if one.error_ms is None else one.error_ms for one in files)
    if inside and error_ms > FAR_APART_MS:
        yield finding(Code.MONITOR_CLOCK_APART, name, error_ms=None if math.isinf(error_ms) else error_ms)
