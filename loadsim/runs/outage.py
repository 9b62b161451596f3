"""The command of `run.outage`, which restarts the server during the load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from loadsim.engine.event_log import Events
from loadsim.errors import ConfigError
from loadsim.runs.kept_command import run_kept
from loadsim.scenario.sections import Outage
from loadsim.timinglog.facts import OUTAGE_FAILED, EarlyEnd

LIMIT_S = 60.0
"""The time limit for the command, which must also end before the work does."""

OUTPUT = "outage.out"
"""The file in the run directory with the command's output."""

POLL_S = 0.05
"""The interval at which to check whether the common start is known."""


class OutageCommand:
    """Runs an outage's command once, if it has one. `early_end` is set if it fails: the run then shows no recovery."""

    def __init__(self, outage: Outage | None, duration_s: float, directory: Path, events: Events) -> None:
        self._outage, self._duration_s, self._directory, self._events = outage, duration_s, directory, events
        self.early_end: EarlyEnd | None = None

    async def run(self, start_ns: Callable[[], int]) -> None:
        """Wait for the outage's instant, and run the command. `start_ns` returns the common start, 0 until known."""
        outage = self._outage
        if outage is None or outage.command is None:
            return
        while True:
            await asyncio.sleep(POLL_S)
            if start_ns():
                break
        await asyncio.sleep(outage.at_s - (time.monotonic_ns() - start_ns()) * 1e-9)
        limit_s = min(LIMIT_S, self._duration_s - outage.at_s)
        self._events.write("outage", command=Path(outage.command[0]).name)
        try:  # in a thread of this process, which makes no load
            failure = await asyncio.to_thread(
                run_kept, outage.command, limit_s, self._directory, self._directory / OUTPUT
            )
        except ConfigError as unwritable:
            failure = str(unwritable)
        if failure is None:
            self._events.write("outage command ended")
        else:
            self.early_end = EarlyEnd(OUTAGE_FAILED, f"run.outage.command: {failure}")
