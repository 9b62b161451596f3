"""Task records as comma-separated values, for programs that are not ours."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from loadsim.results.records import NEVER, OUTCOMES, Records
from loadsim.results.timinglog import TimingLog

COLUMNS = (
    "scheduled_s",
    "started_s",
    "service_ms",
    "response_ms",
    "client",
    "engine",
    "user",
    "profile",
    "protocol",
    "task",
    "outcome",
    "error",
    "bytes",
)
"""The columns, in this order. Seconds count from the common start; what never happened is an empty cell."""

_CHUNK = 8192

_LINE = "%.6f,%.6f,%.3f,%.3f,%s,%s,%d,%s,%s,%s,%s,%s,%d\n"


def export_csv(log: TimingLog, file: TextIO) -> None:
    """Write a header line and one line per task record, in the log's order, to the full microsecond."""
    file.write(",".join(COLUMNS) + "\n")
    names = np.array([_quoted(name) for name in log.strings], np.object_)
    for tasks in log.parts("tasks"):
        for begin in range(0, len(tasks), _CHUNK):
            file.writelines(_lines(names, tasks[begin : begin + _CHUNK]))


def _quoted(name: str) -> str:
    """A name as it stands in a line: between quotation marks, where it must."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow([name, ""])
    return line.getvalue()[:-1]


def _lines(names: NDArray[np.object_], tasks: Records) -> list[str]:
    """The lines of some tasks: first as if all had begun and ended, which most have."""
    due_us, started_us, ended_us = (tasks[instant] for instant in ("scheduled_us", "started_us", "ended_us"))
    columns = [
        due_us / 1e6,
        started_us / 1e6,
        (ended_us - started_us) / 1e3,
        (ended_us - due_us) / 1e3,
        *(names[tasks[field]] for field in ("client", "engine")),
        tasks["user"],
        *(names[tasks[field]] for field in ("profile", "protocol", "task")),
        np.array(OUTCOMES, np.object_)[tasks["outcome"]],
        names[tasks["error"]],
        tasks["bytes"],
    ]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    lines = [_LINE % row for row in rows]
    unstarted, unended = started_us == NEVER, ended_us == NEVER
    for at in np.flatnonzero(unstarted | unended).tolist():
        due_s, started_s, _, response_ms, *others = _LINE.split(",")
        cells = [due_s, "" if unstarted[at] else started_s, "", "" if unended[at] else response_ms]
        values = [value for value, cell in zip(rows[at], [*cells, *others], strict=True) if cell]
        lines[at] = ",".join([*cells, *others]) % tuple(values)
    return lines
