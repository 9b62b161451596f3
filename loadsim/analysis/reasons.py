"""Reasons why a criterion on a probe was not measured, and gaps in the files of `loadsim monitor`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from loadsim.analysis.criteria import Result
from loadsim.analysis.generator.health import UNOBSERVED_S
from loadsim.analysis.probes.send_queue import CALCULATED, PARTS, SENT
from loadsim.analysis.probes.statistics import PROBE, longest_gap_allowed_s, probe_facts
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import ProbeStatistics
from loadsim.model.terms import Window
from loadsim.scenario.criteria import PROBES, expected_monitors
from loadsim.timinglog.facts import ProbeCounts
from loadsim.timinglog.reader import Source, TimingLog

Statistics = Mapping[str, Mapping[str, ProbeStatistics]]
"""Statistics by probe and figure."""


def with_probe_reasons(
    results: Sequence[Result], log: TimingLog, probes: Statistics | None, window_s: Window
) -> tuple[Result, ...]:
    facts = probe_facts(log)
    return tuple(
        replace(result, reasons=tuple(_reasons(result.name, log, probes or {}, facts, window_s)))
        if result.figure is None and result.name.startswith(PROBES)
        else result
        for result in results
    )


def _reasons(
    name: str, log: TimingLog, probes: Statistics, facts: Mapping[str, ProbeCounts], window_s: Window
) -> Iterator[Finding]:
    probe, figure, *_ = name.removeprefix(PROBES).split(".")
    known = {each for sample in log.health if sample.get(PROBE) == probe for each in sample.figures}
    taken, calculated = facts.get(probe), figure in CALCULATED
    measured = probes.get(probe, {}).get(SENT if calculated else figure)
    gap_s = measured.longest_gap_s if measured else window_s.length_s
    if not known and taken is None:
        yield finding(Code.NO_PROBE, probe)
    elif known and figure not in known and not calculated:
        yield finding(Code.MISNAMED_FIGURE, figure=figure, known=tuple(sorted(known)))
    elif known and calculated and (not measured or gap_s <= longest_gap_allowed_s(window_s)):
        yield finding(Code.NO_DELIVERIES, limit=PARTS)
    else:
        yield finding(Code.NO_SAMPLES, gap_s=gap_s)
    if taken and taken.failures:
        tried = taken.samples + taken.failures
        yield finding(Code.SAMPLES_FAILED, failed=taken.failures, tried=tried, why=taken.last_failure)


def misnamed(criteria: Mapping[str, object], probe: str, known: Collection[str]) -> list[Finding]:
    """Return a finding for each criterion on a figure that is not among the first samples of its probe.

    Criteria that are off, and figures calculated after the run, are skipped.
    """
    own = f"{PROBES}{probe}."
    named = {name: name.removeprefix(own).partition(".")[0] for name in criteria if name.startswith(own)}
    return [
        finding(Code.MISNAMED_FIGURE, name, figure=figure, known=tuple(sorted(known)))
        for name, figure in named.items()
        if figure not in known and figure not in CALCULATED and criteria[name] is not None
    ]


FAR_APART_MS = 1000.0
"""If a monitor's clock may be off by more, there is a warning: probes take a sample every second."""


def monitor_findings(log: TimingLog, window_s: Window) -> list[Finding]:
    """Return findings on gaps in the files of monitors: no verdict depends on them, but a criterion may."""
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
    """Yield findings on gaps in the files of a monitor; one that was restarted has several."""
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
