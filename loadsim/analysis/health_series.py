"""Health of engines and machines, and figures of probes, as series over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes import FIGURES, PROBE
from loadsim.analysis.time_series import Bins, Floats
from loadsim.timinglog.reader import TimingLog


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """Health of an engine: its event loop's lag (ms), its share of a core, its memory (bytes)."""

    name: str
    lag_p99_ms: Floats
    lag_max_ms: Floats
    cpu_share: Floats
    rss_bytes: Floats


def engine_series(log: TimingLog, bins: Bins) -> tuple[EngineSeries, ...]:
    """Return the series of every engine with samples, in the order of names."""
    found = []
    for name, samples in _samples(log, "lags_us").items():
        at_us = _instants_us(samples)
        lags = [np.asarray(sample["lags_us"], np.int64) for sample in samples]
        lags_us = np.concatenate(lags)
        ticks_us = np.repeat(at_us, [len(each) for each in lags])
        p99_us, most_us = bins.percentiles(ticks_us, lags_us, (99, 100))
        cpu_share = _mean(bins, samples, "cpu_share")
        rss_bytes = _largest(bins, samples, "rss_bytes")
        found.append(EngineSeries(name, p99_us / 1000, most_us / 1000, cpu_share, rss_bytes))
    return tuple(found)


def machine_cpu_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return the busy share of all cores of each machine."""
    found = {}
    for name, samples in _samples(log, "core_shares").items():
        found[name.rpartition(".")[0]] = _mean(bins, samples, "cpu_share")
    return found


def server_cpu_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """Return the busy share of the server's cores of each machine where it has cores of its own (`--pin`)."""
    cores_of = {
        f"{source.client}.{source.engine}": source.facts["server_cpus"]
        for source in log.sources
        if source.facts.get("pinned") and source.facts.get("server_cpus")
    }
    found = {}
    for name, samples in _samples(log, "core_shares").items():
        cores = cores_of.get(name, ())
        # A sample with fewer cores was taken while one was switched off: its shares have no numbers.
        shares = [
            {**sample, "server_share": sum(sample["core_shares"][core] for core in cores) / len(cores)}
            for sample in samples
            if cores and len(sample["core_shares"]) > max(cores)
        ]
        if shares:
            found[name.rpartition(".")[0]] = _mean(bins, shares, "server_share")
    return found


def probe_series(log: TimingLog, bins: Bins) -> dict[str, dict[str, Floats]]:
    """Return the mean of each figure in each bin, by probe and figure; NaN in bins without a sample."""
    samples: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for sample in log.health:
        if PROBE in sample and "at_s" in sample:
            for figure, value in sample[FIGURES].items():
                samples[sample[PROBE], figure].append({"at_s": sample["at_s"], "value": value})
    found: dict[str, dict[str, Floats]] = {}
    for (probe, figure), own in sorted(samples.items()):
        found.setdefault(probe, {})[figure] = _mean(bins, own, "value")
    return found


def _samples(log: TimingLog, having: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return by `client.engine` the samples with this key and an instant."""
    samples: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for sample in log.health:
        if having in sample and "at_s" in sample:
            client = sample.get("client", log.sources[0].client)
            engine = sample.get("engine", log.sources[0].engine)
            samples[f"{client}.{engine}"].append(sample)
    return dict(sorted(samples.items()))


def _instants_us(samples: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    return np.array([round(sample["at_s"] * 1e6) for sample in samples], np.int64)


def _mean(bins: Bins, samples: Sequence[Mapping[str, Any]], key: str) -> Floats:
    known = [sample for sample in samples if key in sample]
    number = bins.of(_instants_us(known))
    values = np.array([sample[key] for sample in known], np.float64)[number >= 0]
    number = number[number >= 0]
    counts = np.bincount(number, minlength=len(bins))
    sums = np.bincount(number, values, minlength=len(bins))
    return np.asarray(np.divide(sums, counts, out=np.full(len(bins), np.nan), where=counts > 0))


def _largest(bins: Bins, samples: Sequence[Mapping[str, Any]], key: str) -> Floats:
    known = [sample for sample in samples if key in sample]
    return bins.percentiles(_instants_us(known), np.array([sample[key] for sample in known], np.float64), (100,))[0]
