"""Confidence intervals of percentiles and of the score within one run.

Times on a server are correlated, so records are not independent. The window is therefore divided into ten blocks.

1. The variation between blocks in the share of slow hits gives its uncertainty over the window (batch means;
   Schmeiser, "Batch size effects in the analysis of simulation output", 1982).
2. The percentiles at both ends of this share bound the interval (Woodruff, "Confidence intervals for medians and other
   position measures", 1952). Only ranks are used, so heavy tails do no harm.
3. The score's interval combines those of its tasks by the correlation of their blocks (Zou and Donner, "Construction of
   confidence limits about effect measures", 2008).

An interval holds for another window of the same run, but not for another run: see `repeats`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadsim.model.figures import Bounds, NoInterval
from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits, bins_in, excess, slow_and_all
from loadsim.statistics.comparison import one_critical_t
from loadsim.statistics.repeats import LEVEL

BLOCKS = 10
"""The number of equal blocks, which divides the number of slots. More blocks would make intervals shorter, but miss
slow spells that last nearly as long as a block."""

WIDENING = 1.25
"""A factor on Student's t. Blocks are correlated, and a few slow spells are skewed: with a factor of 1, coverage falls
to 90 % at the limit below. `bench.coverage` measures it."""

LONGEST_SPELL_S = 12.0
SPELLS = 300
"""Intervals hold for slow spells with a correlation time of at most a 300th of the window. Windows too short for spells
of 12 s have no interval: their data cannot show whether spells were missed. At a 75th of the window, coverage falls to
82 % for spells that take up a twentieth of the time."""

SHORTEST_WINDOW_S = SPELLS * LONGEST_SPELL_S
"""The shortest window with intervals: an hour."""

LEAST_HITS = 300
"""The fewest hits for an interval; 15 of them lie beyond the percentile."""

LEAST_RATIO = 0.65
"""The least von Neumann ratio (1941): squared differences between successive blocks, divided by squared deviations. It
is usually about 2; it is below 0.65 in 0.3 % of windows with independent blocks, and in 0.6 % at the limit above."""

Blocks = NDArray[np.float64]
"""One figure per block."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """The 95 % intervals for one driver: each task's, and the score's, which is None unless all its tasks have one.

    They hold for slow spells with a correlation time of at most a 300th of the window.
    """

    score: Bounds | None
    tasks: Mapping[str, Bounds | NoInterval]


@dataclass(frozen=True, slots=True)
class _Around:
    """An interval around a percentile, and the unit vector of the blocks' deviations, or zero if there are none."""

    middle_ms: float
    bounds_ms: Bounds
    direction: Blocks


def intervals(hits: Sequence[Hits], window_s: Window) -> Intervals:
    """Return the intervals for each task's 95th percentile, and for the average over tasks with a weight."""
    if window_s.length_s < SHORTEST_WINDOW_S:
        return Intervals(None, {task.task: NoInterval.SHORT_WINDOW for task in hits})
    around = {task.task: _around(task, bins_in(window_s)) for task in hits}
    bounds = {task: ends if isinstance(ends, NoInterval) else ends.bounds_ms for task, ends in around.items()}
    return Intervals(_score([(task.weight, around[task.task]) for task in hits if task.weight > 0]), bounds)


def _around(task: Hits, slots: int) -> _Around | NoInterval:
    hits = len(task)
    if hits < LEAST_HITS:
        return NoInterval.FEW_HITS
    # 1. The excess of slow hits in each block.
    middle_us = task.percentile_us(95)
    slow, everything = slow_and_all(task, slots, middle_us)
    if not everything.reshape(BLOCKS, -1).sum(axis=1).all():
        return NoInterval.EMPTY_BLOCK
    deviations = excess(slow, everything).reshape(BLOCKS, -1).sum(axis=1)
    size = float(np.linalg.norm(deviations))
    if float(np.linalg.norm(np.diff(deviations))) ** 2 < LEAST_RATIO * size**2:
        return NoInterval.CORRELATED
    # 2. The uncertainty in the share of slow hits, and the shares at both ends, on the scale of log odds.
    reach = WIDENING * one_critical_t(1 - LEVEL, BLOCKS - 1) * size * math.sqrt(BLOCKS / (BLOCKS - 1)) / hits
    odds, factor = 0.95 / 0.05, math.exp(reach / (0.95 * 0.05))
    # 3. The times at these ranks.
    low, high = math.floor(hits / (1 + factor / odds)), math.ceil(hits / (1 + 1 / (odds * factor))) + 1
    if low < 1 or high > hits:
        return NoInterval.BEYOND_HITS
    low_us, high_us = (task.ranked_us(rank) for rank in (low, high))
    return _Around(middle_us / 1000, (low_us / 1000, high_us / 1000), deviations / (size or 1.0))


def _score(tasks: Sequence[tuple[float, _Around | NoInterval]]) -> Bounds | None:
    """Return the score's interval from the weight and interval of each of its tasks.

    The weighted distances to the tasks' ends are added as vectors: parallel if tasks are slow in the same blocks,
    orthogonal if they are uncorrelated.
    """
    middle, low, high, weights = 0.0, np.zeros(BLOCKS), np.zeros(BLOCKS), 0.0
    for weight, around in tasks:
        if isinstance(around, NoInterval):
            return None
        middle += weight * around.middle_ms
        low += weight * (around.middle_ms - around.bounds_ms[0]) * around.direction
        high += weight * (around.bounds_ms[1] - around.middle_ms) * around.direction
        weights += weight
    if not weights:
        return None
    low_ms, high_ms = middle - float(np.linalg.norm(low)), middle + float(np.linalg.norm(high))
    return low_ms / weights, high_ms / weights
