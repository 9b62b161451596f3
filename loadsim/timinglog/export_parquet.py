"""Task records as a Parquet file, with the columns of the CSV export and types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadsim.errors import ConfigError
from loadsim.model.records import OUTCOMES
from loadsim.timinglog.atomic_file import new_file
from loadsim.timinglog.reader import TimingLog
from loadsim.timinglog.records import NAMED_TASK, NEVER, Records

_ROWS = 1 << 20
"""The most rows of a row group. Large groups are read faster."""


def export_parquet(log: TimingLog, path: Path) -> None:
    """Write one row per task record, in the log's order; an instant that never was is null.

    Raises `ConfigError` without the package pyarrow, and `LogError` if the file exists.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ConfigError(
            "log export parquet: expected the package pyarrow, found none; pip install 'loadsim[parquet]'"
        ) from None
    with new_file(path, "Parquet file") as file:
        writer = parquet.ParquetWriter(file, _table(pyarrow, log, np.zeros(0, NAMED_TASK)).schema)
        with writer:
            tables: list[Any] = []
            for tasks in log.parts("tasks"):
                if tables and sum(map(len, tables)) + len(tasks) > _ROWS:
                    writer.write_table(pyarrow.concat_tables(tables), _ROWS)
                    tables = []
                tables.append(_table(pyarrow, log, tasks))
            if tables:
                writer.write_table(pyarrow.concat_tables(tables), _ROWS)


def _table(pyarrow: Any, log: TimingLog, tasks: Records) -> Any:

    def named(field: str, names: tuple[str, ...]) -> Any:
        return pyarrow.DictionaryArray.from_arrays(
            tasks[field].astype(np.int32), pyarrow.array(names, pyarrow.string())
        )

    def number(values: NDArray[Any], never: NDArray[np.bool_] | None = None) -> Any:
        return pyarrow.array(np.ascontiguousarray(values), mask=never)

    due_us, started_us, ended_us = tasks["scheduled_us"], tasks["started_us"], tasks["ended_us"]
    unstarted, unended = started_us == NEVER, ended_us == NEVER
    columns = {
        "scheduled_s": number(due_us / 1e6),
        "started_s": number(started_us / 1e6, unstarted),
        "service_ms": number((ended_us - started_us) / 1e3, unstarted | unended),
        "response_ms": number((ended_us - due_us) / 1e3, unended),
        "client": named("client", log.strings),
        "engine": named("engine", log.strings),
        "user": number(tasks["user"]),
        "profile": named("profile", log.strings),
        "protocol": named("protocol", log.strings),
        "task": named("task", log.strings),
        "outcome": named("outcome", OUTCOMES),
        "error": named("error", log.strings),
        "bytes": number(tasks["bytes"]),
        **{f"late_{cause}_ms": number(tasks[f"late_{cause}_s"] * 1e3) for cause in ("busy", "down", "generator")},
    }
    return pyarrow.table(columns)
