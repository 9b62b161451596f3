"""Task records as comma-separated values, for programs that are not ours."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, TextIO

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


def export_csv(log: TimingLog, file: TextIO) -> None:
    """Write a header line and one line per task record, in the log's order, to the full microsecond."""
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(COLUMNS)
    for tasks in log.parts("tasks"):
        for begin in range(0, len(tasks), _CHUNK):
            lines.writerows(_rows(log, tasks[begin : begin + _CHUNK]))


def _rows(log: TimingLog, tasks: Records) -> Iterator[tuple[Any, ...]]:
    name = log.strings
    instants = (tasks[instant].tolist() for instant in ("scheduled_us", "started_us", "ended_us"))
    rest = (
        tasks[field].tolist()
        for field in ("client", "engine", "user", "profile", "protocol", "task", "outcome", "error", "bytes")
    )
    for due_us, started_us, ended_us, client, engine, user, profile, protocol, task, outcome, error, size in zip(
        *instants, *rest, strict=True
    ):
        yield (
            f"{due_us / 1e6:.6f}",
            "" if started_us == NEVER else f"{started_us / 1e6:.6f}",
            "" if NEVER in (started_us, ended_us) else f"{(ended_us - started_us) / 1e3:.3f}",
            "" if ended_us == NEVER else f"{(ended_us - due_us) / 1e3:.3f}",
            name[client],
            name[engine],
            user,
            name[profile],
            name[protocol],
            name[task],
            OUTCOMES[outcome],
            name[error],
            size,
        )
