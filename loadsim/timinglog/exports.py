"""A log's records for other programs, as comma-separated values."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from loadsim.model.records import EVENTS, OUTCOMES
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import KINDS, MAKERS, NEVER, Records

HEALTH = "health"

CSV_KINDS = (*KINDS, HEALTH)
"""The kinds of records that can be exported."""


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """Values of records, or numbers of `names`. A value that `never` was is empty."""

    values: NDArray[Any]
    names: tuple[str, ...] | None = None
    never: NDArray[np.bool_] | None = None

    def cells(self, unit: str) -> list[str]:
        """Return the values as text: seconds with all microseconds, milliseconds with three decimals."""
        values = self.values.tolist()
        if self.names is not None:
            return [self.names[value] for value in values]
        form = {"s": "%.6f", "ms": "%.3f"}.get(unit, "%s")
        cells = [form % value for value in values]
        for at in np.flatnonzero(self.never).tolist() if self.never is not None else ():
            cells[at] = ""
        return cells


def columns_of(kind: str, records: Records, strings: tuple[str, ...]) -> dict[str, ColumnValues]:
    """Return the columns of a kind of records. Seconds count from the common start."""
    makers = {name: ColumnValues(records[name], strings) for name in ("client", "engine")}
    if kind == "mails":
        return {
            "at_s": ColumnValues(records["at_us"] / 1e6),
            **makers,
            "message": ColumnValues(np.char.decode(records["message"], "ascii")),
            "user": ColumnValues(records["user"]),
            "sender": ColumnValues(records["sender"]),
            "event": ColumnValues(records["event"], EVENTS),
            "folder": ColumnValues(records["folder"], strings),
        }
    if kind == "commands":
        return {
            "started_s": ColumnValues(records["started_us"] / 1e6),
            "took_ms": ColumnValues(records["took_us"] / 1e3),
            **makers,
            "user": ColumnValues(records["user"]),
            "command": ColumnValues(records["command"], strings),
            "outcome": ColumnValues(records["outcome"], OUTCOMES),
            **{name: ColumnValues(records[name]) for name in ("sent_bytes", "received_bytes")},
        }
    due_us, started_us, ended_us = (records[name] for name in ("scheduled_us", "started_us", "ended_us"))
    unstarted, unended = started_us == NEVER, ended_us == NEVER
    return {
        "scheduled_s": ColumnValues(due_us / 1e6),
        "started_s": ColumnValues(started_us / 1e6, never=unstarted),
        "service_ms": ColumnValues((ended_us - started_us) / 1e3, never=unstarted | unended),
        "response_ms": ColumnValues((ended_us - due_us) / 1e3, never=unended),
        **makers,
        "user": ColumnValues(records["user"]),
        **{name: ColumnValues(records[name], strings) for name in ("profile", "protocol", "task")},
        "outcome": ColumnValues(records["outcome"], OUTCOMES),
        "error": ColumnValues(records["error"], strings),
        "bytes": ColumnValues(records["bytes"]),
        **{
            f"late_{cause}_ms": ColumnValues(records[f"late_{cause}_s"] * 1e3)
            for cause in ("busy", "down", "generator")
        },
    }


COLUMNS = tuple(columns_of("tasks", np.zeros(0, KINDS["tasks"].named), ()))
"""The columns of tasks."""


def export_csv(log: TimingLog, file: TextIO, kind: str = "tasks") -> None:
    """Write a header line and one line per record of a kind (see `CSV_KINDS`), with full microseconds."""
    writer = csv.writer(file, lineterminator="\n")
    if kind == HEALTH:
        _export_health(log, writer)
        return
    writer.writerow(columns_of(kind, np.zeros(0, KINDS[kind].named), ()))
    for piece in log.pieces(kind):
        columns = columns_of(kind, piece.records(), log.strings)
        cells = [column.cells(name.rpartition("_")[2]) for name, column in columns.items()]
        writer.writerows(zip(*cells, strict=True))


def _export_health(log: TimingLog, writer: Any) -> None:
    """Write one line per health sample; spaces separate the numbers of a list."""
    keys = {key for sample in log.health for key, value in sample.items() if not isinstance(value, Mapping)}
    columns = ["at_s", *MAKERS, *sorted(keys - {"at_s", *MAKERS})]
    writer.writerow(columns)
    for sample in log.health:
        cells = (sample.get(column) for column in columns)
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in cells])
