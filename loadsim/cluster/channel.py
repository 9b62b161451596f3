"""A station's way to a machine: a channel like that to an engine, by a link that outlives its connections."""

from __future__ import annotations

import asyncio
from collections import deque

from loadsim.analysis.clock_model import OtherClock, Reading
from loadsim.cluster.prepare import FROM_A_PREPARER
from loadsim.cluster.reliable_channel import BEAT_S, ReliableChannel
from loadsim.engine.control import FROM_A_MEMBER, decode, encode
from loadsim.timinglog.json_checks import text

FROM_A_MACHINE = {**FROM_A_MEMBER, **FROM_A_PREPARER, "failed": text}
"""The messages of a machine to its station, by kind."""

CLOCKS = 60
"""So many of its newest readings say how a clock goes: those of ten minutes."""


class WorkerChannel:
    """To one machine (`engine.channel.Channel`); whoever has a connection to it attaches that to `link`.

    Its monotonic clock is as `clock` says, which was read before, and as `send_clock` is told later.
    """

    def __init__(self, clock: Reading | None = None) -> None:
        self._clocks = deque([clock] if clock else [], CLOCKS)
        self._ahead_ns = 0 if clock is None else clock.ahead_ns
        self._begun = False
        self._prepared = False
        self._lines: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._over = asyncio.Event()
        self.link = ReliableChannel(self._hear)
        self.ended: str | None = None

    @property
    def silent_s(self) -> float:
        """By the beats that were missed; it may take its time until the first."""
        return self.link.silent_beats * BEAT_S if self.link.ever_received else 0.0

    def set_clock(self, clock: Reading) -> None:
        """Take a reading made after the preparation; it follows the message with which the load begins."""
        self._clocks.append(clock)
        self._begun = False
        self._prepared = True

    def send(self, line: bytes) -> None:
        """By the link: it arrives when there is a way. What its clock was follows the word with which it begins."""
        self.link.send(line)
        if not self._begun:
            self._begun = True
            self._send_clock()

    def send_start(self, start_ns: int) -> None:
        """By its clock, as that has gone until now: since it was first read, users may have logged on for an hour."""
        if self._clocks:
            self._ahead_ns = OtherClock.of(self._clocks).there(start_ns).ahead_ns
        self.send(encode(start=start_ns + self._ahead_ns))
        self._send_clock()

    def send_clock(self, clock: Reading) -> None:
        """What its clock showed at an instant of ours, for its log."""
        self._clocks.append(clock)
        self._send_clock()

    def _send_clock(self) -> None:
        """The newest; turned, as it would say it of our clock."""
        if not self._clocks:
            return
        ours = self._clocks[-1].turned()
        self.link.send(encode(clock=[ours.at_ns, ours.there_ns, ours.error_ns, self._ahead_ns]))

    async def receive(self) -> bytes:
        """Return the next line, to the machine's last one.

        Progress of a preparation that is over is left out: it was under way when the machine was told to begin.
        """
        while True:
            kind, line = await self._lines.get()
            if not (self._prepared and kind == "progress"):
                return line

    async def wait(self) -> str:
        """Until its last word, or until we are told that there will be none."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    def kill(self) -> None:
        """Give it up. It is asked to end at once, in case it is there."""
        if self.ended is None:
            self.send(encode(**{"given up": "the station had not heard of its machine any more, and gave it up"}))
            self.send(encode(stop=True))
            self.end("given up")

    def end(self, how: str) -> None:
        """It is gone, and says no more."""
        if self.ended is None:
            self.ended = how
            self._over.set()
            self._lines.put_nowait(("", b""))

    def _hear(self, line: bytes) -> None:
        if self.ended is not None:
            return
        kind, about = decode(line, FROM_A_MACHINE)
        if kind == "failed":
            self.end(about)
            return
        self._lines.put_nowait((kind, line))
        if kind in ("over", "refused"):
            self.end("ended by itself")
