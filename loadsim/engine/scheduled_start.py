"""Scheduled start for machines that do not communicate (`Control`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from loadsim.engine.coordinator import START_AHEAD_S
from loadsim.engine.snapshot import LiveSnapshot

READ_CLOCK_S = 1.0
"""The longest time between two readings of the wall clock: it may be set while we wait for the start."""


class ScheduledStart:
    """Starts a coordinator at the instant `start` (aware), by this machine's wall clock, and never late.

    If the machine is not ready by then, `give_up` is called with the reason, and must stop the coordinator. `work_s` is
    the longest time after the start that tasks may run on any machine. If `part`, other machines make the rest of the
    load. Their mail is not reported here, so the drain lasts as long as it may be in transit.
    """

    def __init__(self, start: datetime, *, work_s: float, part: bool, give_up: Callable[[str], None]) -> None:
        self._start = start
        self._work_s = work_s
        self._part = part
        self._give_up = give_up
        self._start_ns: int | None = None
        self._stopped = asyncio.Event()

    def judge(self, snapshot: LiveSnapshot) -> str | None:
        """Return why the run should end now: its start has come before all users were on."""
        if self._start_ns is not None or self._left_s() > 0:
            return None
        return f"not ready for the common start: {snapshot.users_on} of {snapshot.users} users were on"

    async def all_ready(self) -> None:
        """Return at once: each machine begins to log on when it is ready."""

    async def common_start(self) -> int | None:
        """Wait until shortly before the instant, and return it; None if the run is given up or stopped."""
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
        """End all waiting; the run ends on this machine only."""
        self._stopped.set()

    def accepted_elsewhere(self, message: str, user: int) -> None:
        """Do nothing: the merged logs show if the message arrived."""

    async def all_finished(self) -> None:
        """Wait until no task can run on any machine."""
        if self._part and self._start_ns is not None:
            last_ns = self._start_ns + round(self._work_s * 1e9)
            await self._pass_time(lambda: (last_ns - time.monotonic_ns()) * 1e-9)

    def all_delivered(self, outstanding: int) -> bool:
        """Return True if all mail has been seen; never if other machines send, too."""
        return not self._part and not outstanding

    def _left_s(self) -> float:
        return (self._start - datetime.now(UTC)).total_seconds()

    async def _pass_time(self, left_s: Callable[[], float]) -> None:
        """Wait until no time is left, or the run ends."""
        while not self._stopped.is_set() and (wait_s := left_s()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait_s, READ_CLOCK_S)):
                    await self._stopped.wait()
