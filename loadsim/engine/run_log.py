"""An engine's log, written without delaying users."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from loadsim.engine.event_log import Events
from loadsim.model.ports import Recorder


class RunLog(Recorder, Protocol):
    """A recorder that also keeps facts and health samples, and writes when asked to."""

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Record facts about the whole run."""

    def health(self, sample: Mapping[str, Any]) -> None:
        """Record the generator's health in the last second."""

    def gather(self) -> None:
        """Prepare the records so far for writing."""

    def write(self) -> str | None:
        """Write the gathered records, in any thread. Return None, or the error, in which case they are kept."""


class LogFlusher:
    """Writes a log, in a thread if `aside`. Of several failures in a row, the first is reported as an event.

    A thread keeps a slow disk from delaying users. In virtual time there is none, because nothing may wait for it.
    """

    def __init__(self, log: RunLog, events: Events, *, aside: bool) -> None:
        self._log = log
        self._events = events
        self._aside = aside
        self._error: str | None = None
        self._writing: asyncio.Future[str | None] | None = None

    def flush(self) -> None:
        """Write the records so far; while a thread is still writing, only gather them."""
        self._log.gather()
        if not self._aside:
            self._note(self._log.write())
        elif self._writing is None or self._writing.done():
            writing, self._writing = self._writing, None
            if writing is not None:
                self._note(writing.result())
            self._writing = asyncio.get_running_loop().run_in_executor(None, self._log.write)

    def conclude(self) -> None:
        """Write the records so far, in this thread."""
        self._log.gather()
        self._note(self._log.write())

    def _note(self, error: str | None) -> None:
        if error and self._error is None:
            self._events.write("log not written", why=error)
        self._error = error
