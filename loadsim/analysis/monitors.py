"""Files of `loadsim monitor` in a log: their places on the time axis, and what is missing in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from loadsim.analysis.generator.health import UNOBSERVED_S
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.terms import Window
from loadsim.scenario.criteria import expected_monitors
from loadsim.timinglog.reader import Source, TimingLog

FAR_APART_MS = 1000.0
"""The error of a monitor's clock beyond which a warning says so: probes sample each second."""


def monitor_findings(log: TimingLog, window_s: Window) -> list[Finding]:
    """Return what is missing in the files of monitors: no verdict depends on it, but a criterion may."""
    files: dict[str, list[Source]] = {}
    for source in log.sources:
        if source.is_monitor:
            files.setdefault(source.client, []).append(source)
    expected = {*expected_monitors(log.header.criteria), *log.header.monitors}
    return [
        *(finding(Code.MONITOR_MISSING, name) for name in sorted(expected - files.keys())),
        *(one for name, own in files.items() for one in _missing(log, name, own, window_s)),
    ]


def _missing(log: TimingLog, name: str, files: Sequence[Source], window_s: Window) -> Iterator[Finding]:
    """Yield what is missing in the files of a monitor, of which one that was started again has several."""
    monitors = [source.monitor for source in files if source.monitor]
    lacks = [source.facts.collection for source in files if source.facts.collection]
    yield from (finding(Code.MONITOR_DEFECT, name, why=why) for why in lacks)
    # Gaps.
    makers = {source.maker for source in files}
    at_s = sorted(one.at_s for one in log.health if one.maker in makers and "at_s" in one)
    inside = [each for each in at_s if window_s.begin_s <= each < window_s.end_s]
    damages = [damage for one in monitors for damage in one.damages]
    gaps = [
        (begin_s, end_s)
        for begin_s, end_s in pairwise((window_s.begin_s, *inside, window_s.end_s))
        if end_s - begin_s > UNOBSERVED_S
    ]
    spans_s = [one.span_s for one in monitors if one.span_s]
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
    error_ms = max(math.inf if one.error_ms is None else one.error_ms for one in monitors)
    if inside and error_ms > FAR_APART_MS:
        yield finding(Code.MONITOR_CLOCK_APART, name, error_ms=None if math.isinf(error_ms) else error_ms)
