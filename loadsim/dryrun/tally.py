"""A plan's totals: tasks, mail and commands, by user and by hour of the profiles' day."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadsim.model.records import SPANS, CommandFields, MailFields, TaskFields
from loadsim.timinglog.planned_load import LEFT_OUT, PlannedLoad
from loadsim.users import tasks
from loadsim.users.activities import TASKS

SYNC = tasks.SYNC.name

TRAFFIC = ("messages_sent", "messages_received", "bytes_sent", "bytes_received")

DATA = ("SMTP DATA", "LMTP DATA")
"""The commands with a message, one for each."""

HOUR_S = 3600.0

GATHER_NS = 500_000_000
"""Dovecot 2.3 gathers announcements for half a second; users then list all announced messages at once."""


@dataclass(slots=True)
class Hour:
    tasks: Counter[str] = field(default_factory=Counter)
    traffic: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)


class Tally:
    """Counts an engine's records (`run_log.RunLog`) by user and by hour of the profiles' day.

    Hours count from 0; hour -1 is before the common start, and hour `last` after the end. This is a hot path: whole
    days of many users pass through it. `parts` is the number of equal parts into which the planned load divides the
    run; `further_tasks` are the names of plug-ins' and outside senders' tasks. `users` includes outside senders.
    """

    def __init__(
        self, users: int, hour_ns: int, last: int, duration_ns: int, parts: int, further_tasks: Sequence[str] = ()
    ) -> None:
        self.hour_ns = hour_ns
        self.last = last
        self.duration_ns = duration_ns
        self.parts = parts
        self.start_ns: int | None = None
        self.hours = {hour: Hour() for hour in range(-1, last + 1)}
        # Counts by name, then by user number; element 0 of each list is unused.
        self.tasks: dict[str, list[int]] = {task: [0] * (users + 1) for task in (*TASKS, *further_tasks)}
        self.traffic: dict[str, list[int]] = {figure: [0] * (users + 1) for figure in (*TRAFFIC, "recipients")}
        self.failures: Counter[str] = Counter()
        self.copied: Counter[str] = Counter()  # by first syncs: headers, bodies, bytes
        self.gathered = 0  # SYNCs within `GATHER_NS` of an earlier one, which would include them if the server gathers
        self._listed_ns = [-GATHER_NS] * (users + 1)
        self._due = {task: [0] * parts for task in self.tasks if task not in LEFT_OUT}
        self._data_bytes = 0
        self._hour = self.hours[-1]  # the hour looked up last
        self._begin_ns = self._end_ns = 0

    def add(self, other: Tally) -> None:
        """Add the counts of other users of the same plan."""
        for ours, theirs in ((self.tasks, other.tasks), (self.traffic, other.traffic), (self._due, other._due)):
            for name, counts in ours.items():
                ours[name] = [count + more for count, more in zip(counts, theirs[name], strict=True)]
        for number, hour in self.hours.items():
            hour.tasks.update(other.hours[number].tasks)
            hour.traffic.update(other.hours[number].traffic)
            hour.commands.update(other.hours[number].commands)
        self.failures.update(other.failures)
        self.copied.update(other.copied)
        self.gathered += other.gathered

    def load(self) -> PlannedLoad:
        """Return the number of due tasks by task and part of the run, leaving out tasks that are never due."""
        due = {task: tuple(counts) for task, counts in self._due.items() if any(counts)}
        return PlannedLoad(self.duration_ns / 1e9, due)

    def task(self, record: TaskFields) -> None:
        """Count a task for its user, in the hour when it was due. Spans are not tasks."""
        task, user, _, _, scheduled_ns, *_, outcome, error, _, _ = record
        if task in SPANS:
            return
        due = self._due.get(task)
        if due is not None and self.start_ns is not None:
            at = (scheduled_ns - self.start_ns) * self.parts // self.duration_ns
            if 0 <= at < self.parts:
                due[at] += 1
        if outcome != "ok":
            self.failures[f"{task}: {outcome} {error}".strip()] += 1
            return
        self.tasks[task][user] += 1
        if task == SYNC:
            if scheduled_ns - self._listed_ns[user] < GATHER_NS:
                self.gathered += 1
            else:
                self._listed_ns[user] = scheduled_ns
        hour = self._hour if self._begin_ns <= scheduled_ns < self._end_ns else self._hour_of(scheduled_ns)
        hour.tasks[task] += 1

    def mail(self, record: MailFields) -> None:
        event, _, user, sender, at_ns, _ = record
        if event != "accepted":
            return
        self.traffic["recipients"][sender] += 1
        self.traffic["messages_received"][user] += 1
        self.traffic["bytes_received"][user] += self._data_bytes
        hour = self._hour if self._begin_ns <= at_ns < self._end_ns else self._hour_of(at_ns)
        hour.traffic["messages_received"] += 1
        hour.traffic["bytes_received"] += self._data_bytes

    def command(self, record: CommandFields) -> None:
        """Count a protocol command. After DATA, the next record says that the message was accepted."""
        command, user, started_ns, _, _, sent_bytes, _ = record
        hour = self._hour if self._begin_ns <= started_ns < self._end_ns else self._hour_of(started_ns)
        hour.commands[command] += 1
        if command in DATA:
            self._data_bytes = sent_bytes
            self.traffic["messages_sent"][user] += 1
            self.traffic["bytes_sent"][user] += sent_bytes
            hour.traffic["messages_sent"] += 1
            hour.traffic["bytes_sent"] += sent_bytes

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Note the common start."""
        self.start_ns = facts.get("start_ns", self.start_ns)

    def ignore(self, *_: object) -> None:
        """Do nothing: in virtual time, nothing is late, and a tally is not written anywhere."""

    health = gather = write = ignore

    def _hour_of(self, at_ns: int) -> Hour:
        """Return the hour of an instant, and keep it in `_hour` with its bounds, so most callers need not call this."""
        if self.start_ns is None or at_ns < self.start_ns:
            return self.hours[-1]
        since_ns = at_ns - self.start_ns
        if since_ns >= self.duration_ns:
            return self.hours[self.last]
        number = min(since_ns // self.hour_ns, self.last - 1)
        self._hour = self.hours[number]
        self._begin_ns = self.start_ns + number * self.hour_ns
        self._end_ns = self.start_ns + min((number + 1) * self.hour_ns, self.duration_ns)
        return self._hour
