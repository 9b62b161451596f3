"""A series of builds: a CSV file with a row per run, for tools that find change points, such as Apache Otava."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from loadsim.analysis.probes.resources import HOST, kind_of
from loadsim.comparison.compared_run import ComparedRun, read_run
from loadsim.comparison.obstacles import terms_digest
from loadsim.errors import ConfigError, RunInvalid
from loadsim.files import append_text
from loadsim.model.figures import Figures

ALIKE = ("plan_digest", "terms")
"""Columns whose values must be equal in all rows; `terms` covers all that `compare` requires."""

SERVER_CORES = "server_cpu_cores"
"""The figure of the probe `host` for the cores that the server takes."""


def append_run(place: str, file: Path, option: str, build: str = "") -> None:
    """Append a run's row to a series, with a header if the file is new or empty.

    Raises `RunInvalid` for an invalid run, and `ConfigError` if the run does not continue the series, or if the file
    cannot be written.
    """
    run = read_run(place)
    if run.verdict.validity == "invalid":
        why = "; ".join(finding.text for finding in run.verdict.defects)
        raise RunInvalid(f"{place}: the run is invalid, so it is not part of a series: {why}")
    row = row_of(run, build)
    append_text(file, option, lambda series: _added(row, series, f"{option} {file}", place))


def row_of(run: ComparedRun, build: str) -> dict[str, str]:
    """Return the run's values by column. Figures have the names that criteria use.

    Raises `ConfigError` if the start is unknown, a figure is infinite, or the build's name is not one printable line.
    """
    place = run.entry.path
    sources = (source for source in run.recorded.log.sources if not source.is_monitor)
    starts_ns = [zero_ns for source in sources if (zero_ns := source.zero_wall_ns) is not None]
    if not starts_ns:
        raise ConfigError(f"{place}: expected a run with the time of its start, found none")
    if not build.isprintable():
        raise ConfigError(f"{place}: build: expected printable characters on one line, found {build!r}")
    row = {
        "time": datetime.fromtimestamp(min(starts_ns) // 10**9, UTC).isoformat(),
        "build": build,
        "validity": run.verdict.validity,
        "plan_digest": run.figures.plan_digest or "",
        "terms": terms_digest(run),
    }
    for name, value in _numbers(run.figures):
        if not math.isfinite(value):
            raise ConfigError(f"{place}: {name}: expected a number, found an infinite time: no mean can include it")
        row[name] = f"{value:.6g}"
    return row


def _numbers(figures: Figures) -> Iterator[tuple[str, float]]:
    """Yield the score, the scored tasks' and the delivery's 95th percentile, and the server's cores, if measured."""
    measured: dict[str, float | None] = {}
    for driver, own in figures.by_protocol.items():
        prefix = "" if len(figures.by_protocol) == 1 else f"by_protocol.{driver}."
        measured[f"{prefix}score_ms"] = own.score_ms
        for task in own.tasks:
            if task.task in own.covers.scored:
                measured[f"{prefix}tasks.{task.task}.p95_ms"] = task.service.p95_ms
    measured["delivery.p95_ms"] = figures.delivery.took.p95_ms
    for probe, of_probe in (figures.probes or {}).items():
        if kind_of(probe) == HOST and SERVER_CORES in of_probe:
            measured[f"probes.{probe}.{SERVER_CORES}.mean"] = of_probe[SERVER_CORES].mean
    return ((name, value) for name, value in measured.items() if value is not None)


def _added(row: Mapping[str, str], series: str, name: str, place: str) -> str:
    """Return the text to append to a series. Raises `ConfigError` if the row does not continue it."""
    if series and not series.endswith("\n"):
        raise ConfigError(f"{name}: expected whole lines, found a last line without its end: remove it")
    try:
        columns, *rows = csv.reader(io.StringIO(series)) if series else [[*row]]
    except csv.Error as failure:
        raise ConfigError(f"{name}: expected comma-separated values, found: {failure}") from None
    if columns != [*row]:
        differing = sorted({*columns} ^ {*row}) or ["in another order"]
        raise ConfigError(f"{name}: expected the columns of {place}, found others: {', '.join(differing)}")
    for number, values in enumerate(rows, 2):
        if len(values) != len(columns):
            raise ConfigError(f"{name}: line {number}: expected {len(columns)} values, found {len(values)}")
        before = dict(zip(columns, values, strict=True))
        if unlike := next((key for key in ALIKE if before[key] != row[key]), None):
            expected = f"expected {row[unlike]:.12} as in {place}, found {before[unlike]:.12}"
            raise ConfigError(
                f"{name}: line {number}: {unlike}: {expected}: a series compares like with like; loadsim compare"
                " says what differs between two runs"
            )
    if rows and rows[-1][0] >= row["time"]:
        raise ConfigError(f"{name}: expected runs in the order of time, found {rows[-1][0]} before {row['time']}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([[*row.values()]] if series else [[*row], [*row.values()]])
    return text.getvalue()
