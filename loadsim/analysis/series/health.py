"""Health of engines and machines, and figures of probes, over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes.statistics import samples_of
from loadsim.analysis.series.tasks import Bins, Floats
from loadsim.timinglog.health_samples import Sample
from loadsim.timinglog.reader import TimingLog


def engine_series(log: TimingLog, bins: Bins) -> list[tuple[Floats, Floats]]:
    """Return the 99th percentile of the event loop's lag (ms) and the share of a core, for each engine with samples."""
    series = []
    for samples in _samples(log, "lags_us").values():
        lags = [np.asarray(sample.lags_us, np.int64) for sample in samples]
        at_us, _ = _columns([(sample.at_s, 0.0) for sample in samples])
        ticks_us, lags_us = np.repeat(at_us, [len(each) for each in lags]), np.concatenate(lags)
        (p99_us,) = bins.percentiles(ticks_us, lags_us, (99,))
        series.append((p99_us / 1000, _mean(bins, _values(samples, "cpu_share"))))
    return series


def machine_cpu_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return each machine's busy share of all its cores."""
    series = {}
    for name, samples in _samples(log, "core_shares").items():
        series[name.rpartition(".")[0]] = _mean(bins, _values(samples, "cpu_share"))
    return series


def probe_series(log: TimingLog, bins: Bins) -> dict[str, dict[str, Floats]]:
    """Return the mean of each figure in each bin, by probe and figure; NaN in bins without a sample."""
    return {
        probe: {figure: _mean(bins, samples) for figure, samples in figures.items()}
        for probe, figures in samples_of(log).items()
    }


def _samples(log: TimingLog, having: str) -> dict[str, list[Sample]]:
    """Return the samples that have this key and an instant, by `client.engine`."""
    samples: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in log.health:
        if having in sample and "at_s" in sample:
            samples[f"{sample.client}.{sample.engine}"].append(sample)
    return dict(sorted(samples.items()))


def _values(samples: Sequence[Sample], key: str) -> list[tuple[float, Any]]:
    return [(sample.at_s, sample[key]) for sample in samples if key in sample]


def _columns(values: Sequence[tuple[float, float]]) -> tuple[NDArray[np.int64], Floats]:
    at_us = [round(at_s * 1e6) for at_s, _ in values]
    return np.array(at_us, np.int64), np.array([value for _, value in values], np.float64)


def _mean(bins: Bins, samples: Sequence[tuple[float, float]]) -> Floats:
    at_us, values = _columns(samples)
    number = bins.of(at_us)
    values, number = values[number >= 0], number[number >= 0]
    counts = np.bincount(number, minlength=len(bins))
    sums = np.bincount(number, values, minlength=len(bins))
    return np.asarray(np.divide(sums, counts, out=np.full(len(bins), np.nan), where=counts > 0))
