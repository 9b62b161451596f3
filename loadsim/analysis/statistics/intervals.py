"""Confidence intervals of percentiles and of the score within one run.

Times on a server are correlated, so records are not independent. The window is cut into ten blocks.

1. The variation of the share of slow hits between blocks gives its uncertainty over the window (batch means;
   Schmeiser, "Batch size effects in the analysis of simulation output", 1982).
2. The percentiles at both ends of this share bound the interval (Woodruff, "Confidence intervals for medians and other
   position measures", 1952). Only ranks are used, so heavy tails do no harm.
3. The score's interval combines those of its tasks by the correlation of their blocks (Zou and Donner, "Construction of
   confidence limits about effect measures", 2008).

An interval covers another window of the same run. It does not cover another run: see `repeats`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from loadsim.analysis.series.bins import Hits, bins_in, excess, slow_and_all
from loadsim.analysis.statistics.comparison import one_critical_t
from loadsim.analysis.statistics.nearest_rank import percentile
from loadsim.analysis.statistics.repeats import LEVEL
from loadsim.model.terms import Window

BLOCKS = 10
"""Equal blocks of a window, which has a multiple of as many slots. More make intervals shorter and miss slow spells
that last nearly as long as a block."""

WIDENING = 1.25
"""Factor on Student's t. Blocks are correlated, and few slow spells are skewed: with a factor of 1, coverage falls to
90 % at the limit below. `bench.coverage` measures it."""

LONGEST_SPELL_S = 12.0
SPELLS = 300
"""Intervals hold for slow spells with a correlation time of at most a 300th of the window. Windows too short for spells
of 12 s have no interval: their data cannot show if spells were missed. With a 75th of the window, coverage falls to
82 % for spells in a twentieth of the time."""

SHORTEST_WINDOW_S = SPELLS * LONGEST_SPELL_S
"""The shortest window with intervals: an hour."""

LEAST_BEYOND = 15
"""The least number of hits beyond a percentile: 300 hits for the 95th."""

LEAST_RATIO = 0.65
"""The least von Neumann ratio (1941): squared differences of successive blocks, divided by squared deviations. It is
about 2. It is below 0.65 in 0.3 % of windows with independent blocks, and in 0.6 % at the limit above."""

Blocks = NDArray[np.float64]
"""A figure of each block."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The 95 % interval from `low_ms` to `high_ms`, or why there is none."""

    low_ms: float | None = None
    high_ms: float | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals of one driver: the score's and each task's.

    `spell_s` is the correlation time of slow spells up to which they hold; None if there are none.
    """

    score: Interval
    tasks: Mapping[str, Interval]
    spell_s: float | None = None


@dataclass(frozen=True, slots=True)
class _Found:
    """An interval around a percentile, and the unit vector of the blocks' deviations, which is zero if all are."""

    middle_ms: float
    low_ms: float
    high_ms: float
    direction: Blocks


def intervals(
    hits: Sequence[Hits],
    window_s: Window,
    percent: int | Fraction = 95,
) -> Intervals:
    """Return the intervals of each task's percentile, and of the weighted average of those with a weight: the score.

    The score has one only if all its tasks have.
    """
    length_s = window_s.length_s
    if length_s < SHORTEST_WINDOW_S:
        none = Interval(why_not=f"the window is shorter than {SHORTEST_WINDOW_S / 3600:g} h")
        return Intervals(none, {task.task: none for task in hits})
    found = {task.task: _found(task, bins_in(window_s), percent) for task in hits}
    return Intervals(
        score=_score(hits, found),
        tasks={
            task: Interval(why_not=one) if isinstance(one, str) else Interval(one.low_ms, one.high_ms)
            for task, one in found.items()
        },
        spell_s=length_s / SPELLS,
    )


def _found(task: Hits, slots: int, percent: int | Fraction) -> _Found | str:
    """Return a task's interval, or why it has none."""
    hits, share = len(task.took_us), float(percent) / 100
    beyond = min(Fraction(percent), 100 - Fraction(percent)) / 100
    if not beyond:
        return "the longest time has no interval"
    if hits < (least := math.ceil(LEAST_BEYOND / beyond)):
        return f"{hits} hits, at least {least} needed"
    # 1. The excess of slow hits in each block.
    middle_us = percentile(task.took_us, percent)
    slow, everything = slow_and_all(task, slots, middle_us)
    if not everything.reshape(BLOCKS, -1).sum(axis=1).all():
        return f"a tenth of the window has none of its {hits} hits"
    deviations = excess(slow, everything).reshape(BLOCKS, -1).sum(axis=1)
    size = float(np.linalg.norm(deviations))
    if float(np.linalg.norm(np.diff(deviations))) ** 2 < LEAST_RATIO * size**2:
        return "its times are correlated over more than a tenth of the window"
    # 2. The uncertainty of the share of slow hits, and the shares at both ends on the scale of log odds.
    reach = WIDENING * one_critical_t(1 - LEVEL, BLOCKS - 1) * size * math.sqrt(BLOCKS / (BLOCKS - 1)) / hits
    odds, factor = share / (1 - share), math.exp(reach / (share * (1 - share)))
    # 3. The times that have these ranks.
    low, high = math.floor(hits / (1 + factor / odds)), math.ceil(hits / (1 + 1 / (odds * factor))) + 1
    if low < 1 or high > hits:
        return "an end of it lies beyond all of its hits"
    low_us, high_us = (float(task.took_us[rank - 1]) for rank in (low, high))
    return _Found(middle_us / 1000, low_us / 1000, high_us / 1000, deviations / (size or 1.0))


def _score(hits: Sequence[Hits], found: Mapping[str, _Found | str]) -> Interval:
    """Return the score's interval.

    The weighted distances to the tasks' ends are added as vectors: parallel if tasks are slow in the same blocks,
    orthogonal if they are uncorrelated.
    """
    middle, low, high, weights = 0.0, np.zeros(BLOCKS), np.zeros(BLOCKS), 0.0
    missing = []
    for task in hits:
        if task.weight <= 0:
            continue
        one = found[task.task]
        if isinstance(one, str):
            missing.append(f"{task.task}: {one}")
            continue
        middle += task.weight * one.middle_ms
        low += task.weight * (one.middle_ms - one.low_ms) * one.direction
        high += task.weight * (one.high_ms - one.middle_ms) * one.direction
        weights += task.weight
    if missing or not weights:
        return Interval(why_not="; ".join(missing) or "there is no score")
    low_ms, high_ms = middle - float(np.linalg.norm(low)), middle + float(np.linalg.norm(high))
    return Interval(low_ms / weights, high_ms / weights)
