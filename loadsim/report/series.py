"""A log as series over time, for the charts of a report; and the percentiles of each task.

Time is cut into equal stretches (bins). Arrays have a figure for each of them, and NaN where there is none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.results.delivery import journeys
from loadsim.results.gathering import FAILURES
from loadsim.results.merge import WITHOUT_WINDOW, in_window
from loadsim.results.records import NEVER, OUTCOME, Records
from loadsim.results.score import LATENESS, TIMED, percentile
from loadsim.results.timinglog import TimingLog

Floats = NDArray[np.float64]

WIDTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""How long a bin may be."""

MOST_BINS = 60

SENDING = ("SEND", "REPLY", "REPLY ALL", "FORWARD")
"""The tasks that make mail."""


TAILS = tuple(Fraction(of_ten, 10**decade) for decade in range(1, 9) for of_ten in (10, 5, 2))
"""The shares of hits that may be slower, for percentile curves: 100 %, 50 %, 20 %, 10 %, 5 % and so on."""


@dataclass(frozen=True, slots=True)
class Bins:
    """The time from begin to end (s from the common start) in stretches of `width_s`; the last may be shorter."""

    begin_s: float
    end_s: float
    width_s: float

    def __len__(self) -> int:
        return max(1, math.ceil(round((self.end_s - self.begin_s) / self.width_s, 9)))

    @property
    def starts_s(self) -> Floats:
        """When each begins."""
        starts_s: Floats = self.begin_s + self.width_s * np.arange(len(self), dtype=np.float64)
        return starts_s

    @property
    def lengths_s(self) -> Floats:
        """How long each is."""
        lengths_s: Floats = np.minimum(self.width_s, self.end_s - self.starts_s)
        return lengths_s

    @property
    def middles_s(self) -> Floats:
        """The middle of each."""
        middles_s: Floats = self.starts_s + self.lengths_s / 2
        return middles_s

    def of(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the bin that each instant lies in; -1 outside of all."""
        bins = (instants_us - round(self.begin_s * 1e6)) // round(self.width_s * 1e6)
        return np.where(in_window(instants_us, (self.begin_s, self.end_s)), bins, -1)

    def count(self, instants_us: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of the instants lie in each."""
        found = self.of(instants_us)
        return np.bincount(found[found >= 0], minlength=len(self))

    def rate_per_s(self, instants_us: NDArray[np.int64]) -> Floats:
        """The same per second."""
        rates: Floats = self.count(instants_us) / self.lengths_s
        return rates

    def percentiles(
        self, instants_us: NDArray[np.int64], values: NDArray[Any], percents: Sequence[int]
    ) -> list[Floats]:
        """Nearest-rank percentiles of the values of each bin, an array for each percentage."""
        number = self.of(instants_us)
        values, number = values[number >= 0], number[number >= 0]
        ordered = values[np.lexsort((values, number))]
        hits = np.bincount(number, minlength=len(self))
        firsts, filled = np.cumsum(hits) - hits, hits > 0
        found = [np.full(len(self), np.nan) for _ in percents]
        for percent, figures in zip(percents, found, strict=True):
            ranks = np.maximum(1, -(-percent * hits // 100))
            figures[filled] = ordered[(firsts + ranks - 1)[filled]]
        return found


def bins_of(log: TimingLog) -> Bins:
    """The bins for all of a run from the common start on, or for what a truncated log has left of it."""
    begin_s, end_s = log.header.get("truncated_s") or (0.0, _end_s(log))
    for width_s in WIDTHS_S:
        if end_s - begin_s <= width_s * MOST_BINS:
            return Bins(float(begin_s), float(end_s), float(width_s))
    return Bins(float(begin_s), float(end_s), math.ceil((end_s - begin_s) / MOST_BINS))


def _end_s(log: TimingLog) -> float:
    """As long as the run was to last; as far as its records go, where the log does not say it or is of many runs."""
    lasted_s = float(log.header.get("duration_s") or 0)
    if lasted_s > 0 and len({source.run for source in log.sources}) == 1:
        return lasted_s
    due_us = _windowed(log)["scheduled_us"]
    return max(lasted_s, math.ceil(int(due_us.max()) / 1e6) + 1 if len(due_us) else 0, 1)


def _windowed(log: TimingLog) -> Records:
    """The tasks that are held against the window."""
    return log.tasks[~_named(log, log.tasks, WITHOUT_WINDOW)]


def _named(log: TimingLog, tasks: Records, names: Sequence[str]) -> NDArray[np.bool_]:
    wanted: NDArray[np.bool_] = np.isin(np.array(log.strings), names)[tasks["task"]]
    return wanted


@dataclass(frozen=True, slots=True)
class TaskSeries:
    """One task of one client module: service times of its hits by due time, in ms.

    `tail_ms` are its percentiles over the window, one for each share of `TAILS` that is not smaller than one hit.
    """

    task: str
    protocol: str
    weight: float
    p50_ms: Floats
    p95_ms: Floats
    tail_ms: Floats


def task_series(
    log: TimingLog, bins: Bins, window_s: tuple[float, float], weights: Mapping[str, float]
) -> tuple[TaskSeries, ...]:
    """Every task with a hit, those that weigh most first, then by name; without LOGON and LOGOFF."""
    tasks = _windowed(log)
    hits = tasks[tasks["outcome"] == OUTCOME["ok"]]
    found = []
    for protocol in np.unique(hits["protocol"]):
        for task in np.unique(hits["task"]):
            own = hits[(hits["protocol"] == protocol) & (hits["task"] == task)]
            if len(own):
                took_us = own["ended_us"] - own["started_us"]
                p50_us, p95_us = bins.percentiles(own["scheduled_us"], took_us, (50, 95))
                name = log.strings[task]
                tail_ms = _tail_us(took_us[in_window(own["scheduled_us"], window_s)]) / 1000
                weight = float(weights.get(name, 0))
                found.append(TaskSeries(name, log.strings[protocol], weight, p50_us / 1000, p95_us / 1000, tail_ms))
    return tuple(sorted(found, key=lambda one: (-one.weight, one.task, one.protocol)))


def _tail_us(samples_us: NDArray[np.int64]) -> Floats:
    """The percentiles at `TAILS`; NaN where so small a share of the samples is less than one of them."""
    ordered = np.sort(samples_us)
    return np.array(
        [
            percentile(ordered, (1 - tail) * 100) if len(ordered) and tail * len(ordered) >= 1 else np.nan
            for tail in TAILS
        ]
    )


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tasks per second: due, ended (well or badly), and ended badly."""

    planned_per_s: Floats
    done_per_s: Floats
    failed_per_s: Floats


def throughput_series(log: TimingLog, bins: Bins) -> Throughput:
    """Of all tasks but LOGON and LOGOFF, by the instant at which they were due, or ended."""
    tasks = _windowed(log)
    failed = np.isin(tasks["outcome"], [OUTCOME[name] for name in FAILURES])
    done = failed | (tasks["outcome"] == OUTCOME["ok"])
    return Throughput(
        bins.rate_per_s(tasks["scheduled_us"]),
        bins.rate_per_s(tasks["ended_us"][done]),
        bins.rate_per_s(tasks["ended_us"][failed]),
    )


def lateness_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """By cause, the 95th percentile (ms) of how late tasks began that were due then.

    The generator's is that of tasks which the clock begins, as in the answer.
    """
    started = _windowed(log)
    started = started[started["started_us"] != NEVER]
    timed = started[_named(log, started, TIMED)]
    series = {}
    for cause in LATENESS:
        of_cause = timed if cause == "generator" else started
        (late_s,) = bins.percentiles(of_cause["scheduled_us"], of_cause[f"late_{cause}_s"], (95,))
        series[cause] = late_s * 1000
    return series


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """How an engine was: its event loop's lag (ms), its share of a core, its memory (bytes)."""

    name: str
    lag_p99_ms: Floats
    lag_max_ms: Floats
    cpu_share: Floats
    rss_bytes: Floats


def engine_series(log: TimingLog, bins: Bins) -> tuple[EngineSeries, ...]:
    """Of every engine that looked at itself, by the instants of its samples, in the order of their names."""
    found = []
    for name, samples in _samples(log, "lags_us").items():
        at_us = _instants_us(samples)
        lags = [np.asarray(sample["lags_us"], np.int64) for sample in samples]
        lags_us = np.concatenate(lags)
        ticks_us = np.repeat(at_us, [len(each) for each in lags])
        p99_us, most_us = bins.percentiles(ticks_us, lags_us, (99, 100))
        cpu_share = _mean(bins, samples, "cpu_share")
        (rss_bytes,) = _percentiles_of(bins, samples, "rss_bytes", (100,))
        found.append(EngineSeries(name, p99_us / 1000, most_us / 1000, cpu_share, rss_bytes))
    return tuple(found)


def machine_cpu_series(log: TimingLog, bins: Bins) -> dict[str, Floats]:
    """By machine, the share of all its cores that was taken by whomever."""
    found = {}
    for name, samples in _samples(log, "core_shares").items():
        found[name.rpartition(".")[0]] = _mean(bins, samples, "cpu_share")
    return found


def _samples(log: TimingLog, having: str) -> dict[str, list[Mapping[str, Any]]]:
    """By `client.engine`, the placed samples of health with this key."""
    samples = defaultdict(list)
    for sample in log.health:
        if having in sample and "at_s" in sample:
            client = sample.get("client", log.sources[0].client)
            engine = sample.get("engine", log.sources[0].engine)
            samples[f"{client}.{engine}"].append(sample)
    return dict(sorted(samples.items()))


def _instants_us(samples: Sequence[Mapping[str, Any]]) -> NDArray[np.int64]:
    return np.array([round(sample["at_s"] * 1e6) for sample in samples], np.int64)


def _mean(bins: Bins, samples: Sequence[Mapping[str, Any]], key: str) -> Floats:
    told = [sample for sample in samples if key in sample]
    number = bins.of(_instants_us(told))
    values = np.array([sample[key] for sample in told], np.float64)[number >= 0]
    number = number[number >= 0]
    counts = np.bincount(number, minlength=len(bins))
    sums = np.bincount(number, values, minlength=len(bins))
    means: Floats = np.divide(sums, counts, out=np.full(len(bins), np.nan), where=counts > 0)
    return means


def _percentiles_of(
    bins: Bins, samples: Sequence[Mapping[str, Any]], key: str, percents: Sequence[int]
) -> list[Floats]:
    told = [sample for sample in samples if key in sample]
    return bins.percentiles(_instants_us(told), np.array([sample[key] for sample in told], np.float64), percents)


@dataclass(frozen=True, slots=True)
class MailSeries:
    """Mail per second: messages that were due and those that were sent; then for each recipient, copies that the server
    accepted and copies that came into sight. `under_way` counts, at the end of each bin, what was accepted and not in
    sight yet. Delivery times (ms) are of copies that were accepted then and announced.
    """

    due_per_s: Floats
    sent_per_s: Floats
    accepted_per_s: Floats
    arrived_per_s: Floats
    under_way: Floats
    p50_ms: Floats
    p95_ms: Floats


def mail_series(log: TimingLog, bins: Bins) -> MailSeries:
    """The flow of mail over time."""
    sending = log.tasks[_named(log, log.tasks, SENDING)]
    mail = journeys(log)
    arrived = mail.arrived_us != NEVER
    took_us = np.maximum(mail.arrived_us - mail.accepted_us, 0)
    p50_us, p95_us = bins.percentiles(mail.accepted_us[mail.announced], took_us[mail.announced], (50, 95))
    ends_us = np.rint((bins.starts_s + bins.lengths_s) * 1e6).astype(np.int64)
    # before its sender has read the acceptance, a message may be there already: then it is never under way
    came_us = np.maximum(mail.arrived_us, mail.accepted_us)[arrived]
    under_way = np.searchsorted(np.sort(mail.accepted_us), ends_us) - np.searchsorted(np.sort(came_us), ends_us)
    return MailSeries(
        due_per_s=bins.rate_per_s(sending["scheduled_us"]),
        sent_per_s=bins.rate_per_s(sending["ended_us"][sending["outcome"] == OUTCOME["ok"]]),
        accepted_per_s=bins.rate_per_s(mail.accepted_us),
        arrived_per_s=bins.rate_per_s(came_us),
        under_way=under_way.astype(np.float64),
        p50_ms=p50_us / 1000,
        p95_ms=p95_us / 1000,
    )
