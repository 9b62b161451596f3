"""Build-ups and growth of a send queue, from its samples in a run's window.

A queue is measured in seconds of throughput: its recipients, divided by the mean deliveries per second in the window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from loadsim.model.terms import Window
from loadsim.statistics.comparison import one_critical_t

QUEUED, SENT, QUEUED_S = "send_queue_recipients", "sent_per_s", "send_queue_s"
"""Figures of a send queue's probe: recipients in the queue, deliveries per second, and the queue in seconds."""

BUILD_UP_S, GROWTH_S = "send_queue_build_up_s", "send_queue_growth_s"

STANDING_S = 5.0
"""A queue of at most this length is no build-up: by Little's law, its mail waits for 5 s on average.

A busy server always has messages under way. CoDel also ignores queues that are short or brief: its target is 5 to 10 %
of its interval (RFC 8289). This is 8 % of the 60 s that a build-up may last.
"""

PARTS = 10
"""Growth compares the shortest queues of ten equal parts of the samples, which brief build-ups do not change."""

ALPHA = 0.02
"""The level of a two-sided test: one in a hundred windows without growth shows some by chance."""

Floats = NDArray[np.float64]


def build_ups_s(at_s: Sequence[float], queued_s: Floats, window_s: Window) -> Floats:
    """Return the age of the build-up at each sample; 0 without one.

    A build-up begins at the last sample before the queue exceeds `STANDING_S`, or at the start of the window. It ends
    at the first sample after. One that lasts to the end of the window also includes the time that its delivery takes at
    the mean throughput.
    """
    ages_s = np.zeros(len(queued_s))
    began_s, above = window_s.begin_s, False
    for at, (instant_s, length_s) in enumerate(zip(at_s, queued_s, strict=True)):
        was_above, above = above, bool(length_s > STANDING_S)
        if above or was_above:
            ages_s[at] = instant_s - began_s
        if not above:
            began_s = instant_s
    if above:
        ages_s[-1] = window_s.end_s - began_s + queued_s[-1]
    return ages_s


def growth_s(at_s: Sequence[float], queued_s: Floats, window_s: Window) -> Floats | None:
    """Return the least growth of the queue over the window, the same for each sample; 0 without growth.

    This is the lower bound, by Student's t, of the slope of a line through the shortest queue of each part. None with
    fewer samples than parts.
    """
    if len(queued_s) < PARTS:
        return None
    least = [part[np.argmin(queued_s[part])] for part in np.array_split(np.arange(len(queued_s)), PARTS)]
    from_mean_s = np.asarray(at_s, np.float64)[least] - np.mean(np.asarray(at_s, np.float64)[least])
    lengths_s = queued_s[least]
    squares = float(from_mean_s @ from_mean_s)
    slope = float(from_mean_s @ lengths_s) / squares
    residuals_s = lengths_s - lengths_s.mean() - slope * from_mean_s
    error = math.sqrt(float(residuals_s @ residuals_s) / (PARTS - 2) / squares)
    grown_s = max(0.0, slope - one_critical_t(ALPHA, PARTS - 2) * error) * window_s.length_s
    return np.full(len(queued_s), grown_s)


def _lengths_s(_at_s: Sequence[float], queued_s: Floats, _window_s: Window) -> Floats:
    return queued_s


Calculated = Callable[[Sequence[float], Floats, Window], Floats | None]
"""A function of the instants and lengths (s) of a queue that returns a figure for each sample; None if unknown."""

CALCULATED: Mapping[str, Calculated] = {QUEUED_S: _lengths_s, BUILD_UP_S: build_ups_s, GROWTH_S: growth_s}
"""Figures of a send queue that are calculated after a run."""
