"""Figures of probes in a window, for report and criteria: they are in no score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from loadsim.analysis.score import percentile
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

PROBE, FIGURES = "probe", "figures"
"""Keys of a sample of a probe: its name, and its figures by name."""

MOST_UNOBSERVED_S, MOST_UNOBSERVED_SHARE, ALWAYS_ALLOWED_S = 30.0, 0.1, 5.0
"""After a longer time without a sample than either of the first two, the latter of the window, a figure counts as not
measured. A gap of the third is always allowed."""


def longest_gap_allowed_s(window_s: Window) -> float:
    """Return the longest time without a sample for which a figure still describes the window."""
    return max(ALWAYS_ALLOWED_S, min(MOST_UNOBSERVED_S, MOST_UNOBSERVED_SHARE * window_s.length_s))


@dataclass(frozen=True, slots=True)
class ProbeFigure:
    """A figure of a probe over the samples in the window."""

    probe: str
    figure: str
    samples: int
    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class ProbeStatistics:
    """A figure of a probe over the window, in the figure's unit, for `score.json` and criteria.

    `longest_gap_s` is the longest time of the window without a sample. If it is above the allowed one, the others
    are None: a probe that fails while the server is overloaded would show only its quiet times.
    """

    samples: int
    longest_gap_s: float
    mean: float | None
    p50: float | None
    p95: float | None
    min: float | None
    max: float | None

    @classmethod
    def of(cls, at_s: Sequence[float], values: Sequence[float], window_s: Window) -> ProbeStatistics:
        """Return the statistics of samples at these rising instants of the window; there is at least one."""
        gap_s = max(after - before for before, after in pairwise((window_s.begin_s, *at_s, window_s.end_s)))
        if gap_s > longest_gap_allowed_s(window_s):
            return cls(len(values), gap_s, None, None, None, None, None)
        ordered = np.sort(np.asarray(values, np.float64))
        return cls(
            samples=len(values),
            longest_gap_s=gap_s,
            mean=float(np.mean(ordered)),
            p50=percentile(ordered, 50),
            p95=percentile(ordered, 95),
            min=float(ordered[0]),
            max=float(ordered[-1]),
        )


@dataclass(frozen=True, slots=True)
class ProbeFacts:
    """The package of a probe, its samples in the whole run, those that it failed to take, and the last reason."""

    probe: str
    package: str
    samples: int
    failures: int
    last_failure: str | None


def probe_figures(log: TimingLog, window_s: Window) -> tuple[ProbeFigure, ...]:
    """Return each figure of each probe, in the order of their names."""
    return tuple(
        ProbeFigure(probe, figure, len(values), sum(values) / len(values), min(values), max(values))
        for (probe, figure), samples in sorted(_samples(log, window_s).items())
        for values in [[value for _, value in samples]]
    )


QUEUED, SENT, QUEUED_S = "send_queue_recipients", "sent_per_s", "send_queue_s"
"""Figures of a probe of a send queue: the recipients in it, deliveries per second, and the queue in seconds of them."""


def _with_send_queue(
    samples: Mapping[tuple[str, str], Sequence[tuple[float, float]]], window_s: Window
) -> Mapping[tuple[str, str], Sequence[tuple[float, float]]]:
    """Return the samples with the length of each send queue in seconds of the mean throughput of the window.

    Without deliveries, or without measured ones, a queue has no such length.
    """
    found = dict(samples)
    for (probe, figure), queued in samples.items():
        if figure != QUEUED or not (sent := samples.get((probe, SENT))):
            continue
        at_s, rates = zip(*sorted(sent), strict=True)
        mean_per_s = ProbeStatistics.of(at_s, rates, window_s).mean
        if mean_per_s:
            found[probe, QUEUED_S] = [(at_s, recipients / mean_per_s) for at_s, recipients in queued]
    return found


def probe_statistics(log: TimingLog, window_s: Window) -> Mapping[str, Mapping[str, ProbeStatistics]] | None:
    """Return the statistics of each figure of each probe, by their names; None if there are no samples."""
    found: dict[str, dict[str, ProbeStatistics]] = {}
    for (probe, figure), samples in sorted(_with_send_queue(_samples(log, window_s), window_s).items()):
        at_s, values = zip(*sorted(samples), strict=True)
        found.setdefault(probe, {})[figure] = ProbeStatistics.of(at_s, values, window_s)
    return found or None


def _samples(log: TimingLog, window_s: Window) -> Mapping[tuple[str, str], list[tuple[float, float]]]:
    """Return the instants and values of the window by probe and figure."""
    found: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for sample in log.health:
        at_s = sample.get("at_s")
        if PROBE in sample and at_s is not None and window_s.begin_s <= at_s < window_s.end_s:
            for figure, value in sample[FIGURES].items():
                found[sample[PROBE], figure].append((at_s, float(value)))
    return found


def probe_facts(log: TimingLog) -> tuple[ProbeFacts, ...]:
    """Return the facts of all probes, summed over the machines and runs of a log."""
    found: dict[str, ProbeFacts] = {}
    for source in log.sources:
        probes: Mapping[str, Mapping[str, Any]] = source.facts.get("probes") or {}
        for name, facts in sorted(probes.items()):
            before = found.get(name)
            failures = facts["failures"] + (before.failures if before else 0)
            samples = facts["samples"] + (before.samples if before else 0)
            last = facts["last_failure"] or (before.last_failure if before else None)
            found[name] = ProbeFacts(name, facts["package"], samples, failures, last)
    return tuple(found.values())
