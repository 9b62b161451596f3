"""Why a criterion on a probe's figure was not measured, and the gaps of each of several runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from loadsim.analysis.criteria import Result
from loadsim.analysis.probes import (
    FIGURES,
    PROBE,
    ProbeFacts,
    ProbeStatistics,
    longest_gap_allowed_s,
    probe_facts,
    probe_statistics,
)
from loadsim.analysis.send_queue import CALCULATED, PARTS, QUEUED_S, SENT
from loadsim.errors import printable
from loadsim.model.criteria import PROBES
from loadsim.model.schema import nearest_path
from loadsim.model.terms import Window
from loadsim.timinglog.merge import of_run
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
    statistics = probes.get(probe, {}).get(figure)
    taken = facts.get(probe)
    failed = _failed(taken) if taken else None
    if statistics is not None:
        gap_s, allowed_s = statistics.longest_gap_s, longest_gap_allowed_s(window_s)
        return _joined(_gap(gap_s, allowed_s) if gap_s > allowed_s else None, failed)

    # The figure has no sample in the window.
    known = {each for sample in log.health if sample.get(PROBE) == probe for each in sample[FIGURES]}
    if figure in known:
        return _joined("no sample in the window", failed)
    if known and figure in CALCULATED:
        return _not_calculated(probes.get(probe, {}), window_s, failed)
    if known:
        return _without(figure, known)
    if taken is None:
        return f"no probe {probe} in the logs of this run"
    return failed or "no sample was taken"


def _not_calculated(figures: Mapping[str, ProbeStatistics], window_s: Window, failed: str | None) -> str | None:
    """Return why a send queue has no figures in seconds of throughput, or no growth alone."""
    if QUEUED_S in figures:
        return f"its growth needs at least {PARTS} samples in the window"
    allowed_s = longest_gap_allowed_s(window_s)
    if SENT in figures and (gap_s := figures[SENT].longest_gap_s) > allowed_s:
        return _joined(_gap(gap_s, allowed_s), failed)
    return "the send queue has no length in seconds without measured deliveries"


def with_gaps_of_runs(probes: Statistics | None, log: TimingLog, window_s: Window) -> Statistics | None:
    """Return the statistics of a log of several runs with the longest gap of any of its runs.

    The samples of one run would otherwise hide that the probe failed in another.
    """
    if probes is None or len(log.runs) < 2:
        return probes
    by_run = [probe_statistics(of_run(log, run), window_s) or {} for run in log.runs]

    def worst(probe: str, figure: str, found: ProbeStatistics) -> ProbeStatistics:
        own = [each.get(probe, {}).get(figure) for each in by_run]
        gap_s = max(window_s.length_s if each is None else each.longest_gap_s for each in own)
        if gap_s <= longest_gap_allowed_s(window_s):
            return replace(found, longest_gap_s=gap_s)
        return replace(found, longest_gap_s=gap_s, mean=None, p50=None, p95=None, min=None, max=None)

    return {
        probe: {figure: worst(probe, figure, found) for figure, found in figures.items()}
        for probe, figures in probes.items()
    }


def _gap(gap_s: float, allowed_s: float) -> str:
    """Return a gap above the allowed one, with as many digits as show that it is."""
    shown = f"{gap_s:.1f}" if round(gap_s, 1) > allowed_s else f"{gap_s:.9g}"
    return f"longest time without a sample {shown} s, at most {allowed_s:g} s allowed"


def _failed(facts: ProbeFacts) -> str | None:
    if not facts.failures:
        return None
    why = f": {printable(facts.last_failure)}" if facts.last_failure else ""
    return f"{facts.failures:,} of {facts.samples + facts.failures:,} samples failed{why}"


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(filter(None, reasons)) or None


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
    return f"the probe has no figure {figure}; it has {_named(figure, known)}"


def _named(figure: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = nearest_path(figure, names)
    return (
        ", ".join(names) or "none"
        if len(names) <= MOST_NAMED
        else f"{len(names)} others{f', as {near}' if near else ''}"
    )
