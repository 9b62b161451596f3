"""Why a criterion on a probe's figure was not measured."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.criteria import Result
from loadsim.analysis.probes.send_queue import CALCULATED, PARTS, SENT
from loadsim.analysis.probes.statistics import PROBE, longest_gap_allowed_s, probe_facts
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.figures import ProbeStatistics
from loadsim.model.terms import Window
from loadsim.scenario.criteria import PROBES
from loadsim.timinglog.facts import ProbeCounts
from loadsim.timinglog.reader import TimingLog

Statistics = Mapping[str, Mapping[str, ProbeStatistics]]
"""The statistics of each figure of each probe, by their names."""


def with_probe_reasons(
    results: Sequence[Result], log: TimingLog, probes: Statistics | None, window_s: Window
) -> tuple[Result, ...]:
    facts = probe_facts(log)
    return tuple(
        replace(one, reasons=tuple(_reasons(one.name, log, probes or {}, facts, window_s)))
        if one.figure is None and one.name.startswith(PROBES)
        else one
        for one in results
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
    """Return a finding for each criterion on a figure that the first samples of its probe do not have.

    Criteria that are off, and figures that are calculated after the run, have none.
    """
    own = f"{PROBES}{probe}."
    named = {name: name.removeprefix(own).partition(".")[0] for name in criteria if name.startswith(own)}
    return [
        finding(Code.MISNAMED_FIGURE, name, figure=figure, known=tuple(sorted(known)))
        for name, figure in named.items()
        if figure not in known and figure not in CALCULATED and criteria[name] is not None
    ]
