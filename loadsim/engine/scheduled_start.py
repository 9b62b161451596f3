"""Machines that agreed on a common start, and hear nothing of each other: what a pool asks of them (`Control`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from loadsim.engine.coordinator import START_AHEAD_S
from loadsim.engine.snapshot import LiveSnapshot

CLOCK_LOOK_S = 1.0
"""How often the wall clock is looked at, at least: it may be set while the start is waited for."""


class ScheduledStart:
    """Keeps a pool to the instant `start` (aware), by this machine's wall clock; nobody starts late.

    Whoever is not ready then gives the run up: `give_up` is told why, and stops the pool. `work_s` is how long, from
    the start, tasks may run on any machine. `part`: others make the rest of the load. Of the mail that they send
    nothing is heard, so it is waited for as long as it may be under way. None: this machine makes all of it.
    """

    def __init__(self, start: datetime, *, work_s: float, part: bool, give_up: Callable[[str], None]) -> None:
        self._start = start
        self._work_s = work_s
        self._part = part
        self._give_up = give_up
        self._start_ns: int | None = None
        self._stopped = asyncio.Event()

    def judge(self, snapshot: LiveSnapshot) -> str | None:
        """Why the run should end now: its start has come, and some of these users are not on."""
        if self._start_ns is not None or self._left_s() > 0:
            return None
        return f"not ready for the common start: {snapshot.users_on} of {snapshot.users} users were on"

    async def all_ready(self) -> None:
        """Every machine begins to log on when it is ready itself."""

    async def common_start(self) -> int | None:
        """Everybody is on: wait until shortly before the instant."""
        if self._left_s() < START_AHEAD_S:
            self._give_up("not ready for the common start: the log-on took too long")
            return None
        await self._pass_time(lambda: self._left_s() - START_AHEAD_S)
        left_s = self._left_s()
        if self._stopped.is_set():
            return None
        if left_s < 0:
            self._give_up(f"not ready for the common start: noticed {-left_s:.3f} s after it")
            return None
        self._start_ns = time.monotonic_ns() + round(left_s * 1e9)
        return self._start_ns

    def stop_waiting(self) -> None:
        """The run ends here; nobody else hears of it."""
        self._stopped.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Whoever merges the logs will see whether it came."""

    async def all_finished(self) -> None:
        """Wait until no task runs any more on any machine."""
        if self._part and self._start_ns is not None:
            last_ns = self._start_ns + round(self._work_s * 1e9)
            await self._pass_time(lambda: (last_ns - time.monotonic_ns()) * 1e-9)

    def all_delivered(self, outstanding: int) -> bool:
        """Nobody can tell, where others send."""
        return not self._part and not outstanding

    def _left_s(self) -> float:
        return (self._start - datetime.now(UTC)).total_seconds()

    async def _pass_time(self, left_s: Callable[[], float]) -> None:
        """Wait until none is left, or the run ends."""
        while not self._stopped.is_set() and (wait_s := left_s()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, CLOCK_LOOK_S)):
                    await self._stopped.wait()
