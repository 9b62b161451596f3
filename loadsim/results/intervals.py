"""Confidence intervals of percentiles and of the score within one run: how much of a figure is chance.

A circular block bootstrap (Politis and Romano 1992). What happens on a server hangs together in time, so not single
records are drawn again but whole blocks of the window, with everything that was due in them; how long a block must be,
the data say (`slots.block_slots`). All tasks are drawn in the same blocks: when the server is slow, it is slow for all
of them, and the score's interval has that in it. An interval says what another window of the same run might have come
to. It knows nothing of another run: see `repeats`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from loadsim.results.repeats import LEVEL
from loadsim.results.score import SCORED_PERCENT, percentile, rank
from loadsim.results.slots import LEAST_SLOT_S, Hits, block_slots, excess, slots_in, slow_and_all
from loadsim.results.student import one_critical_t

REPLICATES = 1000
"""How often a window is drawn again: the ends of an interval are at the 20th from either side, or a little farther."""

LEAST_BLOCKS, MOST_BLOCKS = 8, 12
"""Into how many blocks the window is cut. With fewer, intervals become too short to be told. No more, even when the
data ask for shorter blocks: how far times hang together is itself uncertain, and more than some ten blocks gain little
(Schmeiser, "Batch size effects in the analysis of simulation output", 1982)."""

LEAST_BEYOND = 5
"""So many hits must lie beyond a percentile: 100 hits for the 95th."""

_AT_ONCE = 1_000_000
"""So many numbers of the bootstrap are in memory at a time."""

Drawn = NDArray[np.float64]
"""How often each slot of the window was drawn, a row for each replicate."""

Figures = NDArray[np.float64]
"""A figure of each replicate."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low_ms` to `high_ms`, at the level 95 %; or why there is none."""

    low_ms: float | None = None
    high_ms: float | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Intervals:
    """Of one client module: the score's, each task's, and how long the blocks were; None when none were drawn."""

    score: Interval
    tasks: Mapping[str, Interval]
    block_s: float | None = None


