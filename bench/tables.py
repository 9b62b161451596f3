"""Tables of measurements of one machine, for docs/explanation/performance.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.table import figure, table

Row = Mapping[str, Any]


def imap(rows: Sequence[Row]) -> str:
    """Return the CPU time of each operation."""
    return _by_operation(rows, ("imap", "uvloop"), ("NOOP", "STORE", "FETCH", "READ", "APPEND", "MOVE"), str)


def smtp(rows: Sequence[Row]) -> str:
    """Return the CPU time of a message of each size."""
    sizes = list(dict.fromkeys(row["operation"] for row in rows))
    return _by_operation(rows, ("smtp-source", "C"), sizes, lambda size: f"{int(size) // 1024} KB")


def _by_operation(rows: Sequence[Row], reference: tuple[str, str], operations: Sequence[str], name: Any) -> str:
    """A row for each client: medians, and in brackets how many times the reference's."""
    figures = {(row["client"], row["loop"], row["operation"]): row["us"] for row in rows}
    body = []
    for client, loop in dict.fromkeys((row["client"], row["loop"]) for row in rows):
        cells = []
        for operation in operations:
            us = figures.get((client, loop, operation))
            of = figures.get((*reference, operation))
            if us is None:
                cells.append("")
            elif of is None or (client, loop) == reference:
                cells.append(f"**{us['median']:.0f}**")
            else:
                cells.append(f"{us['median']:.0f} ({us['median'] / of['median']:.2f})")
        body.append([client, loop, *cells])
    return table(["client", "loop", *map(name, operations)], body)


def users(rows: Sequence[Row]) -> str:
    """Return memory and log-ons by number of users."""
    first, *others = rows
    more = [(row["rss_kib"] - first["rss_kib"]) / (row["users"] - first["users"]) for row in others]
    names = ("users", "engines", "memory", "for each user more", "log-on of all", "log-ons per second")
    return _of_runs(*names)([{**row, "more_kib": each} for row, each in zip(rows, [None, *more], strict=True)])


def _of_runs(*names: str) -> Callable[[Sequence[Row]], str]:
    """Return what makes a table of runs with these columns."""
    return lambda rows: table(names, [[_COLUMNS[name](row) for name in names] for row in rows])


def _lag_ms(name: str, row: Row) -> str:
    return f"{row['lag_ms'][name]:.2f}"


_LAG = ("p50", "p95", "p99", "max")
_LAG_MS = tuple(f"{name} ms" for name in _LAG)
_COLUMNS: Mapping[str, Callable[[Row], str]] = {
    "loop": lambda row: row["loop"],
    "looks per second": lambda row: f"{row['looks_per_s']:.0f}",
    "pushes per second": lambda row: f"{row['pushes_per_s']:.0f}",
    "driver": lambda row: row["driver"],
    "users": lambda row: f"{row['users']:,}",
    "engines": lambda row: f"{row['engines']}",
    "day": lambda row: row["day"],
    "memory": lambda row: f"{row['rss_kib'] / 1024:.0f} MiB",
    "memory for each": lambda row: f"{row['rss_kib'] / row['users']:.1f} KiB",
    "memory of each, idle": lambda row: f"{row['idle_kib']:.1f} KiB",
    "and after the new mail": lambda row: f"{row['idle_kib'] + row['grown_kib']:.1f} KiB",
    "for each user more": lambda row: figure(row["more_kib"], ".1f", " KiB"),
    "log-on of all": lambda row: f"{row['log_on_s']:.1f} s",
    "log-ons per second": lambda row: f"{row['users'] / row['log_on_s']:.0f}",
    "tasks per second": lambda row: f"{row['tasks_per_s']:.0f}",
    "CPU ms per task": lambda row: figure(row["cpu_ms_per_task"], ".2f"),
    "CPU": lambda row: f"{row['cpu_share']:.0%}",
    "CPU of the busiest": lambda row: f"{row['cpu_share']:.0%}",
    **{f"{name} ms": partial(_lag_ms, name) for name in _LAG},
}
load = _of_runs("users", "day", "tasks per second", "CPU", *_LAG_MS)
drivers = _of_runs("driver", "users", "day", "memory", "tasks per second", "CPU ms per task", *_LAG_MS)
many = _of_runs("users", "engines", "memory for each", "log-on of all", "tasks per second", "CPU", *_LAG_MS)
engines = _of_runs("engines", "users", "day", "tasks per second", "CPU ms per task", "CPU of the busiest", *_LAG_MS)
_MEMORY = ("memory of each, idle", "and after the new mail")
idle = _of_runs("driver", "users", *_MEMORY, "log-on of all", "looks per second", "CPU", *_LAG_MS)
lateness = _of_runs("loop", "pushes per second", "CPU", *_LAG_MS)


def tls(rows: Sequence[Row]) -> str:
    """Return cost of each way to connect."""
    reference = rows[0]["log_on_us"]["median"]
    body = []
    for row in rows:
        us = row["log_on_us"]["median"]
        kib = row["idle_kib"]["median"]
        body.append([row["way"], f"{us:.0f} ({us / reference:.2f})", f"{kib:.1f}"])
    return table(["connection", "CPU us per log-on", "KiB per idle user"], body)


def logs(rows: Sequence[Row]) -> str:
    """Return duration and memory of an answer."""
    body = [
        [
            f"{row['records']:,}",
            f"{row['bytes'] / 1e9:.1f}",
            f"{row['s']:.1f} s ({row['cpu_s']:.1f} s CPU), {row['peak_kib'] / 1024:.0f} MiB",
        ]
        for row in rows
    ]
    return table(["tasks", "GB", "loadsim log answer"], body)
