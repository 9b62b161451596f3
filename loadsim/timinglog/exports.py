"""Export of a log's records as comma-separated values."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from loadsim.model.records import CLOCKS, EVENTS, OUTCOMES
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import KINDS, MAKERS, NEVER, Records

HEALTH = "health"

CSV_KINDS = (*KINDS, HEALTH)
"""The kinds of records that can be exported."""


def _seconds(instants_us: NDArray[np.int64]) -> list[str]:
    """Format instants as seconds from the common start, with microseconds; "" if they never came."""
    return ["" if at_us == NEVER else f"{at_us / 1e6:.6f}" for at_us in instants_us.tolist()]


def _took_ms(begins_us: NDArray[np.int64], ends_us: NDArray[np.int64]) -> list[str]:
    """Format spans as milliseconds with three decimals; "" if they never began or ended."""
    spans_us = zip(begins_us.tolist(), ends_us.tolist(), strict=True)
    return ["" if NEVER in (begin, end) else f"{(end - begin) / 1e3:.3f}" for begin, end in spans_us]


def columns_of(kind: str, records: Records, strings: tuple[str, ...]) -> dict[str, list[Any]]:
    def named(field: str, names: tuple[str, ...] = strings) -> list[str]:
        return [names[number] for number in records[field].tolist()]

    def numbers(field: str) -> list[Any]:
        return records[field].tolist()  # type: ignore[no-any-return]

    makers = {name: named(name) for name in ("client", "engine")}
    if kind == "mails":
        return {
            "at_s": _seconds(records["at_us"]),
            **makers,
            "message": np.char.decode(records["message"], "ascii").tolist(),
            "user": numbers("user"),
            "sender": numbers("sender"),
            "event": named("event", EVENTS),
            "folder": named("folder"),
        }
    if kind == "commands":
        return {
            "started_s": _seconds(records["started_us"]),
            "took_ms": [f"{took_us / 1e3:.3f}" for took_us in numbers("took_us")],
            **makers,
            "user": numbers("user"),
            "command": named("command"),
            "outcome": named("outcome", OUTCOMES),
            **{name: numbers(name) for name in ("sent_bytes", "received_bytes")},
        }
    return {
        "scheduled_s": _seconds(records["scheduled_us"]),
        "started_s": _seconds(records["started_us"]),
        "service_ms": _took_ms(records["started_us"], records["ended_us"]),
        "response_ms": _took_ms(records["scheduled_us"], records["ended_us"]),
        **makers,
        "user": numbers("user"),
        **{name: named(name) for name in ("profile", "protocol", "task")},
        "outcome": named("outcome", OUTCOMES),
        "error": named("error"),
        "bytes": numbers("bytes"),
        **{
            f"late_{cause}_ms": [f"{late_s * 1e3:.3f}" for late_s in numbers(f"late_{cause}_s")]
            for cause in ("busy", "down", "generator", "between", "own")
        },
        "clock": named("clock", CLOCKS),
    }


COLUMNS = tuple(columns_of("tasks", np.zeros(0, KINDS["tasks"].named), ()))
"""The columns for tasks."""


def export_csv(log: TimingLog, file: TextIO, kind: str = "tasks") -> None:
    """Write a header line, and one line per record of a kind (see `CSV_KINDS`), with microseconds."""
    writer = csv.writer(file, lineterminator="\n")
    if kind == HEALTH:
        _export_health(log, writer)
        return
    writer.writerow(columns_of(kind, np.zeros(0, KINDS[kind].named), ()))
    for piece in log.pieces(kind):
        writer.writerows(zip(*columns_of(kind, piece.records(), log.strings).values(), strict=True))


def _export_health(log: TimingLog, writer: Any) -> None:
    """Write one line per health sample, with spaces between the numbers in a list."""
    keys = {key for sample in log.health for key, value in sample.items() if not isinstance(value, Mapping)}
    columns = ["at_s", *MAKERS, *sorted(keys - {"at_s", *MAKERS})]
    writer.writerow(columns)
    for sample in log.health:
        cells = (sample.get(column) for column in columns)
        writer.writerow([" ".join(map(str, cell)) if isinstance(cell, list) else cell for cell in cells])
