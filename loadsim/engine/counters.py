"""An engine's counts: tasks, failures, mail in transit, and its own errors."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from loadsim.engine.event_log import Events
from loadsim.engine.health import EngineLateness
from loadsim.engine.run_log import RunLog
from loadsim.errors import GeneratorFailed, TaskFailed
from loadsim.model.records import GENERATOR, LOOP
from loadsim.protocols.error_mapping import place_of
from loadsim.statistics.latency_histogram import LatencyHistogram
from loadsim.timinglog.writer import OTHER
from loadsim.users.host import Late_s

MOST_KINDS, LONGEST_KIND = 100, 64
"""An engine counts at most this many kinds of failure, and truncates their names to this many characters, as a server
may choose them. Further kinds are counted as `OTHER`."""

EVENTS_A_PLACE = 10
"""An engine writes at most this many events per line of code: all users may meet the same error."""


class Counters:
    """Counts tasks by name and outcome, their service times and lateness, and failures by task and kind."""

    def __init__(self) -> None:
        self.lateness = EngineLateness()
        self._tasks: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._service_times: defaultdict[str, LatencyHistogram] = defaultdict(LatencyHistogram)
        self._failures: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._kinds: set[str] = set()
        self._loop_timed = 0

    def task(self, task: str, outcome: str, service_ns: int, late_s: Late_s, clock: str) -> None:
        """Count a task that has ended or was skipped; `service_ns` and its clock count only if it is ok."""
        self._tasks[task][outcome] += 1
        if outcome == "ok":
            self._service_times[task].add(service_ns)
            self._loop_timed += clock == LOOP
        self.lateness.add(*late_s)

    def failure(self, task: str, failure: TaskFailed) -> str:
        kind = failure.kind[:LONGEST_KIND]
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS and failure.outcome != GENERATOR:
            kind = OTHER
        self._kinds.add(kind)
        self._failures[task][kind] += 1
        return kind

    def figures(self) -> dict[str, Any]:
        """Return the counts, keyed as in a `LiveSnapshot`."""
        return {
            "tasks": {task: dict(outcomes) for task, outcomes in self._tasks.items()},
            "service_times": {task: times.counts for task, times in self._service_times.items()},
            "service_s": {task: times.total_s for task, times in self._service_times.items()},
            "failures": {task: dict(kinds) for task, kinds in self._failures.items()},
            "loop_timed": self._loop_timed,
            "generator_late_most_s": self.lateness.generator_most_s,
            "late_busy_s": self.lateness.busy_s,
            "late_down_s": self.lateness.down_s,
            "late_generator_s": self.lateness.generator_s,
        }


class MailInTransit:
    """Pairs of message and recipient. Users may see a message before its sender learns that it was accepted.

    A list may include the sender. Copies to senders count only once one has been seen: some servers leave senders out.
    """

    __slots__ = ("_accepted", "_for_senders", "_seen_first", "_senders_get_theirs")

    def __init__(self) -> None:
        self._accepted: set[tuple[str, int]] = set()  # not seen yet
        self._for_senders: set[tuple[str, int]] = set()  # likewise
        self._senders_get_theirs = False
        self._seen_first: set[tuple[str, int]] = set()  # not accepted yet, and perhaps never

    def __len__(self) -> int:
        return len(self._accepted) + self._senders_get_theirs * len(self._for_senders)

    @property
    def recipients(self) -> set[int]:
        return {user for _, user in self._accepted | self._for_senders}

    def accepted(self, message: str, user: int, sender: int | None = None) -> None:
        key = (message, user)
        if key in self._seen_first:
            self._seen_first.remove(key)
        else:
            (self._for_senders if user == sender else self._accepted).add(key)

    def seen(self, message: str, user: int, sender: int | None = None) -> None:
        """Remove a message that a user has seen. A message that was never accepted does not offset another."""
        key = (message, user)
        self._senders_get_theirs |= user == sender
        waiting = next((each for each in (self._accepted, self._for_senders) if key in each), None)
        if waiting is None:
            self._seen_first.add(key)
        else:
            waiting.remove(key)


class InternalErrors:
    """Writes the generator's failures in one engine to `events`, and counts them in facts of its `log`.

    They make the run invalid. A task in which the generator failed has its own record; the facts count all others.
    """

    def __init__(self, events: Events, log: RunLog) -> None:
        self._events = events
        self._log = log
        self._places: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()  # by kind
        self._users_given_up = 0

    def report(self, failure: GeneratorFailed, error: BaseException, during: str, user: int | None) -> None:
        """Write an event with the failure's place in the code; `during` names the task or other activity."""
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
