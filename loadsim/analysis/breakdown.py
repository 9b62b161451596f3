"""Tables of parts of a log: by group, profile, client or minute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadsim.analysis.aggregate import GROUP, MINUTE, gather
from loadsim.analysis.json_values import INLINE, RESPONSE, copied
from loadsim.analysis.score import Percentiles, Times, statistics_of
from loadsim.model.terms import Window
from loadsim.timinglog.header import group_name
from loadsim.timinglog.reader import TimingLog

BY = (GROUP, "profile", "client", MINUTE)
"""The ways to divide a log: fields of its records."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in the table of a part; see `score.TaskFigures`."""

    task: str
    weight: float
    hits: float
    failed: float
    service: Times = field(metadata=INLINE)
    response: Percentiles = field(metadata=RESPONSE)


@dataclass(frozen=True, slots=True)
class PartTable:
    """The tasks of one driver (`module`) in one part of the log (`value`), with their score."""

    value: str
    module: str
    score_ms: float | None
    response_score_ms: float | None
    tasks: Sequence[TaskRow]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A table for each value of `what`, one of `BY`, and each driver."""

    what: str
    tables: Sequence[PartTable]


def breakdown(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: Window,
    by: str,
) -> Breakdown:
    """Return the tables by `by`, one of `BY`."""
    parts = {part: modules for (part,), modules in gather(log, window_s, (by,)).items()}
    tables = [
        PartTable(
            value,
            one.protocol,
            one.score_ms,
            one.response_score_ms,
            [copied(TaskRow, task) for task in one.tasks],
        )
        for value, part in _in_order(log, by, parts)
        for one in statistics_of(parts[part], weights, window_s)
    ]
    return Breakdown(by, tables)


def _in_order(log: TimingLog, by: str, parts: Iterable[int]) -> list[tuple[str, int]]:
    """Return the parts with their names: groups and minutes in their own order, others in alphabetical order.

    Minutes count from the common start: 0:01 has the tasks due from 60 s to 120 s.
    """
    if by == MINUTE:
        return [(f"{minute // 60}:{minute % 60:02d}", minute) for minute in sorted(parts)]
    if by == GROUP and (groups := log.header.groups):
        return [(group_name(groups, group), group) for group in sorted(parts)]
    return sorted((log.strings[number], number) for number in parts)
