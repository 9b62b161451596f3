"""Hits of a window with known correlation."""

import math

import numpy as np
from numpy.typing import NDArray

from loadsim.model.terms import Window
from loadsim.statistics.bins import Hits, bin_of, timed


def hits_of(task: str, weight: float, due_us: NDArray[np.int64], took_us: NDArray[np.int64], window_s: Window) -> Hits:
    """The hits of a task, as the records of a window would give them."""
    return Hits(task, weight, np.sort(timed(took_us, bin_of(due_us, window_s))))


def autoregressive(random: np.random.Generator, length: int, correlation: float) -> NDArray[np.float64]:
    """An AR(1) series of standard normal variables."""
    shocks = random.normal(size=length)
    series = np.empty(length)
    series[0] = shocks[0]
    for at in range(1, length):
        series[at] = correlation * series[at - 1] + math.sqrt(1 - correlation**2) * shocks[at]
    return series
