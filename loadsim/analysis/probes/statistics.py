"""Statistics of probes in a window, for reports and criteria; they do not affect the score.

A sample is weighted by the time that it stands for: a probe takes few samples while the server is overloaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes.send_queue import CALCULATED, QUEUED, SENT
from loadsim.model.figures import ProbeStatistics
from loadsim.model.terms import Window
from loadsim.timinglog.facts import ProbeCounts
from loadsim.timinglog.reader import TimingLog

PROBE, FIGURES = "probe", "figures"
"""Keys of a probe's sample: the probe's name, and the figures by name."""

MOST_UNOBSERVED_S, MOST_UNOBSERVED_SHARE, ALWAYS_ALLOWED_S = 30.0, 0.1, 5.0
"""The longest time without a sample, absolute and as a share of the window: after a longer gap, a figure counts as not
measured. A gap of up to `ALWAYS_ALLOWED_S` is always allowed."""

ROUNDING = 1e-9
"""The tolerance in comparisons of shares of time."""


def longest_gap_allowed_s(window_s: Window) -> float:
    """Return the longest time without a sample for which a figure still describes the window."""
    return max(ALWAYS_ALLOWED_S, min(MOST_UNOBSERVED_S, MOST_UNOBSERVED_SHARE * window_s.length_s))


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """The samples of a figure in a window, in time order; at least one."""

    at_s: Sequence[float]
    values: Sequence[float]

    def over_time(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values, and the time (s) that each stands for: since the previous one, as rates and shares do.

        The first value stands for as long as the second. A single value, or several at one instant, stand for 1 s each.
        """
        since = np.diff(np.asarray(self.at_s, np.float64))
        stand_for_s = np.concatenate([since[:1], since])
        return np.asarray(self.values, np.float64), stand_for_s if stand_for_s.sum() > 0 else np.ones(len(self.values))

    def longest_gap_s(self, window_s: Window) -> float:
        return max(after - before for before, after in pairwise((window_s.begin_s, *self.at_s, window_s.end_s)))


def statistics_of(samples: SampleSeries, window_s: Window) -> ProbeStatistics:
    values, stand_for_s = samples.over_time()
    gap_s = samples.longest_gap_s(window_s)
    if gap_s > longest_gap_allowed_s(window_s):
        return ProbeStatistics(len(values), gap_s, None, None, None, None, None)
    return ProbeStatistics(
        samples=len(values),
        longest_gap_s=gap_s,
        mean=_mean(values, stand_for_s),
        p50=_percentile(values, stand_for_s, 50),
        p95=_percentile(values, stand_for_s, 95),
        min=float(values.min()),
        max=float(values.max()),
    )


def _mean(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the weighted mean; rounding never moves it outside the range of the values."""
    return float(np.clip(np.average(values, weights=weights), values.min(), values.max()))


def _percentile(values: NDArray[np.float64], weights: NDArray[np.float64], percent: int) -> float:
    """Return the least value such that at least this share of the weight does not exceed it."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = np.searchsorted(reached, reached[-1] * percent / 100 * (1 - ROUNDING))
    return float(values[order][at])


def _with_send_queue(
    samples: Mapping[tuple[str, str], SampleSeries], window_s: Window
) -> Mapping[tuple[str, str], SampleSeries]:
    """Return the samples, with the calculated figures (`send_queue`) of each send queue.

    A queue without deliveries, or whose deliveries were not measured, has none.
    """
    completed = dict(samples)
    for (probe, figure), queued in samples.items():
        if figure != QUEUED or not (sent := samples.get((probe, SENT))):
            continue
        mean_per_s = statistics_of(sent, window_s).mean
        for name, calculated in CALCULATED.items() if mean_per_s else ():
            values = calculated(queued.at_s, np.asarray(queued.values) / mean_per_s, window_s)
            if values is not None:
                completed[probe, name] = SampleSeries(queued.at_s, values.tolist())
    return completed


def probe_statistics(log: TimingLog, window_s: Window) -> Mapping[str, Mapping[str, ProbeStatistics]] | None:
    """Return the statistics by probe and figure; None without samples."""
    statistics: dict[str, dict[str, ProbeStatistics]] = {}
    for (probe, figure), samples in sorted(_with_send_queue(_samples(log, window_s), window_s).items()):
        statistics.setdefault(probe, {})[figure] = statistics_of(samples, window_s)
    return statistics or None


def samples_of(log: TimingLog) -> Mapping[str, Mapping[str, list[tuple[float, float]]]]:
    """Return the instants and values of all samples of a run in time order, by probe and figure."""
    by_probe: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for sample in log.health:
        if PROBE in sample and sample.get("at_s") is not None:
            for figure, value in sample.figures.items():
                by_probe.setdefault(sample.probe, {}).setdefault(figure, []).append((sample.at_s, float(value)))
    return {
        probe: {figure: sorted(samples) for figure, samples in sorted(figures.items())}
        for probe, figures in sorted(by_probe.items())
    }


def _samples(log: TimingLog, window_s: Window) -> Mapping[tuple[str, str], SampleSeries]:
    """Return the samples in the window, by probe and figure, in the order of their names."""
    return {
        (probe, figure): SampleSeries(*zip(*inside, strict=True))
        for probe, figures in samples_of(log).items()
        for figure, samples in figures.items()
        if (inside := [one for one in samples if window_s.begin_s <= one[0] < window_s.end_s])
    }


def probe_facts(log: TimingLog) -> Mapping[str, ProbeCounts]:
    """Return the package, samples and failures of each probe, summed over all machines."""
    by_name: dict[str, list[ProbeCounts]] = {}
    for source in log.sources:
        for name, counts in sorted((source.facts.probes or {}).items()):
            by_name.setdefault(name, []).append(counts)
    return {
        name: own[-1]._replace(
            samples=sum(counts.samples for counts in own),
            failures=sum(counts.failures for counts in own),
            last_failure=next((counts.last_failure for counts in reversed(own) if counts.last_failure), None),
        )
        for name, own in by_name.items()
    }
