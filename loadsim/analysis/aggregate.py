"""Read the tasks of a log in one pass: outcomes, failures and times by driver and task."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from mmap import mmap
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loadsim.model.records import DELIVERY_RECEIPT, NO_SESSION, OUTCOMES, PROCESS_INBOX_SPAN, WITH_KIND
from loadsim.model.terms import INJECT, WITHOUT_WINDOW, Window
from loadsim.statistics.bins import Hits, bin_of, timed
from loadsim.timinglog.columns import Columns
from loadsim.timinglog.merge import in_window
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import CLOCK, OUTCOME


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """One task's records: `counts` by outcome, and of interrupted tasks; `failures` by outcome and error kind.

    `timed` has the service times of the hits (see `statistics.bins.Hits`), `waited_us` their response times. The two
    are sorted independently of each other. `by_clock` has the hits by the code of their clock; `service_s` and
    `between_s` are the sums of their service times and of the generator's time between their commands.
    """

    counts: Mapping[str, int]
    failures: Mapping[tuple[str, str], int]
    timed: NDArray[Any]
    waited_us: NDArray[Any]
    by_clock: NDArray[np.int64]
    service_s: float
    between_s: float

    @property
    def hits(self) -> int:
        return len(self.timed)


@dataclass(frozen=True, slots=True)
class DriverRecords:
    """One driver's records, by task. `users` is the number of users with at least one record.

    `inbox` has one record for each processing of an Inbox, which spans several tasks; None if there were none.
    `receipts` has one for each planned delivery receipt, likewise.
    """

    users: int
    tasks: Mapping[str, TaskRecords]
    inbox: TaskRecords | None = None
    receipts: TaskRecords | None = None


def read_tasks(log: TimingLog, *readers: Callable[[Columns], None]) -> None:
    """Read all tasks of a log once, and pass them to each reader: some of one driver's tasks of one name at a time."""
    for tasks in chain.from_iterable(map(methodcaller("by", "protocol", "task"), log.pieces("tasks"))):
        for read in readers:
            read(tasks)
        del tasks  # with the whole piece, before the next one is read


INTERRUPTED = "interrupted"
"""The count of failed tasks that are forgiven, as the scenario states an outage."""


class ByDriver:
    """Collects the records that count: those due in [begin, end), and all of LOGON, FIRST SYNC and LOGOFF.

    `forgiven` returns a mask of the failed tasks to count as interrupted instead; None if there was no outage.
    """

    def __init__(
        self, log: TimingLog, window_s: Window, forgiven: Callable[[Columns], NDArray[np.bool_]] | None = None
    ) -> None:
        self._log, self._window_s, self._forgiven = log, window_s, forgiven
        self._drivers: defaultdict[int, _Driver] = defaultdict(_Driver)

    def add(self, tasks: Columns) -> None:
        protocol, task = (int(tasks[name][0]) for name in ("protocol", "task"))
        if (name := self._log.strings[task]) == NO_SESSION:
            return
        if name not in WITHOUT_WINDOW:
            tasks = tasks.kept(in_window(tasks["scheduled_us"], self._window_s))
        if len(tasks):
            driver = self._drivers[protocol]
            if name != INJECT:
                driver.users.add(tasks["user"])
            driver.tasks[task].add(tasks, self._window_s, self._forgiven)

    def closed(self) -> dict[str, DriverRecords]:
        """Return the records by driver, and keep none of them here."""
        strings = self._log.strings
        drivers = sorted(self._drivers, key=strings.__getitem__)
        return {strings[protocol]: self._drivers.pop(protocol).closed(strings) for protocol in drivers}


_IS_FAILURE = np.isin(OUTCOMES, WITH_KIND)
"""True at the code of each outcome that is a failure."""


class _Driver:
    def __init__(self) -> None:
        self.tasks: defaultdict[int, _Task] = defaultdict(_Task)
        self.users = UserRows()

    def closed(self, strings: Sequence[str]) -> DriverRecords:
        """Return all records, freeing each task's in turn, so that none is in memory twice."""
        tasks = {strings[task]: self.tasks.pop(task).closed(strings) for task in sorted(self.tasks)}
        inbox, receipts = (tasks.pop(span, None) for span in (PROCESS_INBOX_SPAN, DELIVERY_RECEIPT))
        return DriverRecords(len(self.users), tasks, inbox, receipts)


