"""Healthy runs in a row, none of which may be called invalid.

Limits that catch a generator that is out of breath are worth something only if they let one alone that is not. These
are whole runs of `loadsim run`, judged by the default limits, on the null server and kept apart from it (`--pin`).

Where other machines on the same hardware take the CPU away, a loop is late and the run rightly invalid. The kernel says
how much they took; such a run is reported and repeated, with any verdict.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nullserver import Shape, started
from bench.part import Part
from bench.processes import Cpus
from bench.runs import DAY, USERS, on_null_server, reasons, score_of, written
from bench.table import figure
from bench.table import table as markdown
from bench.users import PIN

DISTURBED_SHARE = 0.005
"""Of the CPU, taken by others on the same hardware over the window: with more, a run is no healthy one."""


@dataclass(frozen=True, slots=True)
class Size:
    """The number of undisturbed runs, and for each its users, the length of their day, and the length of their work."""

    runs: int
    users: int
    day: str
    work_s: int


def measure(_: Cpus, size: Size) -> list[dict[str, Any]]:
    """Return a row for each run: its validity, the reasons, and its generator's figures. Print each at its end.

    At most twice as many runs are made as have to be undisturbed.
    """
    rows: list[dict[str, Any]] = []
    pin = ["--pin"] if PIN else []
    for number in range(1, 2 * size.runs + 1):
        if sum(not disturbed(row) for row in rows) == size.runs:
            break
        shape = Shape(users=size.users + 1, messages=4, folders=2)
        with tempfile.TemporaryDirectory() as place, started(shape) as server:
            document = on_null_server(server.services, size.users, size.day, size.work_s)
            scenario = written(Path(place) / "scenario.yaml", document)
            rows.append(_row(score_of(scenario, Path(place) / "run", *pin)))
        print(line(f"run {number}", rows[-1]), file=sys.stderr, flush=True)
    return rows


def _row(score: dict[str, Any]) -> dict[str, Any]:
    generator = score["generator"]
    return {
        "validity": score["verdict"]["validity"],
        "reasons": reasons(score),
        "lag_p99_ms": generator["lag_p99_ms"],
        "cpu_share": generator["cpu_share"],
        "lateness_p95_ms": score["lateness_p95_ms"]["generator"],
        "stolen_share": max((machine["stolen_share"] or 0.0 for machine in score["machines"]), default=0.0),
    }


def disturbed(row: Mapping[str, Any]) -> bool:
    """Return if other machines took the CPU away from this run."""
    return bool(row["stolen_share"] > DISTURBED_SHARE)


def line(name: str, row: Mapping[str, Any]) -> str:
    """A run on one line, and why it is not valid below."""
    figures = (
        f"lag p99 {row['lag_p99_ms']:.2f} ms, {row['cpu_share']:.0%} of a core, late {row['lateness_p95_ms']:.2f} ms"
    )
    taken = f", {row['stolen_share']:.1%} of the CPU taken by others"
    not_healthy = "; disturbed, does not count" if disturbed(row) else ""
    return "\n  ".join([f"{name}: {row['validity']}; {figures}{taken}{not_healthy}", *row["reasons"]])


def any_invalid(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return if an undisturbed run is invalid."""
    return any(row["validity"] == "invalid" and not disturbed(row) for row in rows)


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return how often undisturbed runs got which verdict, and the worst of each figure of them."""
    undisturbed = [row for row in rows if not disturbed(row)]
    counts = Counter(row["validity"] for row in undisturbed)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in ("valid", "degraded", "invalid") if kind in counts)
    worst = [
        figure(max((row[name] for row in undisturbed), default=None), form)
        for name, form in (("lag_p99_ms", ".2f"), ("cpu_share", ".0%"), ("lateness_p95_ms", ".2f"))
    ]
    head = ["runs", "disturbed", "the others were called", "worst lag p99 ms", "most CPU", "worst lateness p95 ms"]
    return markdown(head, [[str(len(rows)), str(len(rows) - len(undisturbed)), told, *worst]])


HEALTHY = Part(
    "healthy",
    measure,
    {"Healthy runs, `loadsim run --pin` on the null server": table},
    smallest=Size(1, 10, "1m", 7),
    full=Size(20, USERS, DAY, 40),
)
