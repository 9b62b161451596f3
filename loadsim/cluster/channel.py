"""A controller's channel to a worker, like a channel to an engine, but over a link that outlives its connections."""

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
"""A clock's rate is computed from at most this many of its latest readings: those of ten minutes."""


class WorkerChannel:
    """The channel to one worker (`engine.channel.Channel`). Connections to the worker are attached to its `link`.

    `clock` is a reading of the client's monotonic clock before the run; `send_clock` takes later readings.
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
        """The missed heartbeats, in seconds; 0 until the first line, as a worker may take a while to start."""
        return self.link.silent_beats * BEAT_S if self.link.ever_received else 0.0

    def set_clock(self, clock: Reading) -> None:
        """Take a reading made after the preparation. It is sent after the message that begins the load."""
        self._clocks.append(clock)
        self._begun = False
        self._prepared = True

    def send(self, line: bytes) -> None:
        """Send over the link, which may wait for a connection. The latest clock reading follows the first line."""
        self.link.send(line)
        if not self._begun:
            self._begun = True
            self._send_clock()

    def send_start(self, start_ns: int) -> None:
        """Send the common start by the client's clock, computed from all readings so far.

        The log-on may have taken an hour since the first reading, and clocks drift.
        """
        if self._clocks:
            self._ahead_ns = OtherClock.of(self._clocks).there(start_ns).ahead_ns
        self.send(encode(Start(start_ns + self._ahead_ns)))
        self._send_clock()

    def send_clock(self, clock: Reading) -> None:
        self._clocks.append(clock)
        self._send_clock()

    def _send_clock(self) -> None:
        """Send the latest reading, turned into the client's reading of our clock."""
        if not self._clocks:
            return
        ours = self._clocks[-1].turned()
        self.link.send(encode(ClockReading(ours.at_ns, ours.there_ns, ours.error_ns, self._ahead_ns)))

    async def receive(self) -> bytes:
        """Return the next line, or b"" after the worker's last one.

        Progress of a finished preparation is dropped: the worker sent it before it was told to begin the load.
        """
        while True:
            kind, line = await self._lines.get()
            if not (self._prepared and kind is PhaseProgress):
                return line

    async def wait(self) -> str:
        """Wait until the worker has sent its last message, or is gone. Return how it ended."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    def kill(self) -> None:
        """Give up on the worker, and ask it to end at once, if it still receives."""
        if self.ended is None:
            self.send(encode(GivenUp("the controller had received nothing from this client, and gave it up")))
            self.send(encode(Stop()))
            self.end("given up")

    def end(self, how: str) -> None:
        """Note that the worker is gone."""
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
"""Round trips for one reading: they take a few milliseconds, and at least one of them is likely to be undisturbed."""


def reading_of(asked_ns: int, there_ns: int, answered_ns: int) -> Reading:
    """Return the reading of another clock from one round trip, with its error.

    It was requested at `asked_ns` and answered at `answered_ns` of our clock; the other clock showed `there_ns`. The
    error covers a difference in rate during the trip, and rounding: half a nanosecond of ours, one of the other clock.
    """
    took_ns = answered_ns - asked_ns
    return Reading((asked_ns + answered_ns) // 2, there_ns, math.ceil((took_ns + 1) / 2 * (1 + MOST_RATE)) + 1)


async def read_clock(
    ask: Callable[[], Awaitable[int]], round_trips: int = ROUND_TRIPS, clock_ns: Callable[[], int] = time.monotonic_ns
) -> Reading:
    """Read another machine's clock in several round trips, of which the shortest counts; `ask` returns nanoseconds.

    The clock is assumed to be read in the middle of a trip, so the error is at most half the trip, and much less if
    both directions take equally long, as on an idle network. The clocks are monotonic: engines measure by them, and no
    time service sets them. The caller handles errors of `ask`, and limits the total time.
    """
    trips = []
    for _ in range(round_trips):
        asked_ns = clock_ns()
        there_ns = await ask()
        trips.append((asked_ns, there_ns, clock_ns()))
    return reading_of(*min(trips, key=lambda trip: trip[2] - trip[0]))