class _Task:
    def __init__(self) -> None:
        self._occurred = np.zeros(len(OUTCOME), np.int64)
        self._failures = Counter[int]()
        self._timed, self._waited_us = Growing(np.uint32), Growing(np.uint32)
        self._by_clock = np.zeros(len(CLOCK), np.int64)
        self._service_us = self._between_us = 0
        self._interrupted: int | None = None

    def add(self, records: Columns, window_s: Window, forgiven: Callable[[Columns], NDArray[np.bool_]] | None) -> None:
        if forgiven is not None:
            interrupted = forgiven(records)
            self._interrupted = (self._interrupted or 0) + int(interrupted.sum())
            records = records.kept(~interrupted)
        outcome = records["outcome"]
        self._occurred += np.bincount(outcome, minlength=len(OUTCOME))
        if (failed := _IS_FAILURE[outcome]).any():
            # Outcome and error, packed into one number.
            self._failures.update((outcome[failed].astype(np.int64) << 16 | records["error"][failed]).tolist())
        hits = np.flatnonzero(outcome == OUTCOME["ok"])
        due_us, started_us, ended_us = (records[name][hits] for name in ("scheduled_us", "started_us", "ended_us"))
        took_us = ended_us - started_us
        self._timed.add(compact(timed(took_us, bin_of(due_us, window_s))))
        self._waited_us.add(compact(ended_us - due_us))
        self._by_clock += np.bincount(records["clock"][hits], minlength=len(CLOCK))
        self._service_us += int(took_us.sum())
        self._between_us += int(np.rint(records["late_between_s"][hits].astype(np.float64) * 1e6).sum())

    def closed(self, strings: Sequence[str]) -> TaskRecords:
        all_timed, waited_us = self._timed.taken(), self._waited_us.taken()
        all_timed.sort()
        waited_us.sort()
        failures = sorted(self._failures.items(), key=lambda one: (-one[1], one[0]))
        return TaskRecords(
            counts={name: int(self._occurred[code]) for name, code in OUTCOME.items()}
            | ({} if self._interrupted is None else {INTERRUPTED: self._interrupted}),
            failures={(OUTCOMES[failure >> 16], strings[failure & 0xFFFF]): times for failure, times in failures},
            timed=all_timed,
            waited_us=waited_us,
            by_clock=self._by_clock,
            service_s=self._service_us / 1e6,
            between_s=self._between_us / 1e6,
        )


class UserRows:
    """A row for each user, in the order in which they were added; users' numbers are at most `MOST_USERS`."""

    def __init__(self) -> None:
        self.users = np.zeros(0, np.int64)
        self._rows = np.zeros(0, np.int32)  # by the user's number; -1 for users without a row

    def __len__(self) -> int:
        return len(self.users)

    def add(self, users: NDArray[Any]) -> NDArray[np.int32]:
        """Return the users' rows, which are the next ones for new users."""
        if (more := int(users.max(initial=0)) + 1 - len(self._rows)) > 0:
            self._rows = np.append(self._rows, np.full(more, -1, np.int32))
        rows: NDArray[np.int32] = self._rows[users]
        if (is_new := rows < 0).any():
            new = users[is_new]
            self._rows[new] = places = np.arange(len(new), dtype=np.int32)
            new = new[self._rows[new] == places]  # each user once
            self._rows[new] = len(self) + places[: len(new)]
            self.users = np.append(self.users, new)
            rows = self._rows[users]
        return rows


CHUNK_BYTES = 1 << 20


class Growing:
    """Numbers added in parts and joined at the end; all are stored as wide as the widest.

    Each chunk is a memory mapping: its unused pages take no memory, and `taken` returns the chunks to the system one by
    one. An array that grows in steps leaves holes in the heap: 25 MiB for ten million tasks.
    """

    def __init__(self, kind: DTypeLike) -> None:
        self._kind: np.dtype[Any] = np.dtype(kind)
        self._chunks: list[NDArray[Any]] = []
        self._length = 0

    def add(self, numbers: NDArray[Any]) -> None:
        if numbers.itemsize > self._kind.itemsize:
            earlier, self._kind = self.taken(), numbers.dtype
            self.add(earlier)
        room = CHUNK_BYTES // self._kind.itemsize
        while len(numbers):
            if not (used := self._length % room):
                self._chunks.append(np.frombuffer(mmap(-1, CHUNK_BYTES), self._kind))
            some, numbers = numbers[: room - used], numbers[room - used :]
            self._chunks[-1][used : used + len(some)] = some
            self._length += len(some)

    def taken(self) -> NDArray[Any]:
        """Return all numbers, and empty this array."""
        numbers, begin = np.empty(self._length, self._kind), 0
        while self._chunks:
            chunk = self._chunks.pop(0)[: self._length - begin]
            numbers[begin : begin + len(chunk)] = chunk
            begin += len(chunk)
        self._length = 0
        return numbers


def windowed_hits(driver: DriverRecords, weights: Mapping[str, float]) -> tuple[Hits, ...]:
    return tuple(
        Hits(task, float(weights.get(task, 0)), records.timed)
        for task, records in sorted(driver.tasks.items())
        if len(records.timed) and task not in WITHOUT_WINDOW
    )


def compact(times_us: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers in 32 bits if they fit, as times below 71 minutes do."""
    fit = not len(times_us) or (times_us.min() >= 0 and times_us.max() <= np.iinfo(np.uint32).max)
    return times_us.astype(np.uint32) if fit else times_us
