"""Reading the clock of another machine: many round trips, of which the shortest counts.

We ask at t0 of our clock, the other machine looks at its clock, t1, and we have the answer at t2. It looked at some
instant between t0 and t2; nobody can say when, as the way there may have been longer than the way back. Take the middle
of the two: that is wrong by half of the round trip at most, in the worst case, in which all of the delay was on one
way. So the shortest round trip of many says most. Where nothing else is on the wire it is the same both ways, and the
reading is much better than it claims; it claims what can be known.

Monotonic clocks are compared, not the time of day: nobody sets them, and they are what engines measure by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loadsim.analysis.clock_correction import station_clock_sample
from loadsim.analysis.clock_model import MOST_RATE, Reading

ROUND_TRIPS = 20
"""So many are asked for one reading: they take some milliseconds, and one of them is not disturbed."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """Asked at `asked_ns` of our clock, seen at `there_ns` of the other, answered at `answered_ns` of ours."""

    asked_ns: int
    there_ns: int
    answered_ns: int

    @property
    def took_ns(self) -> int:
        """The round trip's time."""
        return self.answered_ns - self.asked_ns

    def reading(self) -> Reading:
        """What it says about the other clock. While we waited that went faster or slower, too, by little.

        The middle may be half a nanosecond off, and the other clock shows whole ones.
        """
        middle_ns = (self.asked_ns + self.answered_ns) // 2
        return Reading(middle_ns, self.there_ns, math.ceil((self.took_ns + 1) / 2 * (1 + MOST_RATE)) + 1)


def shortest(trips: Iterable[RoundTrip]) -> Reading:
    """The reading of the shortest round trip. Raises `ValueError` for none."""
    return min(trips, key=lambda trip: trip.took_ns).reading()


async def read_clock(
    ask: Callable[[], Awaitable[int]],
    round_trips: int = ROUND_TRIPS,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Reading:
    """Ask so many times, one after the other, what the other clock shows; `ask` waits for its nanoseconds.

    What `ask` raises is the caller's, and so is how long all of it may take.
    """
    trips = []
    for _ in range(round_trips):
        asked_ns = clock_ns()
        there_ns = await ask()
        trips.append(RoundTrip(asked_ns, there_ns, clock_ns()))
    return shortest(trips)


class NewestReading:
    """On a client: hands each reading of the station's clock to the next sample of the machine's health, once."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}

    def tell(self, station: Reading, ahead_ns: int) -> None:
        """The station's clock by ours, which was taken to be so far ahead of it when the common start was told."""
        self._told = station_clock_sample(station, ahead_ns)

    def __call__(self) -> dict[str, Any]:
        """What the next sample says beside."""
        told, self._told = self._told, {}
        return told
