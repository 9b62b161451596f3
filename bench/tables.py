"""What was measured as Markdown, for docs/explanation/performance.md, and the place of tables in pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.healthy import disturbed, worst
from bench.table import table
from loadsim.errors import ConfigError

BEGIN = "<!-- Made by `python -m bench --table`; do not edit. -->"
END = "<!-- The end of what was made. -->"

Found = Mapping[str, Any]
Row = Mapping[str, Any]


def document(found: Found) -> str:
    """All tables of one run of the benchmarks; those that it did not measure are left out."""
    machine = found["machine"]
    pieces = [
        f"Measured {found['at']} with `make bench{' BENCH=--full' if found['full'] else ''}`: {machine['cpu']},"
        f" {machine['cpus']} CPUs (client on {_listed(found['cpus']['client'])}, server on"
        f" {_listed(found['cpus']['server'])}), Linux {machine['kernel']}, Python {machine['python']};"
        f" load average before it began: {machine['load_before']:.1f}."
    ]
    for title, name, shown in (
        ("CPU per IMAP operation, null server (microseconds of the client)", "imap_null", _imap),
        ("CPU per IMAP operation, Dovecot (microseconds of the client)", "imap_dovecot", _imap),
        ("CPU per submitted message, null server (microseconds of the client)", "smtp_null", _smtp),
        ("Connected users, `loadsim run` on the null server", "users", _users),
        ("Many connected users in real time, `loadsim run` on the null server, all on the same CPUs", "many", _many),
        ("Lag of the event loop by load, `loadsim run` on the null server", "load", _load),
        ("The same load by 1 to N engines, null server, all on the same CPUs", "engines", _engines),
        ("From the server's write to the waiting coroutine, 1,000 sessions", "lateness", _lateness),
        ("Healthy runs, `loadsim run --pin` on the null server", "healthy", _healthy),
        ("Timing logs of 8 engines, merged, truncated and scored", "logs", _logs),
        ("TLS: a log-on, and a user who is on and idle (of the client)", "tls", _tls),
    ):
        if found.get(name):
            pieces += [f"### {title}", shown(found[name])]
            if name in found.get("loads", {}):
                pieces.append(f"Load average of the machine meanwhile: {found['loads'][name]:.1f}.")
    return "\n\n".join(pieces) + "\n"


def put_into(page: Path, tables: str, begin: str = BEGIN) -> None:
    """Replace what stands between the marks. Raises `ConfigError` when the page lacks them."""
    text = page.read_text()
    if begin not in text or END not in text:
        raise ConfigError(f"{page}: expected the marks of generated tables, found none")
    before, rest = text.split(begin)
    page.write_text(f"{before}{begin}\n\n{tables}\n{END}{rest.split(END)[1]}")


def _imap(rows: Sequence[Row]) -> str:
    return _by_operation(rows, ("imap", "uvloop"), ("NOOP", "STORE", "FETCH", "READ", "APPEND", "MOVE"), str)


def _smtp(rows: Sequence[Row]) -> str:
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


def _users(rows: Sequence[Row]) -> str:
    first = rows[0]
    body = []
    for row in rows:
        grown = (row["rss_kib"] - first["rss_kib"]) / (row["users"] - first["users"]) if row is not first else None
        body.append(
            [
                f"{row['users']:,}",
                str(row["engines"]),
                f"{row['rss_kib'] / 1024:.0f} MiB",
                f"{grown:.1f} KiB" if grown is not None else "",
                f"{row['log_on_s']:.1f} s",
                f"{row['users'] / row['log_on_s']:.0f}",
            ]
        )
    return table(["users", "engines", "memory", "for each user more", "log-on of all", "log-ons per second"], body)


def _load(rows: Sequence[Row]) -> str:
    body = [[f"{row['users']:,}", row["day"], f"{row['tasks_per_s']:.0f}", *_lag(row)] for row in rows]
    return table(["users", "day", "tasks per second", "CPU", *_LAG], body)


def _many(rows: Sequence[Row]) -> str:
    body = [
        [
            f"{row['users']:,}",
            str(row["engines"]),
            f"{row['rss_kib'] / row['users']:.1f} KiB",
            f"{row['log_on_s']:.0f} s",
            f"{row['tasks_per_s']:.0f}",
            *_lag(row),
        ]
        for row in rows
    ]
    return table(["users", "engines", "memory for each", "log-on of all", "tasks per second", "CPU", *_LAG], body)


def _engines(rows: Sequence[Row]) -> str:
    body = [
        [
            str(row["engines"]),
            f"{row['users']:,}",
            row["day"],
            f"{row['tasks_per_s']:.0f}",
            f"{row['cpu_ms_per_task']:.2f}",
            *_lag(row),
        ]
        for row in rows
    ]
    head = ["engines", "users", "day", "tasks per second", "CPU ms per task", "CPU of the busiest", *_LAG]
    return table(head, body)


def _tls(rows: Sequence[Row]) -> str:
    reference = rows[0]["log_on_us"]["median"]
    body = []
    for row in rows:
        us = row["log_on_us"]["median"]
        kib = row["idle_kib"]["median"]
        body.append([row["way"], f"{us:.0f} ({us / reference:.2f})", f"{kib:.1f}"])
    return table(["connection", "CPU us per log-on", "KiB per idle user"], body)


def _lateness(rows: Sequence[Row]) -> str:
    body = [[row["loop"], f"{row['pushes_per_s']:.0f}", *_lag(row)] for row in rows]
    return table(["loop", "pushes per second", "CPU", *_LAG], body)


def _healthy(rows: Sequence[Row]) -> str:
    most = worst(rows)
    figures = [f"{most['lag_p99_ms']:.2f}", f"{most['cpu_share']:.0%}", f"{most['lateness_p95_ms']:.2f}"]
    head = ["runs", "disturbed", "the others were called", "worst lag p99 ms", "most CPU", "worst lateness p95 ms"]
    return table(head, [[str(len(rows)), str(sum(map(disturbed, rows))), most["validity"], *figures]])


def _logs(rows: Sequence[Row]) -> str:
    steps = ("merge", "truncate", "score", "at_once", "answer")
    body = [
        [
            f"{row['records']:,}",
            f"{row['bytes'] / 1e9:.1f}",
            *(
                f"{row[step]['s']:.1f} s ({row[step]['cpu_s']:.1f} s CPU), {row[step]['peak_kib'] / 1024:.0f} MiB"
                for step in steps
            ),
            *(f"{row[rate] / 1e9:.2f}" for rate in ("crc_bytes_per_s", "write_bytes_per_s")),
        ]
        for row in rows
    ]
    head = ["tasks", "GB", "merge", "truncate", "score", "all three at once", "answer", "CRC GB/s", "disk GB/s"]
    return table(head, body)


_LAG = ("p50 ms", "p95 ms", "p99 ms", "max ms")


def _lag(row: Row) -> list[str]:
    return [f"{row['cpu_share']:.0%}", *(f"{row['lag_ms'][name]:.2f}" for name in ("p50", "p95", "p99", "max"))]


def _listed(cpus: Iterable[int]) -> str:
    return ", ".join(map(str, cpus))


def is_current(page: Path, tables: str, begin: str = BEGIN) -> bool:
    """Whether the page shows these tables."""
    shown = re.search(re.escape(begin) + r"\n\n(.*)\n" + re.escape(END), page.read_text(), re.DOTALL)
    return shown is not None and shown[1] == tables
