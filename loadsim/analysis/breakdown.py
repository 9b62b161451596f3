"""Tables of parts of a log: by profile or client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadsim.analysis.aggregate import gather
from loadsim.analysis.score import DriverFigures, TaskFigures
from loadsim.model.terms import Window
from loadsim.timinglog.reader import TimingLog

BY = ("profile", "client")
"""The ways to divide a log: fields of its records."""


@dataclass(frozen=True, slots=True)
class PartTable:
    """The tasks of one driver (`module`) in one part of the log (`value`), with their score."""

    value: str
    module: str
    score_ms: float | None
    response_score_ms: float | None
    tasks: Sequence[TaskFigures]


@dataclass(frozen=True, slots=True)
class Breakdown:
    """A table for each value of `what`, one of `BY`, and each driver."""

    what: str
    tables: Sequence[PartTable]


def breakdown(log: TimingLog, weights: Mapping[str, float], window_s: Window, by: str) -> Breakdown:
    """Return the tables by `by`, one of `BY`, in alphabetical order."""
    parts = {log.strings[number]: drivers for (number,), drivers in gather(log, window_s, (by,)).items()}
    tables = [
        PartTable(value, driver, one.score_ms, one.response_score_ms, one.tasks)
        for value, drivers in sorted(parts.items())
        for driver, records in sorted(drivers.items())
        for one in [DriverFigures.of(records, weights, window_s)]
    ]
    return Breakdown(by, tables)
