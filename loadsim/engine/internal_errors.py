"""Failures of the generator itself: events, counts, and facts of the log that make the run invalid.

A task in which the generator failed has its own record; the facts count the other failures.
"""

from __future__ import annotations

from collections import Counter

from loadsim.engine.event_log import Events
from loadsim.engine.run_log import RunLog
from loadsim.errors import GeneratorFailed
from loadsim.protocols.error_mapping import place_of

EVENTS_A_PLACE = 10
"""An engine writes at most this many events for one line of code: all users may meet the same error."""


class InternalErrors:
    """Writes the generator's failures in one engine to `events`, and counts them in facts of its `log`."""

    def __init__(self, events: Events, log: RunLog) -> None:
        self._events = events
        self._log = log
        self._places: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()  # by kind
        self._users_given_up = 0

    def report(self, failure: GeneratorFailed, error: BaseException, during: str, user: int | None) -> None:
        """Write an event with the failure's place in the code; `during` names the task or another activity."""
        place = place_of(error)
        self._places[place] += 1
        if self._places[place] <= EVENTS_A_PLACE:
            self._events.write("internal error", kind=failure.kind, where=place, during=during, user=user)

    def count(self, failure: GeneratorFailed) -> None:
        """Count a failure outside of tasks. The first of a kind is written at once, in case the engine dies."""
        self._outside[failure.kind] += 1
        if self._outside[failure.kind] == 1:
            self.conclude()

    def user_given_up(self) -> None:
        self._users_given_up += 1
        self.conclude()

    def conclude(self) -> None:
        if self._outside:
            self._log.facts({"own_faults": dict(self._outside)})
        if self._users_given_up:
            self._log.facts({"users_given_up": self._users_given_up})
