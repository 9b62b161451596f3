"""Why a criterion on a probe's figure was not measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.criteria import Result
from loadsim.analysis.probes.send_queue import CALCULATED, PARTS, SENT
from loadsim.analysis.probes.statistics import (
    PROBE,
    ProbeFacts,
    ProbeStatistics,
    longest_gap_allowed_s,
    probe_facts,
)
from loadsim.errors import printable
from loadsim.model.criteria import PROBES
from loadsim.model.documents.schema import nearest_path
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

MOST_NAMED = 6
"""Of more figures than this, a reason names only the one with the nearest name."""

Statistics = Mapping[str, Mapping[str, ProbeStatistics]]
"""The statistics of each figure of each probe, by their names."""


def with_probe_reasons(
    results: Sequence[Result], log: TimingLog, probes: Statistics | None, window_s: Window
) -> tuple[Result, ...]:
    """Return the results; an unmeasured figure of a probe has the reason, if the log has one."""
    facts = {each.probe: each for each in probe_facts(log)}
    return tuple(
        replace(one, reason=_reason(one.name, log, probes or {}, facts, window_s))
        if one.figure is None and one.name.startswith(PROBES)
        else one
        for one in results
    )


def _reason(
    name: str, log: TimingLog, probes: Statistics, facts: Mapping[str, ProbeFacts], window_s: Window
) -> str | None:
    probe, _, rest = name.removeprefix(PROBES).partition(".")
    figure = rest.partition(".")[0]
    figures = probes.get(probe, {})
    statistics = figures.get(figure)
    taken = facts.get(probe)
    failed = _failed(taken) if taken else None
    measured, allowed_s = statistics, longest_gap_allowed_s(window_s)
    if measured is None and figure in CALCULATED:
        measured = figures.get(SENT)
    if measured is not None and measured.longest_gap_s > allowed_s:
        gap = f"longest time without a sample {round(measured.longest_gap_s, 2):g} s, at most {allowed_s:g} s allowed"
        return "; ".join(filter(None, [gap, failed]))
    if statistics is not None:
        return failed

    # The figure has no sample in the window.
    known = {each for sample in log.health if sample.get(PROBE) == probe for each in sample.figures}
    if figure in known:
        return "; ".join(filter(None, ["no sample in the window", failed]))
    if known and figure in CALCULATED:
        return f"it takes measured deliveries, and at least {PARTS} samples in the window"
    if known:
        return _without(figure, known)
    if taken is None:
        return f"no probe {probe} in the logs of this run"
    return failed or "no sample was taken"


def _failed(facts: ProbeFacts) -> str | None:
    if not facts.failures:
        return None
    why = f": {printable(facts.last_failure)}" if facts.last_failure else ""
    return f"{facts.failures:,} of {facts.samples + facts.failures:,} samples failed{why}"


def misnamed(criteria: Mapping[str, object], probe: str, known: Collection[str]) -> list[str]:
    """Return a line for each criterion on a figure that the first samples of its probe do not have.

    Criteria that are off, and figures that are calculated after the run, have none.
    """
    own = f"{PROBES}{probe}."
    named = {name: name.removeprefix(own).partition(".")[0] for name in criteria if name.startswith(own)}
    return [
        f"criterion {name}: in its first samples, {_without(figure, known)}"
        for name, figure in named.items()
        if figure not in known and figure not in CALCULATED and criteria[name] is not None
    ]


def _without(figure: str, known: Collection[str]) -> str:
    names = sorted(known)
    near = f", as {nearest}" if (nearest := nearest_path(figure, names)) else ""
    named = ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} others{near}"
    return f"the probe has no figure {figure}; it has {named or 'none'}"
