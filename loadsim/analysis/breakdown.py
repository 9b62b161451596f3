"""Tables of parts of a log: by group, profile, driver, client, minute or outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from loadsim.analysis.aggregate import GROUP, MINUTE, DriverRecords, Part, gather
from loadsim.analysis.json_values import INLINE, copied
from loadsim.analysis.nearest_rank import percentile
from loadsim.analysis.score import Times, score_parts
from loadsim.model.records import OUTCOMES
from loadsim.model.terms import Window
from loadsim.timinglog.groups import Groups
from loadsim.timinglog.reader import TimingLog

OUTCOME = "outcome"

BY = {
    GROUP: (GROUP,),
    "profile": ("profile",),
    "module": ("protocol",),
    "client": ("client",),
    MINUTE: (MINUTE,),
    OUTCOME: (OUTCOME,),
}
"""The ways to divide a log, and the fields of its records that each uses."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task in the table of a part; see `score.TaskStatistics`."""

    task: str
    weight: float
    hits: float
    failed: float
    service: Times = field(metadata=INLINE)
    percentile_ms: float | None
    response_percentile_ms: float | None


@dataclass(frozen=True, slots=True)
class PartTable:
    """The tasks of one driver (`module`) in one part of the log (`value`), with their score."""

    value: str
    module: str
    score_ms: float | None
    response_score_ms: float | None
    tasks: Sequence[TaskRow]


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    """The tasks of one name with one outcome; `percentile_ms` is the requested percentile of the times."""

    task: str
    count: float
    took: Times = field(metadata=INLINE)
    percentile_ms: float | None


@dataclass(frozen=True, slots=True)
class OutcomeTable:
    """The tasks of one driver (`module`) with the outcome `value`, which have no score."""

    value: str
    module: str
    score_ms: None
    tasks: Sequence[OutcomeRow]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A table for each value of `what`, one of `BY`, and each driver."""

    what: str
    tables: Sequence[PartTable | OutcomeTable]


def breakdown(
    log: TimingLog,
    weights: Mapping[str, float],
    window_s: Window,
    by: str,
    percent: int | Fraction,
) -> Breakdown:
    """Return the tables by `by`, one of `BY`."""
    tables: list[PartTable | OutcomeTable] = []
    if by == OUTCOME:
        gathered = gather(log, window_s, BY[by], all_ended=True)
        for value, part in _in_order(log, by, [*gathered]):
            tables += [
                OutcomeTable(value, module, None, _outcome_rows(records, percent))
                for module, records in gathered[part].items()
            ]
    else:
        parts = score_parts(log, weights, window_s, BY[by], percent)
        for value, part in _in_order(log, by, [*parts]):
            tables += [
                PartTable(
                    value,
                    one.protocol,
                    one.score_ms,
                    one.response_score_ms,
                    [copied(TaskRow, task) for task in one.tasks],
                )
                for one in parts[part]
            ]
    return Breakdown(by, tables)


def _outcome_rows(module: DriverRecords, percent: int | Fraction) -> list[OutcomeRow]:
    return [
        OutcomeRow(
            task=task,
            count=sum(records.counts.values()),
            took=Times.of_sorted(records.took_us),
            percentile_ms=percentile(records.took_us, percent) / 1000 if len(records.took_us) else None,
        )
        for task, records in sorted(module.tasks.items())
    ]


def _in_order(log: TimingLog, by: str, parts: list[Part]) -> list[tuple[str, Part]]:
    """Return the parts with their names: groups, minutes and outcomes in their own order, others in alphabetical order.

    Minutes count from the common start: 0:01 has the tasks due from 60 s to 120 s.
    """
    if by == MINUTE:
        return [(f"{minute // 60}:{minute % 60:02d}", (minute,)) for (minute,) in sorted(parts)]
    if by == GROUP and (groups := Groups.of(log.header)):
        return [(groups.name(group), (group,)) for (group,) in sorted(parts)]
    if by == OUTCOME:
        return [(OUTCOMES[outcome], (outcome,)) for (outcome,) in sorted(parts)]
    return sorted((" on ".join(log.strings[number] for number in part), part) for part in parts)
