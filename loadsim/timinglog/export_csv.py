"""A log's records as comma-separated values, for other programs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from loadsim.model.records import EVENTS, OUTCOMES
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import MAKERS, NEVER, Records

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
    "late_busy_ms",
    "late_down_ms",
    "late_generator_ms",
)
"""The columns of tasks, in this order. Seconds count from the common start; an instant that never was is empty."""

MAIL_COLUMNS = ("at_s", "client", "engine", "message", "user", "sender", "event", "folder")
COMMAND_COLUMNS = (
    *("started_s", "took_ms", "client", "engine", "user", "command", "outcome"),
    *("sent_bytes", "received_bytes"),
)

_CHUNK = 8192

_LINE = "%.6f,%.6f,%.3f,%.3f,%s,%s,%d,%s,%s,%s,%s,%s,%d,%.3f,%.3f,%.3f\n"

Names = NDArray[np.object_]


def export_csv(log: TimingLog, file: TextIO, kind: str = "tasks") -> None:
    """Write a header line and one line per record of a kind (see `CSV_KINDS`), with full microseconds."""
    if kind == HEALTH:
        _export_health(log, file)
        return
    table = _TABLES[kind]
    file.write(",".join(table.columns) + "\n")
    names = np.array([_quoted(name) for name in log.strings], np.object_)
    for records in log.parts(kind):
        for begin in range(0, len(records), _CHUNK):
            file.writelines(table.lines(names, records[begin : begin + _CHUNK]))


def _quoted(name: str) -> str:
    """Return a name as a CSV cell, in quotation marks if needed."""
    line = StringIO()
    csv.writer(line, lineterminator="").writerow([name, ""])
    return line.getvalue()[:-1]


def _rows(columns: Sequence[NDArray[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _tasks(names: Names, tasks: Records) -> list[str]:
    """Return the lines of tasks: first as if all had begun and ended, which most have, then those that have not."""
    due_us, started_us, ended_us = (tasks[instant] for instant in ("scheduled_us", "started_us", "ended_us"))
    rows = _rows(
        [
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
            *(tasks[f"late_{cause}_s"] * 1e3 for cause in ("busy", "down", "generator")),
        ]
    )
    lines = [_LINE % row for row in rows]
    unstarted, unended = started_us == NEVER, ended_us == NEVER
    for at in np.flatnonzero(unstarted | unended).tolist():
        due_s, started_s, _, response_ms, *others = _LINE.split(",")
        cells = [due_s, "" if unstarted[at] else started_s, "", "" if unended[at] else response_ms]
        values = [value for value, cell in zip(rows[at], [*cells, *others], strict=True) if cell]
        lines[at] = ",".join([*cells, *others]) % tuple(values)
    return lines


def _mails(names: Names, mails: Records) -> list[str]:
    rows = _rows(
        [
            mails["at_us"] / 1e6,
            *(names[mails[field]] for field in ("client", "engine")),
            np.char.decode(mails["message"], "ascii"),
            *(mails[field] for field in ("user", "sender")),
            np.array(EVENTS, np.object_)[mails["event"]],
            names[mails["folder"]],
        ]
    )
    return ["%.6f,%s,%s,%s,%d,%d,%s,%s\n" % row for row in rows]  # noqa: UP031 - several times as fast


def _commands(names: Names, commands: Records) -> list[str]:
    rows = _rows(
        [
            commands["started_us"] / 1e6,
            commands["took_us"] / 1e3,
            *(names[commands[field]] for field in ("client", "engine")),
            commands["user"],
            names[commands["command"]],
            np.array(OUTCOMES, np.object_)[commands["outcome"]],
            *(commands[field] for field in ("sent_bytes", "received_bytes")),
        ]
    )
    return ["%.6f,%.3f,%s,%s,%d,%s,%s,%d,%d\n" % row for row in rows]  # noqa: UP031


class _Table(NamedTuple):
    columns: Sequence[str]
    lines: Callable[[Names, Records], list[str]]


_TABLES: Mapping[str, _Table] = {
    "tasks": _Table(COLUMNS, _tasks),
    "mails": _Table(MAIL_COLUMNS, _mails),
    "commands": _Table(COMMAND_COLUMNS, _commands),
}

HEALTH = "health"

CSV_KINDS = (*_TABLES, HEALTH)
"""The kinds of records that can be exported."""


def _export_health(log: TimingLog, file: TextIO) -> None:
    """Write one line per health sample; spaces separate the numbers of a list."""
    own = dict(zip(MAKERS, (getattr(log.sources[0], maker) for maker in MAKERS), strict=True))
    samples = [{**own, **sample} for sample in log.health]
    keys = {key for sample in samples for key, value in sample.items() if not isinstance(value, Mapping)}
    columns = ["at_s", *MAKERS, *sorted(keys - {"at_s", *MAKERS})]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for sample in samples:
        cells = (sample.get(column) for column in columns)
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in cells])
