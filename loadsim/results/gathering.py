"""What counts of the task records of a log, gathered in one pass however many they are: outcomes, failures, times.

By client module and task, and by whatever else is asked for: run, client machine, group, profile, minute, outcome.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import LogError
from loadsim.results.groups import Groups
from loadsim.results.merge import WITHOUT_WINDOW, in_window
from loadsim.results.records import NEVER, OUTCOME, OUTCOMES, Records, chosen
from loadsim.results.slots import Hits, in_order, slot_of
from loadsim.results.timinglog import TimingLog

FAILURES = ("refused", "lost", "timeout")
"""The outcomes of what was begun and came to a bad end."""

MINUTE = "minute"
"""A field that records do not have: the minute, from the common start, in which they were due."""

GROUP = "group"
"""Another: the number (from 0) of their user's group in the topology, where the log's header says who was in which."""

_MINUTE_US = 60_000_000

Part = tuple[int, ...]
"""The values of the fields that a log was parted by: numbers of names, of groups, of outcomes, of minutes."""


@dataclass(frozen=True, slots=True)
class TaskRecords:
    """The records of one task. Times are those of hits, in microseconds, sorted: `took_us` from the start, `slot` being
    the slot of the window in which each of these was due; `waited_us`, in an order of its own, from the due time.

    `counts` are by outcome, `failures` by outcome and kind of error.
    """

    counts: Mapping[str, int]
    failures: Mapping[tuple[str, str], int]
    took_us: NDArray[Any]
    slot: NDArray[np.uint16]
    waited_us: NDArray[Any]


@dataclass(frozen=True, slots=True)
class ModuleRecords:
    """The records of one client module, by task, and how many users of how many runs have any."""

    users: int
    tasks: Mapping[str, TaskRecords]


def gather(
    log: TimingLog, window_s: tuple[float, float], fields: Sequence[str] = (), *, all_ended: bool = False
) -> dict[Part, dict[str, ModuleRecords]]:
    """By part of the log and name of the client module, the records that count.

    A record counts when its due time lies in [begin, end); LOGON and LOGOFF always do, but are in no minute. With
    `all_ended`, times are not only those of hits but of all tasks that began and ended, whatever came of them.
    Raises `LogError` when the log is parted by groups and does not know a user's.
    """
    groups = Groups.of(log.header) if GROUP in fields else None
    without_window = np.isin(np.array(log.strings), WITHOUT_WINDOW)
    found: defaultdict[Part, defaultdict[int, _Module]] = defaultdict(lambda: defaultdict(_Module))
    for records in log.pieces("tasks"):
        inside = in_window(records["scheduled_us"], window_s)
        windowless = without_window[records["task"]]
        counted = chosen(records, inside & ~windowless if MINUTE in fields else inside | windowless)
        for (*part, protocol), of_module in _split(counted, [*fields, "protocol"], groups):
            found[tuple(part)][protocol].add(of_module, window_s, all_ended)
    return {
        part: {
            log.strings[protocol]: modules[protocol].closed(log.strings)
            for protocol in sorted(modules, key=log.strings.__getitem__)
        }
        for part, modules in found.items()
    }


def _split(records: Records, fields: Sequence[str], groups: Groups | None = None) -> Iterator[tuple[Part, Records]]:
    """The records by the values of some fields."""
    if not fields:
        yield (), records
        return
    first, *others = fields
    numbers = _numbers(records, first, groups)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    begins = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)])
    if len(begins) > 1:
        records = chosen(records, order)
    for begin, end in zip(begins, [*begins[1:], len(records)], strict=False):
        for rest, some in _split(records[begin:end], others, groups):
            yield (int(numbers[begin]), *rest), some


def _numbers(records: Records, field: str, groups: Groups | None) -> NDArray[Any]:
    """The values of a field, also of one that is computed."""
    if field == MINUTE:
        return np.asarray(records["scheduled_us"] // _MINUTE_US)
    if field == GROUP:
        if groups is None:
            raise LogError("groups: expected a log whose header has them, found one without")
        return groups.numbers(records["user"])
    return np.asarray(records[field])


@dataclass(slots=True)
class _Module:
    """One client module while it is being gathered."""

    tasks: defaultdict[int, _Task] = field(default_factory=lambda: defaultdict(_Task))
    users: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, records: Records, window_s: tuple[float, float], all_ended: bool) -> None:
        """More records."""
        for (task,), of_task in _split(records, ["task"]):
            self.tasks[task].add(of_task, window_s, all_ended)
        users = _distinct(records["run"].astype(np.int64) << 32 | records["user"])
        self.users = _distinct(np.concatenate([self.users, users]))

    def closed(self, strings: Sequence[str]) -> ModuleRecords:
        """All of it; what was gathered is let go, task by task."""
        tasks = {strings[task]: self.tasks.pop(task).closed(strings) for task in [*self.tasks]}
        return ModuleRecords(len(self.users), tasks)


def _distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order, as `np.unique` has them, which takes several times as long."""
    ordered: NDArray[np.int64] = np.sort(numbers)
    first: NDArray[np.bool_] = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[first]