def intervals(
    hits: Sequence[Hits],
    window_s: tuple[float, float],
    seed: str,
    percent: int | Fraction = SCORED_PERCENT,
) -> Intervals:
    """The intervals of each task's percentile, and of the weighted average of those with a weight: the score.

    The same seed (the plan's digest, say) gives the same intervals. The score has one only when all its tasks have.
    """
    slots, length_s = slots_in(window_s), window_s[1] - window_s[0]
    why_not = {task.task: _too_few(task, percent) for task in hits}
    enough = [task for task in hits if why_not[task.task] is None]
    if slots < LEAST_BLOCKS:
        return _none(why_not, f"the window is shorter than {LEAST_BLOCKS * LEAST_SLOT_S:g} s")
    needed = [block_slots(excess(*slow_and_all(task, slots, percentile(task.took_us, percent)))) for task in enough]
    block = max([*needed, -(-slots // MOST_BLOCKS)])
    block_s = block * length_s / slots
    if block * LEAST_BLOCKS > slots:
        return _none(why_not, f"times hang together over {block_s:.3g} s, too long for a window of {length_s:g} s")
    drawn = draw(slots, block, seed)
    replicates = {}
    for task in enough:
        found = drawn_percentiles(task, drawn, percent)
        if found is None:
            why_not[task.task] = "its hits lie in too few parts of the window"
        else:
            replicates[task.task] = found / 1000
    tail = _tail(slots / block)
    said = _no_score(hits, why_not)
    return Intervals(
        score=Interval(why_not=said) if said else _between(_scores(hits, replicates), tail),
        tasks={
            task: _between(replicates[task], tail) if task in replicates else Interval(why_not=said)
            for task, said in why_not.items()
        },
        block_s=block_s if replicates else None,
    )


def _none(why_not: Mapping[str, str | None], obstacle: str) -> Intervals:
    return Intervals(
        Interval(why_not=obstacle), {task: Interval(why_not=said or obstacle) for task, said in why_not.items()}
    )


def _too_few(task: Hits, percent: int | Fraction) -> str | None:
    """Why a task has no interval, or None when it has enough hits."""
    beyond = min(Fraction(percent), 100 - Fraction(percent)) / 100
    if not beyond:
        return "the longest time has no interval"
    least = math.ceil(LEAST_BEYOND / beyond)
    return f"{len(task.took_us)} hits, at least {least} needed" if len(task.took_us) < least else None


def _no_score(hits: Sequence[Hits], why_not: Mapping[str, str | None]) -> str | None:
    """Why the score has no interval, or None when all its tasks have one."""
    scored = [task.task for task in hits if task.weight > 0]
    missing = [f"{task}: {said}" for task in scored if (said := why_not[task])]
    return "; ".join(missing) or (None if scored else "there is no score")


def _scores(hits: Sequence[Hits], replicates: Mapping[str, Figures]) -> Figures:
    """The score of each replicate."""
    scored = [task for task in hits if task.weight > 0]
    weights = np.array([task.weight for task in scored])
    scores: Figures = weights @ np.array([replicates[task.task] for task in scored]) / weights.sum()
    return scores


def draw(slots: int, block: int, seed: str) -> Drawn:
    """Blocks of consecutive slots from anywhere in the window, which is closed to a circle, until it is full again.

    Of PCG64 only the raw numbers are taken, which are the same with every version of numpy.
    """
    key = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=16).digest(), "big")
    blocks = -(-slots // block)
    starts = (np.random.PCG64(key).random_raw(REPLICATES * blocks) % slots).astype(np.int64)
    chosen = (starts.reshape(REPLICATES, blocks, 1) + np.arange(block)) % slots
    chosen = chosen.reshape(REPLICATES, blocks * block)[:, :slots] + slots * np.arange(REPLICATES)[:, None]
    times = np.bincount(chosen.ravel(), minlength=REPLICATES * slots)
    return times.reshape(REPLICATES, slots).astype(np.float64)


def drawn_percentiles(task: Hits, drawn: Drawn, percent: int | Fraction) -> Figures | None:
    """The percentile of each replicate, exactly, in microseconds; None when one of them has no hit at all.

    A replicate has each hit as often as its slot was drawn: its percentile is a weighted one of all hits. These, sorted
    as they are, are cut into parts of equal size; a product of matrices says how many hits each replicate has in every
    part and those before it, and only the part in which the rank lies is gone through hit by hit.
    """
    slots, length = drawn.shape[1], len(task.took_us)
    size = math.isqrt(length) + 1
    hits = np.stack([np.bincount(task.slot[at : at + size], minlength=slots) for at in range(0, length, size)])
    up_to = drawn @ np.cumsum(hits, axis=0).T.astype(np.float64)
    if up_to[:, -1].min() < 1:
        return None
    ranks = np.array([rank(int(samples), percent) for samples in up_to[:, -1]], dtype=np.float64)[:, None]
    within = np.argmax(up_to >= ranks, axis=1)[:, None]
    before = np.where(within > 0, np.take_along_axis(up_to, np.maximum(within - 1, 0), axis=1), 0)
    found = np.empty(len(drawn))
    for some in np.array_split(np.arange(len(drawn)), -(-len(drawn) * size // _AT_ONCE)):
        places = np.minimum(within[some] * size + np.arange(size), length - 1)
        often = np.take_along_axis(drawn[some], task.slot[places].astype(np.int64), axis=1)
        reached = np.argmax(np.cumsum(often, axis=1) >= ranks[some] - before[some], axis=1)
        found[some] = task.took_us[np.take_along_axis(places, reached[:, None], axis=1)[:, 0]]
    return found


def _tail(blocks: float) -> float:
    """The share of the replicates that lie beyond either end of an interval, for so many blocks in the window.

    Half of 5 %, less what few blocks make the bootstrap's spread too small by: Student's t instead of the normal
    distribution, and n - 1 instead of n (Hesterberg, "What teachers should know about the bootstrap", 2015, section
    5.3.1: the expanded percentile interval).
    """
    reach = one_critical_t(1 - LEVEL, max(1, int(blocks) - 1)) * math.sqrt(blocks / (blocks - 1))
    return NormalDist().cdf(-reach)


def _between(replicates: Figures, tail: float) -> Interval:
    ordered = np.sort(replicates)
    beyond = int(tail * len(ordered))
    return Interval(float(ordered[beyond]), float(ordered[-1 - beyond]))
