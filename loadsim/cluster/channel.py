"""A controller's channel to a worker: like that to an engine, by a link that outlives its connections."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable

from loadsim.analysis.clocks.model import MOST_RATE, OtherClock, Reading
from loadsim.cluster.placement import ClockReading
from loadsim.cluster.prepare import FROM_A_PREPARER, PhaseProgress
from loadsim.cluster.reliable_channel import BEAT_S, ReliableChannel
from loadsim.engine.control import FROM_A_MEMBER, GivenUp, Message, Over, Refused, Start, Stop, decode, encode, message


@message("failed")
class Failed(Message):
    """A worker's last message, instead of `Over`: no engine was left to make load."""

    why: str


FROM_A_WORKER = (*FROM_A_MEMBER, *FROM_A_PREPARER, Failed)

CLOCKS = 60
"""Newest readings from which a clock's rate is computed: those of ten minutes."""


class WorkerChannel:
    """To one worker (`engine.channel.Channel`). The owner of a connection to the worker attaches it to `link`.

    `clock` is a reading of the client's monotonic clock before the run; `send_clock` takes later ones.
    """

    def __init__(self, clock: Reading | None = None) -> None:
        self._clocks = deque([clock] if clock else [], CLOCKS)
        self._ahead_ns = 0 if clock is None else clock.ahead_ns
        self._begun = False
        self._prepared = False
        self._lines: asyncio.Queue[tuple[type[Message] | None, bytes]] = asyncio.Queue()
        self._over = asyncio.Event()
        self.link = ReliableChannel(self._take)
        self.ended: str | None = None

    @property
    def silent_s(self) -> float:
        """Heartbeats missed, in seconds; 0 until the first line, as a worker may take its time to start."""
        return self.link.silent_beats * BEAT_S if self.link.ever_received else 0.0

    def set_clock(self, clock: Reading) -> None:
        """Take a reading made after the preparation. It follows the message that begins the load."""
        self._clocks.append(clock)
        self._begun = False
        self._prepared = True

    def send(self, line: bytes) -> None:
        """Send by the link, which may wait for a connection. The newest clock reading follows the first line."""
        self.link.send(line)
        if not self._begun:
            self._begun = True
            self._send_clock()

    def send_start(self, start_ns: int) -> None:
        """Send the common start by the client's clock, computed from all readings until now.

        Users may have logged on for an hour since the first reading, and clocks drift.
        """
        if self._clocks:
            self._ahead_ns = OtherClock.of(self._clocks).there(start_ns).ahead_ns
        self.send(encode(Start(start_ns + self._ahead_ns)))
        self._send_clock()

    def send_clock(self, clock: Reading) -> None:
        self._clocks.append(clock)
        self._send_clock()

    def _send_clock(self) -> None:
        """Send the newest reading, turned into the client's reading of our clock."""
        if not self._clocks:
            return
        ours = self._clocks[-1].turned()
        self.link.send(encode(ClockReading(ours.at_ns, ours.there_ns, ours.error_ns, self._ahead_ns)))

    async def receive(self) -> bytes:
        """Return the next line, b"" after the worker's last one.

        Progress of a finished preparation is dropped: it crossed the message that begins the load.
        """
        while True:
            kind, line = await self._lines.get()
            if not (self._prepared and kind is PhaseProgress):
                return line

    async def wait(self) -> str:
        """Wait for the worker's last message, or until the worker is gone. Return how it ended."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    def kill(self) -> None:
        """Give the worker up, and ask it to end at once, in case it can still receive."""
        if self.ended is None:
            self.send(encode(GivenUp("the controller had received nothing from this client, and gave it up")))
            self.send(encode(Stop()))
            self.end("given up")

    def end(self, how: str) -> None:
        """Note that the worker is gone and sends no more."""
        if self.ended is None:
            self.ended = how
            self._over.set()
            self._lines.put_nowait((None, b""))

    def _take(self, line: bytes) -> None:
        if self.ended is not None:
            return
        message = decode(line, FROM_A_WORKER)
        if isinstance(message, Failed):
            self.end(message.why)
            return
        self._lines.put_nowait((type(message), line))
        if isinstance(message, Over | Refused):
            self.end("ended by itself")


# --- reading the clock of another machine ---

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

    The controller asks at t0 of its own clock, and the answer arrives at t2. The other machine read its clock between
    them; the middle is taken, which is wrong by at most half of the round trip. So the shortest round trip counts. On
    an idle network both ways take the same time, and the reading is much better than this bound.

    The clocks are monotonic ones: engines measure by them, and no clock service sets them. The caller handles the
    errors of `ask`, and limits the time of all.
    """
    trips = []
    for _ in range(round_trips):
        asked_ns = clock_ns()
        there_ns = await ask()
        trips.append((asked_ns, there_ns, clock_ns()))
    return reading_of(*min(trips, key=lambda trip: trip[2] - trip[0]))
