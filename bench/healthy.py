"""`python -m bench.healthy`: healthy runs in a row, none of which may be called invalid.

Limits that catch a generator that is out of breath are worth something only if they let one alone that is not. These
are whole runs of `loadsim run`, judged by the default limits, on the null server and kept apart from it (`--pin`).

Where other machines on the same hardware take the CPU away, a loop is late and the run rightly invalid. The kernel says
how much they took; a run that this happened to is told, whatever its verdict, and made again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.nullserver import Shape, started
from bench.runs import USERS, on_null_server, score_of, written
from bench.users import PIN
from loadsim.errors import ConfigError

RUNS = 20

DISTURBED_SHARE = 0.005
"""Of the CPU, taken by others on the same hardware over the window: with more, a run is no healthy one."""

FIGURES = ("lag_p99_ms", "cpu_share", "lateness_p95_ms", "stolen_share")
"""What a generator is held against; of its engines, the worst."""


def measure(tell: Callable[[str], None], runs: int = RUNS) -> list[dict[str, Any]]:
    """A row for each run: its validity, the reasons, and its generator's figures. `tell` hears of each as it ends.

    Until so many were undisturbed; at most twice as many are made.
    """
    rows: list[dict[str, Any]] = []
    pin = ["--pin"] if PIN else []
    for number in range(1, 2 * runs + 1):
        if sum(not disturbed(row) for row in rows) == runs:
            break
        with tempfile.TemporaryDirectory() as place, started(Shape(users=USERS + 1, messages=4, folders=2)) as server:
            scenario = written(Path(place) / "scenario.yaml", on_null_server(server.services))
            rows.append(_row(score_of(scenario, Path(place) / "run", *pin)))
        tell(line(f"run {number}", rows[-1]))
    return rows


def _row(score: dict[str, Any]) -> dict[str, Any]:
    generator, verdict = score["generator"], score["verdict"]
    return {
        "validity": verdict["validity"],
        "reasons": verdict["reasons"],
        "lag_p99_ms": generator["lag_p99_ms"],
        "cpu_share": generator["cpu_share"],
        "lateness_p95_ms": score["lateness_p95_ms"]["generator"],
        "stolen_share": max((machine["stolen_share"] or 0.0 for machine in score["machines"]), default=0.0),
    }


def disturbed(row: Mapping[str, Any]) -> bool:
    """Whether others took the CPU away from this run."""
    return bool(row["stolen_share"] > DISTURBED_SHARE)


def line(name: str, row: Mapping[str, Any]) -> str:
    """A run on one line, and why it is not valid below."""
    figures = (
        f"lag p99 {row['lag_p99_ms']:.2f} ms, {row['cpu_share']:.0%} of a core, late {row['lateness_p95_ms']:.2f} ms"
    )
    taken = f", {row['stolen_share']:.1%} of the CPU taken by others"
    not_healthy = "; disturbed, does not count" if disturbed(row) else ""
    return "\n  ".join([f"{name}: {row['validity']}; {figures}{taken}{not_healthy}", *row["reasons"]])


def worst(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the undisturbed runs, the worst of each figure, and how many there were of each validity."""
    rows = [row for row in rows if not disturbed(row)]
    counts = {kind: sum(row["validity"] == kind for row in rows) for kind in ("valid", "degraded", "invalid")}
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    most = {figure: max((row[figure] for row in rows), default=0.0) for figure in FIGURES}
    return {"validity": told, "reasons": [], **most}


def any_invalid(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a healthy run was called what it was not."""
    return any(row["validity"] == "invalid" and not disturbed(row) for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, tell of each run as it ends, and the worst; 1 when any was called invalid."""
    parser = argparse.ArgumentParser(prog="python -m bench.healthy", description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=RUNS, help="default: %(default)s, a minute each")
    args = parser.parse_args(arguments)
    if args.runs < 1:
        parser.error(f"runs: expected at least 1, found {args.runs}")
    try:
        rows = measure(partial(print, flush=True), args.runs)
    except ConfigError as error:
        print(f"bench.healthy: {error}", file=sys.stderr)
        return 2
    undisturbed = sum(not disturbed(row) for row in rows)
    print(line(f"worst of {undisturbed} undisturbed of {len(rows)}", worst(rows)))
    return int(any_invalid(rows) or undisturbed < args.runs)


if __name__ == "__main__":
    sys.exit(main())
