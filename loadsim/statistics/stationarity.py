"""Tests for a steady window: if times rise or fall, their percentile depends on the window.

Two figures are computed for each slot: how many hits exceed each decile of their task, and how many exceed its 95th
percentile. Tasks count by their weight in the score. In a steady window, both figures vary only by chance.

Two tests use Student's t: the figure rises or falls over the window (two-sided, by its slope), or it is larger in the
first quarter than later (one-sided, by the difference). Successive slots are correlated, so random variation is
estimated from blocks of a twelfth of the window, after removing a line and the best-fitting step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from loadsim.findings.catalogue import Code
from loadsim.findings.finding import Finding, finding
from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits, Series, bins_in, excess, slow_and_all
from loadsim.statistics.comparison import one_critical_t

FALSE_ALARMS = 0.01
"""About this share of steady windows is called unsteady, a quarter of it by each of the four tests. The share doubles
for times that are correlated over a fiftieth of the window."""

LEAST_SLOTS = 40
LEAST_SLOW = 100
"""The fewest hits slower than the median, or than the 95th percentile, for a valid test."""

BLOCKS = 12
"""The number of blocks in the window. With fewer, tests find too little; with more, they find false trends."""

_STEPS = 40
"""The number of positions in the window where a step is tried."""

_FIGURES: Mapping[int, Sequence[int]] = {50: range(10, 100, 10), 95: (95,)}
"""The percentile that names a figure, and the percentiles from which it is computed."""

_EACH = FALSE_ALARMS / (2 * len(_FIGURES))


def trends(hits: Sequence[Hits], window_s: Window, driver: str = "") -> tuple[Finding, ...]:
    """Return the trends in a driver's times: at most one in the median and one in the 95th percentile.

    Shares are of weighted hits in the window's first and last quarters: those that took longer than their task's
    percentile.

    Tasks with a weight count, or all tasks if none has one. Windows of fewer than 40 slots are not tested; nor is the
    median of fewer than 200 hits, or the 95th percentile of fewer than 2,000.
    """
    slots = bins_in(window_s)
    scored = [task for task in hits if task.weight > 0] or list(hits)
    many = sum(len(task) for task in scored)
    tested = [percent for percent in _FIGURES if many * (100 - percent) >= 100 * LEAST_SLOW]
    if slots < LEAST_SLOTS:
        return ()
    candidates = (_trend(scored, slots, percent, driver) for percent in tested)
    return tuple(trend for trend in candidates if trend)


def _trend(tasks: Sequence[Hits], slots: int, named_by: int, driver: str) -> Finding | None:
    figure = sum((_weighted(tasks, slots, percent)[0] for percent in _FIGURES[named_by]), np.zeros(slots))
    code = _trend_of(figure)
    if code is None:
        return None
    at = np.arange(slots) / slots
    _, slow, everything = _weighted(tasks, slots, named_by)
    first_share, last_share = (
        float(slow[some].sum() / max(everything[some].sum(), np.finfo(float).tiny)) for some in (at < 0.25, at >= 0.75)
    )
    return finding(code, driver, percentile=named_by, first_share=first_share, last_share=last_share)


def _weighted(tasks: Sequence[Hits], slots: int, percent: int) -> tuple[Series, Series, Series]:
    """Return weighted sums over all tasks: the excess of slow hits, the slow hits, and all hits."""
    total = np.zeros((3, slots))
    for task in tasks:
        slow, everything = slow_and_all(task, slots, task.percentile_us(percent))
        total += (task.weight or 1.0) / len(task) * np.stack([excess(slow, everything), slow, everything])
    return total[0], total[1], total[2]


def _trend_of(figure: Series) -> Code | None:
    """Return the code for the stronger test; None if neither is significant."""
    at = np.arange(len(figure)) / len(figure)
    residuals = _without_line_and_step(figure)
    sums = np.bincount((at * BLOCKS).astype(np.int64), weights=residuals, minlength=BLOCKS)
    degrees = BLOCKS - 4  # minus two for the line, and two for the step's position and height
    long_run = float(sums @ sums) / degrees * BLOCKS / len(figure)
    if long_run <= 0:
        return None

    def t_by_limit(contrast: Series, alpha: float) -> float:
        centred = contrast - contrast.mean()
        t = float(centred @ figure) / math.sqrt(long_run * float(centred @ centred))
        return t / one_critical_t(alpha, degrees)

    rising = t_by_limit(at, _EACH)
    early = t_by_limit((at < 0.25).astype(np.float64), 2 * _EACH)
    if max(early, abs(rising)) <= 1:
        return None
    return Code.FALLING if early > abs(rising) or rising < 0 else Code.RISING


def _without_line_and_step(figure: Series) -> Series:
    """Return what is left of a figure after removing the best-fitting line and step."""
    bases = _lines_and_steps(len(figure))
    residuals = figure - np.einsum("ksb,kb->ks", bases, np.einsum("ksb,s->kb", bases, figure))
    return np.asarray(residuals[np.argmin((residuals**2).sum(axis=1))])


@lru_cache(maxsize=4)
def _lines_and_steps(slots: int) -> NDArray[np.float64]:
    """Return an orthonormal basis (slots by 3) of a constant, a line and a step, for each position of the step."""
    at = np.arange(slots) / slots
    steps = [np.column_stack([np.ones(slots), at, at < step / _STEPS]) for step in range(1, _STEPS)]
    return np.asarray(np.linalg.qr(np.stack(steps))[0])