@dataclass(slots=True)
class _Task:
    """One task while it is being gathered."""

    occurred: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(OUTCOME), np.int64))
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)
    took_us: list[NDArray[Any]] = field(default_factory=list)
    waited_us: list[NDArray[Any]] = field(default_factory=list)
    slot: list[NDArray[np.uint16]] = field(default_factory=list)

    def add(self, records: Records, window_s: tuple[float, float], all_ended: bool) -> None:
        """More records."""
        occurred = np.bincount(records["outcome"], minlength=len(OUTCOME))
        self.occurred += occurred
        if occurred[[OUTCOME[outcome] for outcome in FAILURES]].any():
            failed = records[np.isin(records["outcome"], [OUTCOME[outcome] for outcome in FAILURES])]
            self.errors.update(zip(failed["outcome"].tolist(), failed["error"].tolist(), strict=True))
        due_us, started_us, ended_us = records["scheduled_us"], records["started_us"], records["ended_us"]
        timed = (started_us != NEVER) & (ended_us != NEVER) if all_ended else records["outcome"] == OUTCOME["ok"]
        self.took_us.append(compact((ended_us - started_us)[timed]))
        self.waited_us.append(compact((ended_us - due_us)[timed]))
        self.slot.append(slot_of(due_us[timed], window_s))

    def closed(self, strings: Sequence[str]) -> TaskRecords:
        """All of it, in order; what was gathered is let go."""
        took_us, slot = in_order(_joined(self.took_us), _joined(self.slot))
        waited_us = _joined(self.waited_us)
        waited_us.sort()
        errors = sorted(self.errors.items(), key=lambda one: (-one[1], one[0]))
        return TaskRecords(
            counts={name: int(self.occurred[code]) for name, code in OUTCOME.items()},
            failures={(OUTCOMES[outcome], strings[error]): times for (outcome, error), times in errors},
            took_us=compact(took_us),
            slot=slot,
            waited_us=waited_us,
        )


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    whole = np.concatenate(parts)
    parts.clear()
    return whole


def windowed_hits(module: ModuleRecords, weights: Mapping[str, float]) -> tuple[Hits, ...]:
    """The hits of each task that has any in the window."""
    return tuple(
        Hits(task, float(weights.get(task, 0)), records.took_us, records.slot)
        for task, records in sorted(module.tasks.items())
        if len(records.took_us) and task not in WITHOUT_WINDOW
    )


def compact(times_us: NDArray[Any]) -> NDArray[Any]:
    """The same times in half the memory, if they fit: below 71 minutes."""
    fit = not len(times_us) or (times_us.min() >= 0 and times_us.max() <= np.iinfo(np.uint32).max)
    return times_us.astype(np.uint32) if fit else times_us
