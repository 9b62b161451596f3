"""Reading the clock of another machine: many round trips, of which the shortest counts.

The controller asks at t0 of its own clock, and the answer arrives at t2. The other machine read its clock between them;
the middle is taken, which is wrong by at most half of the round trip. So the shortest round trip is the most exact. On
an idle network both ways take the same time, and the reading is much better than this bound.

Monotonic clocks are compared, not the time of day: engines measure by them, and no clock service sets them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable

from loadsim.analysis.clocks.model import MOST_RATE, Reading

ROUND_TRIPS = 20
"""Round trips for one reading: they take some milliseconds, and at least one of them is likely to be undisturbed."""


def reading_of(asked_ns: int, there_ns: int, answered_ns: int) -> Reading:
    """Return the other clock's reading by a round trip, with its error.

    It was asked for at `asked_ns` of our clock, read at `there_ns` of the other, and answered at `answered_ns` of ours.
    The error allows for a difference in rate during the round trip. The middle may be half a nanosecond off, and the
    other clock shows whole ones.
    """
    took_ns = answered_ns - asked_ns
    return Reading((asked_ns + answered_ns) // 2, there_ns, math.ceil((took_ns + 1) / 2 * (1 + MOST_RATE)) + 1)


async def read_clock(
    ask: Callable[[], Awaitable[int]], round_trips: int = ROUND_TRIPS, clock_ns: Callable[[], int] = time.monotonic_ns
) -> Reading:
    """Read the other clock in this many round trips, one after the other; `ask` returns its nanoseconds.

    The reading of the shortest counts. The caller handles the errors of `ask`, and limits the time of all.
    """
    trips = []
    for _ in range(round_trips):
        asked_ns = clock_ns()
        there_ns = await ask()
        trips.append((asked_ns, there_ns, clock_ns()))
    return reading_of(*min(trips, key=lambda trip: trip[2] - trip[0]))
