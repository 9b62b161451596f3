"""The utilisation law: the utilisation of a resource grows in proportion to the users, U = X * D.

X is the throughput, and D a task's demand on the resource (Denning and Buzen, "The operational analysis of queueing
network models", 1978). So if n users take the share U of a resource, n / U users fill it, as long as the mix of tasks
and the demands stay the same.

Samples in one window are correlated. The window is divided into ten blocks, whose means are nearly independent (batch
means; Schmeiser, "Batch size effects in the analysis of simulation output", 1982). The ratio of two figures is the
ratio of their sums, and the blocks' deviations from it give its interval (Cochran, Sampling Techniques, chapter 6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.probes.statistics import longest_gap_allowed_s
from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.findings.formats import Value
from loadsim.model.terms import Window
from loadsim.statistics.comparison import one_critical_t
from loadsim.statistics.intervals import BLOCKS, LEAST_RATIO, WIDENING
from loadsim.statistics.repeats import LEVEL

LEAST_SAMPLES = 3
"""The fewest samples in a block."""

LEAST_UTILISATION = 0.05
"""Lower utilisations are not extrapolated: 20 times the load would have effects that the run did not have."""

WIDEST = 2.0
"""The largest ratio between the ends of an interval; a wider one is useless for sizing."""

EXACT = 1e-9
"""Deviations of blocks below this share of a figure are rounding errors."""

Blocks = NDArray[np.float64]
"""One figure per block of the window."""

Samples = Sequence[tuple[float, float]]
"""Rising instants in seconds, and values; a value is the mean since the previous sample."""


class NotKnown(Exception):
    """The reason why a figure cannot be given.

    `users_beyond` is a lower bound on the number of users; None if unknown.
    """

    def __init__(self, code: Code, users_beyond: float | None = None, /, **values: Value) -> None:
        self._why = finding(code, **values)
        super().__init__(self._why.words)
        self.users_beyond = users_beyond

    def of(self, name: str) -> Finding:
        """Return the reason as a finding about a resource, demand or probe."""
        return replace(self._why, where=name)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval; `high` may be infinite."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


def block_means(samples: Samples, window_s: Window) -> Blocks:
    """Return the mean of each block, with samples weighted by the time that they cover.

    Raises `NotKnown` if there are too few samples, or none for longer than a criterion allows.
    """
    begin_s, length_s = window_s.begin_s, window_s.length_s
    inside = [(at_s, value, at_s - before) for (before, _), (at_s, value) in pairwise(samples) if begin_s <= at_s]
    inside = [sample for sample in inside if sample[0] < window_s.end_s]
    instants = [begin_s, *(at_s for at_s, *_ in inside), window_s.end_s]
    gap_s = max(after - before for before, after in pairwise(instants))
    if gap_s > longest_gap_allowed_s(window_s):
        raise NotKnown(Code.NO_SAMPLES, gap_s=gap_s)
    sums, weights, counts = np.zeros(BLOCKS), np.zeros(BLOCKS), np.zeros(BLOCKS)
    for at_s, value, passed_s in inside:
        block = min(int((at_s - begin_s) * BLOCKS / length_s), BLOCKS - 1)
        sums[block] += value * passed_s
        weights[block] += passed_s
        counts[block] += 1
    if counts.min() < LEAST_SAMPLES:
        raise NotKnown(Code.FEW_SAMPLES, samples=len(inside), limit=LEAST_SAMPLES)
    if weights.min() <= 0:
        raise NotKnown(Code.SAMPLES_AT_ONCE)
    return np.asarray(sums / weights)


def block_rates(instants_us: NDArray[np.int64], window_s: Window) -> Blocks:
    """Return the number of events per second in each block of the window."""
    begin_us, end_us = (round(at_s * 1_000_000) for at_s in window_s)
    inside = instants_us[(instants_us >= begin_us) & (instants_us < end_us)]
    numbers = (inside - begin_us) * BLOCKS // (end_us - begin_us)
    return np.asarray(np.bincount(numbers, minlength=BLOCKS) * (BLOCKS / window_s.length_s), np.float64)


def ratio(parts: Blocks, wholes: Blocks | float) -> Estimate:
    """Return the ratio of the sums of two figures, with its interval.

    Raises `NotKnown` if the denominator is not above 0, or if the ratio drifts over more than a tenth of the window.
    """
    wholes = np.broadcast_to(np.asarray(wholes, np.float64), parts.shape)
    mean = float(wholes.mean())
    if mean <= 0:
        raise NotKnown(Code.NO_DIVISOR)
    value = float(parts.mean()) / mean
    deviations = parts - value * wholes
    size = float(np.linalg.norm(deviations))
    if size < EXACT * float(np.linalg.norm(parts)):
        return Estimate(value, value, value)  # a constant: rounding errors make no trend
    if float(np.linalg.norm(np.diff(deviations))) ** 2 < LEAST_RATIO * size**2:
        raise NotKnown(Code.DRIFTS)
    error = size / math.sqrt(BLOCKS * (BLOCKS - 1)) / mean
    reach = WIDENING * one_critical_t(1 - LEVEL, BLOCKS - 1) * error
    return Estimate(value, value - reach, value + reach)


def levels(parts: Blocks, wholes: Blocks | float) -> Estimate:
    """Return the ratio of two levels, such as memory, that drift naturally; the interval is its range across blocks.

    Raises `NotKnown` if a denominator is not above 0.
    """
    wholes = np.broadcast_to(np.asarray(wholes, np.float64), parts.shape)
    if float(wholes.min()) <= 0:
        raise NotKnown(Code.NO_DIVISOR)
    shares = parts / wholes
    low, high = float(shares.min()), float(shares.max())
    # If shares are equal, rounding may push the ratio of the sums out of their range.
    return Estimate(min(max(float(parts.sum() / wholes.sum()), low), high), low, high)


def users_at(users: int, utilisation: Estimate) -> Estimate:
    """Return the number of users at which a resource is full, by the utilisation law.

    Raises `NotKnown` if the resource is hardly used, or if the interval is too wide.
    """
    if utilisation.value < LEAST_UTILISATION:
        beyond = users / max(utilisation.high, LEAST_UTILISATION)
        used = round(utilisation.value, 4)
        raise NotKnown(Code.HARDLY_USED, beyond, used_share=used, limit_share=LEAST_UTILISATION)
    estimate = Estimate(
        users / utilisation.value,
        users / utilisation.high,
        users / utilisation.low if utilisation.low > 0 else math.inf,
    )
    if estimate.high > WIDEST * estimate.low:
        raise NotKnown(Code.WIDE_INTERVAL, low=estimate.low, high=estimate.high)
    return estimate
